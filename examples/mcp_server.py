"""An MCP server with two tools, one to ask the documentation, one to have an agent change it.

pip install /path/to/mintlify-async 'mcp>=2'
In your agent's settings, the command of this stdio server is: python mcp_server.py (keys, project and domain
in its environment). Each session of the agent starts its own process, so it has its own thread.
"""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import frozen
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

from mintlify_async import Conversation, JobTimeoutError, MintlifyError, MintlifySession, SQLiteStore

LEDGER = Path(__file__).with_name("mcp-jobs.sqlite")
WEEK = 7 * 86_400.0  # seconds in which the same instruction means the same job
PATIENCE = 40.0  # seconds, because many clients give up a call after a minute


@frozen
class Docs:
    session: MintlifySession
    chat: Conversation


@asynccontextmanager
async def lifespan(server: MCPServer[Docs]) -> AsyncGenerator[Docs]:
    async with MintlifySession(ledger=SQLiteStore(LEDGER, keep=WEEK)) as session:
        session.check()
        yield Docs(session, session.conversation(fp="mcp", busy="queue", max_messages=20))


server = MCPServer[Docs]("documentation", lifespan=lifespan)


class Answer(BaseModel):
    text: str
    sources: dict[str, str]  # titles by URL


@server.tool()
async def ask_docs(question: str, context: Context[Docs, Any]) -> Answer:
    """Ask the documentation. A question may refer to the ones before it."""
    chat = context.request_context.lifespan_context.chat
    try:
        answer = await chat.ask(question)  # cancelling the call ends it here, and at the service
    except MintlifyError as error:
        raise ToolError(f"{type(error).__name__}: {error}") from None  # the model reads it
    if answer.aborted:
        raise ToolError("the service ended the answer early")
    pages = {page.url: page.title or "" for page in answer.sources if page.url}
    return Answer(text=answer.text, sources=pages)


@server.tool()
async def change_docs(instruction: str, context: Context[Docs, Any]) -> str:
    """Have an agent change the documentation, in a pull request. It takes minutes.

    The same instruction never starts a second job: call again with the same words to see how far it is.
    """
    key = f"mcp {hashlib.sha256(instruction.encode()).hexdigest()}"
    session = context.request_context.lifespan_context.session
    try:
        handle = await session.create_job(instruction, dedupe_key=key)
        job = await handle.wait(timeout=PATIENCE, check=False)
    except JobTimeoutError as error:
        return f"not ended yet: {error}; call again with the same instruction to check it"
    except MintlifyError as error:
        raise ToolError(f"{type(error).__name__}: {error}") from None
    return f"{job.id} {job.status}: {job.pr_link or 'without a pull request'}"


if __name__ == "__main__":
    server.run()
