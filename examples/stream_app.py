"""A FastAPI app that sends answers with their sources to a web page, without a library in the page.

pip install /path/to/mintlify-async fastapi uvicorn
mintlify-async serve            # prints `export` lines; or set your own keys and domain
uvicorn stream_app:app          # then open http://127.0.0.1:8000
"""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse, StreamingResponse

from mintlify_async import AnswerSource, MintlifyError, MintlifySession, Reply, StreamError

log = logging.getLogger("uvicorn.error")
session = MintlifySession()  # reads the environment now, and opens nothing before its first call


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with session:
        session.check("assistant")
        yield


app = FastAPI(lifespan=lifespan)


async def opened(q: str) -> AsyncIterator[Reply]:
    try:
        async with session.ask(q) as reply:  # a refusal is raised here, in time for a status
            yield reply
    except MintlifyError as error:
        log.error("an answer was refused: %s: %s", type(error).__name__, error)
        raise HTTPException(503, "no answer now") from None


def links(sources: list[AnswerSource]) -> list[dict[str, str | None]]:
    return [{"title": source.title, "url": source.url} for source in sources]


def event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


@app.get("/events")
async def events(reply: Annotated[Reply, Depends(opened)]) -> StreamingResponse:
    async def body() -> AsyncIterator[str]:
        try:
            async for text in reply.text_stream:
                yield event("text", text)
            if reply.aborted:
                raise StreamError("the service ended it early")
        except MintlifyError as error:  # too late for another status
            log.error("an answer was interrupted: %s: %s", type(error).__name__, error)
            yield event("failed", "The answer was interrupted.")
        else:
            yield event("done", links(reply.sources))

    no_buffer = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(body(), media_type="text/event-stream", headers=no_buffer)


@app.get("/answer")
async def answer(q: str) -> dict[str, Any]:
    try:
        found = await session.ask(q)
        if found.aborted:
            raise StreamError("the service ended it early")
    except MintlifyError as error:
        log.error("no answer: %s: %s", type(error).__name__, error)
        raise HTTPException(503, "no answer now") from None
    return {"text": found.text, "sources": links(found.sources)}


@app.get("/", response_class=HTMLResponse)
async def page() -> str:
    return """<!doctype html><meta charset="utf-8"><title>Ask</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<form><input name="q" placeholder="Your question" required> <button>Ask</button></form>
<pre style="white-space: pre-wrap"></pre><ul></ul>
<script>
const [form, text, list] = ["form", "pre", "ul"].map((name) => document.querySelector(name));
let answer;
form.onsubmit = (submitted) => {
  submitted.preventDefault();
  answer?.close();
  text.textContent = "";
  list.replaceChildren();
  answer = new EventSource("events?q=" + encodeURIComponent(form.q.value));
  const end = (words) => { answer.close(); text.append(words); };
  answer.addEventListener("text", ({ data }) => text.append(JSON.parse(data)));
  answer.addEventListener("failed", ({ data }) => end("\\n" + JSON.parse(data)));
  answer.addEventListener("done", ({ data }) => {
    end("");
    for (const { title, url } of JSON.parse(data)) {
      const link = document.createElement("a");
      if (/^https?:/.test(url)) link.href = url;
      link.textContent = title ?? url;
      list.appendChild(document.createElement("li")).append(link);
    }
  });
  answer.onerror = () => end("\\nNo answer. Please ask again later.");
};
</script>"""
