"""``chat`` runs a conversation in the terminal. With a name, it is kept for another day.

The prompt is read outside the event loop, so that line editing works. At the prompt, Ctrl-C only clears the
line. During an answer, Ctrl-C stops the answer and keeps the conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

import mintlify_async as mintlify

from ..errors import ConfigurationError, MintlifyError
from .ask import question_options, stream
from .error_advice import explain
from .exit_status import DONE, TROUBLE
from .settings import FOR_QUESTIONS, open_session
from .terminal import Terminal


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Answer until the input ends. The exit status says whether every question was answered."""
    status = DONE
    file = _file(options.store) if options.name else None
    with asyncio.Runner() as runner:
        session = open_session(options, FOR_QUESTIONS)
        try:
            store = mintlify.SQLiteStore(file) if file else None
            chat = session.conversation(fp=options.fp, owner=options.fp, store=store, id=options.name)
            if file:
                runner.run(chat.load())
            _greet(chat, options.name, file, terminal)
            while (question := _read_question(terminal)) is not None:
                try:
                    if question:
                        runner.run(_answer(chat, question, options, terminal))
                except KeyboardInterrupt:
                    terminal.note("stopped; this question and its answer are not kept")
                except ConfigurationError:
                    raise  # a wrong key or domain, so the next question would also fail
                except MintlifyError as error:
                    explain(error, terminal)
                    status = TROUBLE
        finally:
            runner.run(session.close())
    return status


def _file(store: str | None) -> str:
    """Return the file of named conversations."""
    if store:
        return store
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    folder = Path(data) / "mintlify-async"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # private, because threads have secret keys
    return str(folder / "chats.db")


def _greet(chat: mintlify.Conversation, name: str | None, file: str | None, terminal: Terminal) -> None:
    if not sys.stdin.isatty():
        return
    if file:
        questions = sum(message.role == "user" for message in chat.messages)
        terminal.note(f"this conversation is kept as {name} in {file}; questions so far: {questions}")
    else:
        terminal.note("this conversation is not kept; `mintlify-async chat NAME` keeps one")
    terminal.note("Ctrl-C stops an answer, Ctrl-D ends the conversation")


async def _answer(
    chat: mintlify.Conversation, question: str, options: argparse.Namespace, terminal: Terminal
) -> None:
    for _ in range(3):  # the prompt blocked the loop, which now handles closed connections
        await asyncio.sleep(0)
    await stream(chat.ask(question, **question_options(options)), terminal)


def _read_question(terminal: Terminal) -> str | None:
    """Return the next question, with editing and history on a terminal, or None at the end of the input."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        line = sys.stdin.readline()
        return line.strip() if line else None
    with suppress(ImportError):  # Python may be built without readline
        importlib.import_module("readline")  # makes input() edit lines
    try:
        return input("> ").strip()
    except EOFError:
        terminal.note()  # ends the line of the prompt
        return None
    except KeyboardInterrupt:
        terminal.note()
        terminal.note("Ctrl-D ends the conversation")
        return ""
