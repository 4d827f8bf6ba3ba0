"""``ask`` streams the answer to one question, with its sources and suggestions below."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import mintlify_async as mintlify

from ..errors import ConfigurationError
from .error_advice import UsageError
from .exit_status import DONE, TROUBLE
from .settings import FOR_QUESTIONS, open_session
from .show_answer import show_answer
from .standard_input import read_file, read_text
from .terminal import Terminal


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Ask the question and stream the answer. With ``--save``, save the thread."""
    if options.code == "-" and options.question in ([], ["-"]):
        raise UsageError("standard input can be the question or the code, not both")
    arguments = question_options(options) | {"fp": options.fp, "timeout": options.timeout}
    async with open_session(options, FOR_QUESTIONS) as session:
        if options.thread:
            arguments["thread"] = _load_thread(options.thread)
        if options.code:
            path = None if options.code == "-" else options.code
            arguments["context"] = [mintlify.ContextItem("code", read_file(options.code), path=path)]
        question = read_text(options.question, "question")
        with _thread_file(options.save) if options.save else nullcontext() as save:
            reply = session.ask(question, **arguments)
            if options.json:
                async with reply:
                    async for event in reply:
                        terminal.record(event.to_wire())
            else:
                await show_answer(reply, terminal)
            if save is not None and reply.thread is not None:
                save(reply.thread)
            elif save is not None:
                terminal.note(f"the service named no thread, so {options.save} was not written")
    return TROUBLE if reply.aborted else DONE


def question_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of a question that ``ask`` and ``chat`` share."""
    arguments: dict[str, Any] = {"current_path": options.path}
    return arguments if options.results is None else arguments | {"retrieval_page_size": options.results}


def _load_thread(name: str) -> mintlify.Thread:
    if not Path(name).exists():
        raise UsageError(f"there is no file {name}: ask a first question with --save {name}")
    try:
        return mintlify.Thread.from_json(read_file(name))
    except ConfigurationError:
        raise UsageError(f"--thread {name} is not a file that --save wrote") from None


@contextmanager
def _thread_file(name: str) -> Generator[Callable[[mintlify.Thread], None]]:
    """Yield a function that writes a thread, with its key, to a file that only the user can read.

    If the file cannot be written, the error is raised at the start of the block, before the question costs
    money. An existing file is not changed until a thread is written.
    """
    path = Path(name)
    if path.exists() and not path.is_file():
        raise UsageError(f"--save {name} is not a file")
    try:
        descriptor, name_of_new = mkstemp(dir=path.parent, prefix=".thread-")
    except OSError as error:
        raise UsageError(f"--save {name} cannot be written: {error.strerror}") from None
    os.close(descriptor)
    new = Path(name_of_new)

    def write(thread: mintlify.Thread) -> None:
        new.write_text(thread.to_json() + "\n", encoding="utf-8")
        new.replace(path)

    try:
        yield write
    finally:
        new.unlink(missing_ok=True)
