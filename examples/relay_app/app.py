"""Serves the page and answers its questions. README.md says how to run it. Every secret stays here."""

from __future__ import annotations

import hashlib
import hmac
import html
import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field

from mintlify_async import Limit, MintlifySession, Quota, SQLiteStore
from mintlify_async.contrib.relay import MemoryStreamStore, Relay

PAGE = Path(__file__).parent / "page" / "dist"
COOKIE, YEAR = "browser", 365 * 24 * 3600
QUESTIONS = 20  # from one IP address in a minute
# Only the page's own files may run in it, and no other page may frame it. Pictures of an answer come only
# from the documentation, because the URL of another picture could carry away the user's question.
POLICY = (
    "default-src 'self'; img-src 'self' data: {site}; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)

log = logging.getLogger("uvicorn.error")


class Feedback(BaseModel):
    """A user's verdict on an answer. Anybody can send one, so compare its ids with yours."""

    chatId: str | None = Field(None, max_length=200)  # noqa: N815 - the page's name
    messageId: str = Field(min_length=1, max_length=200)  # noqa: N815
    value: Literal[1, -1]


def store_feedback(user: str, feedback: Feedback) -> None:
    """Replace this by your database."""
    log.info("%s rates message %r with %+d", user, feedback.messageId, feedback.value)


def per_address(most: int) -> Callable[[str, Request], Awaitable[float | None]]:
    """Return a ``rate=`` that counts questions by IP address and minute, in the memory of this process."""
    asked, minute = Counter[str](), 0.0

    async def rate(user: str, request: Request) -> float | None:
        nonlocal minute
        if request.method != "POST":
            return None
        now, address = time.time(), request.client.host if request.client else ""
        if now // 60 != minute:
            minute = now // 60
            asked.clear()
        asked[address] += 1
        return 60 - now % 60 if asked[address] > most else None

    return rate


def create_app(
    session: MintlifySession | None = None,
    env: Mapping[str, str] = os.environ,
    page: Path = PAGE,
    **more: Any,
) -> FastAPI:
    """Return the app. *env* has the settings that README.md lists; *more* is for the relay."""
    secret, site = env.get("RELAY_SECRET"), env.get("MINTLIFY_SITE", "")
    if not secret:
        raise SystemExit("RELAY_SECRET is missing: export RELAY_SECRET=$(openssl rand -hex 32), and keep it")
    if not (page / "index.html").exists():
        raise SystemExit(f"{page} is missing: npm --prefix page install && npm --prefix page run build")
    store = SQLiteStore(env.get("CHATS", "chats.sqlite"))
    # A browser without its cookie is a new user, so IP addresses are counted, too.
    session = session or MintlifySession(quota=Quota(ask_per_user=Limit(60, per=3600), store=store))
    session.check("assistant")  # the app does not start without its key and domain
    index = (page / "index.html").read_text("utf-8")
    index = index.replace('name="docs-site" content=""', f'name="docs-site" content="{html.escape(site)}"')
    address = urlsplit(site)
    policy = POLICY.format(site=f"{address.scheme}://{address.netloc}" if address.netloc else "")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with session, relay.drain_on_signal(20):  # seconds for the running answers at a deployment
            yield

    def signed(browser: str) -> str:
        mark = hmac.new(secret.encode(), f"browser {browser}".encode(), hashlib.sha256).hexdigest()
        return f"{browser}.{mark}"

    def user(request: Request) -> str:
        """Return the user's id. Here every browser is a user. With accounts, return the account's id."""
        cookie = request.cookies.get(COOKIE, "")
        browser = cookie.partition(".")[0]
        return browser if hmac.compare_digest(cookie.encode(), signed(browser).encode()) else ""

    options: dict[str, Any] = {"streams": MemoryStreamStore(), "rate": per_address(QUESTIONS), **more}
    relay = Relay(session, secrets=[secret], user=user, store=store, **options)
    app = FastAPI(lifespan=lifespan, openapi_url=None)
    app.include_router(relay.router())

    @app.post("/api/chat/feedback", status_code=204)
    def rate(request: Request, feedback: Feedback) -> None:
        """Take a user's verdict on an answer."""
        if not (reader := user(request)):
            raise HTTPException(401, "Please sign in first.")
        store_feedback(reader, feedback)

    app.mount("/assets", StaticFiles(directory=page / "assets"))

    @app.get("/")
    async def start(request: Request) -> HTMLResponse:
        """Send the page, and give a new browser its id."""
        response = HTMLResponse(
            index, headers={"cache-control": "no-store", "content-security-policy": policy}
        )
        if not user(request):
            https, value = request.url.scheme == "https", signed(secrets.token_urlsafe(24))
            response.set_cookie(COOKIE, value, max_age=YEAR, httponly=True, secure=https, samesite="lax")
        return response

    return app
