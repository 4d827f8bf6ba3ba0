"""``chat``: a conversation in the terminal, which a name keeps for another day.

The prompt is read outside the event loop, so that line editing works and Ctrl-C there only clears the line.
During an answer, Ctrl-C stops the answer and keeps the conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

from attrs import define

import mintlify_async as mintlify

from ..errors import ConfigurationError, MintlifyError, NotFoundError
from .ask import stream
from .error_advice import explain
from .exit_status import DONE, TROUBLE
from .settings import FOR_QUESTIONS, check_settings
from .terminal import Terminal

PROMPT = "> "

HELP = "/undo takes the last turn back, /retry asks the unanswered question again, /quit or Ctrl-D ends."


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Answer until the input ends; the exit status says whether every question was answered."""
    with asyncio.Runner() as runner:
        if options.list_names:
            return _list_names(runner, options, terminal)
        check_settings(options, FOR_QUESTIONS)
        store = mintlify.SQLiteConversationStore(_file(options)) if options.name else None
        session = mintlify.MintlifySession(
            domain=options.domain, site=options.site, base_url=options.base_url
        )
        try:
            chat = session.conversation(fp=options.fp, store=store, id=options.name)
            return _Chat(runner, chat, options, terminal).run()
        finally:
            runner.run(session.close())


def _list_names(runner: asyncio.Runner, options: argparse.Namespace, terminal: Terminal) -> int:
    file = _file(options)
    terminal.note(f"conversations of {options.fp} in {file}:")
    for name in runner.run(mintlify.SQLiteConversationStore(file).ids(owner=options.fp)):
        terminal.write(name)
    return DONE


def _file(options: argparse.Namespace) -> str:
    """Return the file of named conversations."""
    if options.store:
        return str(options.store)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    folder = Path(data) / "mintlify-async"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # for the user alone: threads have secret keys
    return str(folder / "chats.db")


@define
class _Chat:
    """A conversation while the command runs."""

    runner: asyncio.Runner
    chat: mintlify.Conversation
    options: argparse.Namespace
    terminal: Terminal
    status: int = DONE

    def run(self) -> int:
        """Read and answer until the end of the input; return the exit status."""
        if self.options.name:
            self.runner.run(self.chat.load())
        self._greet()
        while (line := self._line()) is not None:
            if line.strip() == "/quit":
                break
            if line.strip():
                self._turn(line.strip())
        return self.status

    def _greet(self) -> None:
        if not sys.stdin.isatty():
            return
        if self.options.name:
            self.terminal.note(f"this conversation is kept as {self.options.name} in {_file(self.options)}")
        else:
            self.terminal.note("this conversation is not kept; `mintlify-async chat NAME` keeps one")
        questions = [message.text for message in self.chat.messages if message.role == "user"]
        if questions:
            self.terminal.note(f"{len(questions)} questions so far; the last one: {questions[-1]}")
        self.terminal.note(HELP)

    def _line(self) -> str | None:
        """Return the next line, or None at the end of the input."""
        while True:
            try:
                return _read_line()
            except EOFError:
                if sys.stdin.isatty():
                    self.terminal.note()  # ends the line of the prompt
                return None
            except KeyboardInterrupt:
                self.terminal.note("\nCtrl-D ends the conversation")

    def _turn(self, line: str) -> None:
        """Answer one line. An error is printed and leaves the conversation as it was."""
        try:
            self.runner.run(self._answer(line))
        except KeyboardInterrupt:
            self.terminal.note("stopped; this turn is not kept (/retry asks the question again)")
        except ConfigurationError:
            raise  # a missing key or domain: the next question would fail, too
        except MintlifyError as error:
            explain(error, self.terminal)
            self.status = TROUBLE

    async def _answer(self, line: str) -> None:
        if line == "/undo":
            taken = await self.chat.undo()
            self.terminal.note(f"taken back: {taken[-1].text}")
            return
        if line.startswith("/") and line != "/retry":
            self.terminal.note(HELP)
            return
        for _ in range(3):  # the loop was blocked during the prompt: let it notice closed connections
            await asyncio.sleep(0)
        settings = {"current_path": self.options.path, "retrieval_page_size": self.options.results}
        reply = self.chat.retry() if line == "/retry" else self.chat.ask(line, **settings)
        try:
            await stream(reply, self.terminal)
        except NotFoundError:
            if self.chat.thread is None:
                raise
            self.terminal.note(
                "the service does not know this conversation's thread any more; starting a new one"
            )
            self.chat.forget_thread()
            await stream(self.chat.retry(), self.terminal)


def _read_line() -> str:
    """Read a line, with editing and history if input and output are a terminal."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        with suppress(ImportError):  # Python may be built without it
            importlib.import_module("readline")  # makes input() edit lines
        return input(PROMPT)
    if sys.stdin.isatty():
        sys.stderr.write(PROMPT)
        sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
