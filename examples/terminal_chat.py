"""A chat with your documentation in the terminal, kept under a name. Ctrl-C stops an answer, Ctrl-D exits.

Set MINTLIFY_ASSISTANT_API_KEY, MINTLIFY_DOMAIN and MINTLIFY_SITE (such as https://docs.acme.com, so that
links are complete); python terminal_chat.py NAME
"""

import asyncio
import importlib
import logging
import re
import signal
import sys
from contextlib import suppress

from mintlify_async import (
    Conversation,
    MintlifyError,
    MintlifySession,
    SQLiteStore,
    StreamError,
    extras_markdown,
)

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # an answer must not control the terminal


def write(text: str, end: str = "\n") -> None:
    print(CONTROLS.sub("", text), end=end, flush=True)


async def answer(chat: Conversation, question: str) -> None:
    """Write the answer as it arrives, then its sources. A turn that is not finished is not kept."""
    async with chat.ask(question) as reply:
        async for text in reply.text_stream:
            write(text, end="")
        if reply.aborted:
            raise StreamError("the service ended it early")
        write(f"\n\n{extras_markdown(reply)}\n")


def read_question() -> str | None:
    """Return the next question, or None at the end. Outside the event loop, so that line editing works."""
    try:
        return input("> ").strip()
    except KeyboardInterrupt:
        write("\nCtrl-D ends the chat.")
        return ""
    except EOFError:
        return None


def talk(runner: asyncio.Runner, chat: Conversation) -> None:
    runner.run(chat.load())
    write(f"{len(chat.messages)} messages so far. Ctrl-C stops an answer, Ctrl-D ends the chat.")
    while (question := read_question()) is not None:
        try:
            if question:
                runner.run(answer(chat, question))
        except KeyboardInterrupt:
            write("\n[stopped; this question and its answer are not kept]")
        except MintlifyError as error:
            logging.exception("no answer")
            write(f"\nSorry, the answer is not complete: {error}")


def main(name: str) -> None:
    logging.basicConfig(filename="terminal_chat.log", level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with suppress(ImportError):  # Python may be built without readline
        importlib.import_module("readline")  # makes input() edit lines
    store = SQLiteStore("terminal_chat.sqlite")
    with asyncio.Runner() as runner:
        session = MintlifySession()
        try:
            session.check("assistant")
            talk(runner, session.conversation(fp="terminal", store=store, id=name, max_messages=20))
        finally:
            runner.run(session.close())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "chat")
