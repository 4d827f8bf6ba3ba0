"""A pydantic-ai agent with two tools, one to ask the documentation, one to have an agent job change it.

pip install /path/to/mintlify-async 'pydantic-ai-slim[openai]'
mintlify-async serve                  # prints `export` lines; or set your own keys, project and domain
MODEL=openai:gpt-5 python pydantic_ai_tool.py TICKET-17 "Customers miss how to log in by SSO. Explain it."
"""

import asyncio
import os
import sys
from typing import Any

from attrs import frozen
from pydantic_ai import Agent, RunContext

from mintlify_async import Conversation, JobTimeoutError, MintlifyError, MintlifySession, SQLiteStore
from mintlify_async.errors import ConfigurationError


@frozen
class Request:
    """The dependencies of one run of the agent.

    Args:
        id: The name of the request, which stays the same when a run is repeated.
        session: The session, shared by all runs.
        chat: The conversation with the documentation, in its own thread.
    """

    id: str
    session: MintlifySession
    chat: Conversation


agent = Agent(deps_type=Request, instructions="Answer from the documentation only, and name its pages.")


@agent.tool
async def ask_docs(context: RunContext[Request], question: str) -> dict[str, Any]:
    """Ask the documentation. A question may refer to the ones before it."""
    try:
        answer = await context.deps.chat.ask(question)
    except MintlifyError as error:
        return {"failed": str(error)}
    if answer.aborted:
        return {"failed": "the service ended the answer early"}
    return {"text": answer.text, "pages": [page.url for page in answer.sources]}


@agent.tool
async def change_docs(context: RunContext[Request], instruction: str) -> str:
    """Have an agent job change the documentation, in a pull request, once per request. It takes minutes."""
    deps = context.deps
    try:
        # If the framework, a queue or the model repeats a run or a call, it gets the same job.
        handle = await deps.session.create_job(instruction, dedupe_key=deps.id)
        job = await handle.wait(timeout=900, check=False)
    except JobTimeoutError as error:
        return f"not ended yet: {error}; its reference is {error.ref}"
    except ConfigurationError as error:
        if error.field == "dedupe_key":
            return "nothing was done: this request has a job already, with another instruction"
        return f"nothing was done: {error}"
    except MintlifyError as error:  # the job may exist, and a person has to find out
        return f"failed, do not repeat it: {error}"
    return f"{job.status}: {job.pr_link or 'without a pull request'}"


async def main(request_id: str, prompt: str) -> None:
    async with MintlifySession(ledger=SQLiteStore("requests.sqlite")) as session:
        session.check()
        request = Request(request_id, session, session.conversation(fp="agent", busy="queue"))
        print((await agent.run(prompt, deps=request, model=os.environ["MODEL"])).output)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
