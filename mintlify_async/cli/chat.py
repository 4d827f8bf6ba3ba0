"""``chat`` runs a conversation in the terminal. If it has a name, it is stored and can be continued later.

The prompt is read outside the event loop, so line editing works. At the prompt, Ctrl-C only clears the line.
During an answer, Ctrl-C stops the answer and keeps the conversation. SIGTERM ends the command. If a line is
one word that starts with ``/``, it is a command and is never sent.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from attrs import define

import mintlify_async as mintlify

from ..errors import ConfigurationError, MintlifyError
from .argument_parser import CHAT_COMMANDS
from .ask import question_options
from .error_advice import UsageError, explain
from .exit_status import DONE, TROUBLE
from .run_command import until_terminated
from .settings import FOR_QUESTIONS, open_session
from .show_answer import show_answer, show_sources
from .standard_input import interruptible, is_closed, read_line
from .terminal import Terminal


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Answer questions until the input ends. The exit status is 0 if every question was answered."""
    file = _file(options.store) if options.name else None
    with asyncio.Runner() as runner:
        session = open_session(options, FOR_QUESTIONS)
        try:
            store = mintlify.SQLiteStore(file) if file else None
            chat = session.conversation(fp=options.fp, owner=options.fp, store=store, id=options.name)
            if file:
                runner.run(until_terminated(chat.load()))
            _greet(chat, options.name, file, terminal)
            return _Talk(runner, session, chat, options, terminal).run()
        finally:
            runner.run(session.close())


@define
class _Talk:
    """The questions and commands of one run."""

    runner: asyncio.Runner
    session: mintlify.MintlifySession
    chat: mintlify.Conversation
    options: argparse.Namespace
    terminal: Terminal
    reply: mintlify.Reply | None = None
    status: int = DONE

    def run(self) -> int:
        """Answer each line until the end of the input or ``/exit``. Return the exit status."""
        while (line := _read_question(self.terminal)) is not None:
            try:
                if re.fullmatch(r"/[^\W\d_]+", line):
                    if line.lower() == "/exit":
                        break
                    self._obey(line.lower())
                elif line:
                    self._answer(line[1:] if re.fullmatch(r"//[^\W\d_]+", line) else line)
            except KeyboardInterrupt:
                self.terminal.note("stopped; this question and its answer are not kept")
            except ConfigurationError:
                raise  # a wrong key or domain, so the next question would also fail
            except MintlifyError as error:
                explain(error, self.terminal)
                self.status = TROUBLE
        return self.status

    def _answer(self, question: str) -> None:
        async def ask() -> None:
            for _ in range(3):  # the loop was blocked by the prompt, and now handles closed connections
                await asyncio.sleep(0)
            self.reply = self.chat.ask(question, **question_options(self.options))
            await show_answer(self.reply, self.terminal)

        self.runner.run(until_terminated(ask()))

    def _obey(self, command: str) -> None:
        match command:
            case "/new":
                self.chat, self.reply = self.session.conversation(fp=self.options.fp), None
                kept = f"; {self.options.name} stays as it was" if self.options.name else ""
                self.terminal.note(f"a new conversation, which is not kept{kept}")
            case "/undo" if question := _last_question(self.chat):
                self.runner.run(until_terminated(self.chat.undo()))
                self.reply = None
                self.terminal.note(f"taken back: {question}")
            case "/undo":
                self.terminal.note("there is no question to take back")
            case "/sources" if self.reply is not None and self.reply.sources:
                show_sources(self.reply, self.terminal)
            case "/sources":
                self.terminal.note("there is no answer with sources")
            case _:
                if command != "/help":
                    self.terminal.note(f"{command} is no command; /{command} sends it. Commands:")
                for name, says in CHAT_COMMANDS.items():
                    self.terminal.note(f"{name:10}{says}")


def _last_question(chat: mintlify.Conversation) -> str:
    return next((message.text for message in reversed(chat.messages) if message.role == "user"), "")


def _file(store: str | None) -> str:
    """Return the file of named conversations."""
    if store:
        return store
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    try:
        # A relative path is not valid in XDG_DATA_HOME, and would mean another folder in each working folder.
        data = data if data.is_absolute() else Path.home() / ".local" / "share"
    except RuntimeError:
        raise UsageError(
            "there is no home folder for conversations: set HOME, or give --store FILE"
        ) from None
    folder = data / "mintlify-async"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # private, because threads have secret keys
    return str(folder / "chats.db")


def _greet(chat: mintlify.Conversation, name: str | None, file: str | None, terminal: Terminal) -> None:
    if is_closed() or not sys.stdin.isatty():
        return
    if file:
        questions = sum(message.role == "user" for message in chat.messages)
        terminal.note(f"this conversation is kept as {name} in {file}; questions so far: {questions}")
    else:
        terminal.note("this conversation is not kept; `mintlify-async chat NAME` keeps one")
    terminal.note("Ctrl-C stops an answer, Ctrl-D ends the conversation, /help lists the commands")


def _read_question(terminal: Terminal) -> str | None:
    """Return the next question, with editing and history on a terminal, or None at the end of the input."""
    if is_closed():
        raise UsageError("no question: standard input is closed; ask one question with: mintlify-async ask")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        line = read_line()
        return None if line is None else line.strip()
    with suppress(ImportError):  # Python may be built without readline
        importlib.import_module("readline")  # makes input() edit lines
    try:
        with interruptible():
            return input("> ").strip()
    except EOFError:
        terminal.note()  # ends the line of the prompt
        return None
    except KeyboardInterrupt:
        terminal.note()
        terminal.note("Ctrl-D ends the conversation")
        return ""
