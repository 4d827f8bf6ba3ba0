"""``ask``: streams the answer to one question, with its sources and suggestions below."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import mintlify_async as mintlify

from .error_advice import UsageError
from .exit_status import DONE, TROUBLE
from .run_command import read_file, read_text
from .terminal import Terminal


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Ask the question, stream the answer, and save the thread if ``--save`` is given."""
    if options.code == "-" and options.question in (None, "-"):
        raise UsageError("standard input can be the question or the code, not both")
    question = read_text(options.question, "question")
    thread = _load(options.thread) if options.thread else None
    context = _code(options.code) if options.code else None
    timeouts = mintlify.Timeouts(total=options.timeout)
    async with mintlify.MintlifySession(
        domain=options.domain, site=options.site, base_url=options.base_url, timeouts=timeouts
    ) as session:
        reply = session.ask(
            question,
            thread=thread,
            context=context,
            fp=options.fp,
            current_path=options.path,
            retrieval_page_size=options.results,
        )
        await (_print_events if options.json else stream)(reply, terminal)
        if options.save and reply.thread is not None:
            _save(options.save, reply.thread)
    return TROUBLE if reply.aborted else DONE


async def _print_events(reply: mintlify.Reply, terminal: Terminal) -> None:
    async with reply:
        async for event in reply:
            # ASCII only: half of a surrogate pair cannot be written in another way.
            terminal.write(json.dumps(event.to_wire()))


async def stream(reply: mintlify.Reply, terminal: Terminal) -> None:
    """Show *reply* as it streams. What was received stays on the screen if the answer breaks off."""
    view = terminal.answer()
    try:
        async with reply:
            text = reply.growing_text()
            try:
                async for event in reply:
                    if added := text.after(event):
                        view.feed(added)
                    elif isinstance(event, mintlify.ToolInputAvailable):
                        terminal.note(_tool_line(event))
            finally:
                view.feed(text.close())
    finally:
        view.close()
    _show_below(reply, terminal)


def _tool_line(event: mintlify.ToolInputAvailable) -> str:
    """Return a line that says what the assistant is searching for."""
    match event.input:
        case {"query": str(query)}:
            return f"{event.tool_name}: {query}"
        case _:
            return event.tool_name


def _show_below(reply: mintlify.Reply, terminal: Terminal) -> None:
    """Show the sources and suggestions, and whether the answer ended early."""
    if reply.sources:
        _show_list("Sources:", list(_source_lines(reply.sources)), terminal)
    if suggestions := reply.suggestions:
        lines = [f"- {suggestion.title} — {suggestion.path}" for suggestion in suggestions]
        _show_list("See next:", lines, terminal)
    if reply.aborted:
        terminal.note("the service ended this answer early")
    elif not reply.text:
        terminal.note("the answer has no text")


def _show_list(title: str, lines: list[str], terminal: Terminal) -> None:
    terminal.write("")
    terminal.shown("\n".join([title, "", *lines]))


def _source_lines(sources: list[mintlify.AnswerSource]) -> Iterator[str]:
    """Yield a line for each page, and one for each of its sections below it."""
    for source in sources:
        named = [source.title, source.url or source.filename]
        yield f"- {' — '.join(part for part in named if part) or source.type}"
        for section in source.sections:
            yield f"  - {section.title} — {section.url}"


def _code(name: str) -> list[mintlify.ContextItem]:
    return [mintlify.ContextItem("code", read_file(name), path=None if name == "-" else name)]


def _load(name: str) -> mintlify.Thread:
    path = Path(name)
    if not path.exists():
        raise UsageError(f"there is no file {name}: ask a first question with --save {name}")
    return mintlify.Thread.from_json(path.read_text(encoding="utf-8"))


def _save(name: str, thread: mintlify.Thread) -> None:
    path = Path(name)
    path.touch(mode=0o600)  # readable by its owner alone: the key in it is all that a thread needs
    path.write_text(thread.to_json() + "\n", encoding="utf-8")
