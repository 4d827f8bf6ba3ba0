"""``ask``: streams the answer to one question, with its sources and suggestions below."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import nullcontext

import mintlify_async as mintlify

from .error_advice import UsageError
from .exit_status import DONE, TROUBLE
from .run_command import read_file, read_text
from .settings import FOR_QUESTIONS, check_settings, recorder
from .terminal import Terminal
from .thread_file import load_thread, thread_saved


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Ask the question, stream the answer, and save the thread if ``--save`` is given."""
    if options.code == "-" and options.question in ([], ["-"]):
        raise UsageError("standard input can be the question or the code, not both")
    check_settings(options, FOR_QUESTIONS)
    thread = load_thread(options.thread) if options.thread else None
    context = _code(options.code) if options.code else None
    session = mintlify.MintlifySession(
        domain=options.domain,
        site=options.site,
        base_url=options.base_url,
        timeouts=mintlify.Timeouts(total=options.timeout),
        recorder=recorder(options),
    )
    with thread_saved(options.save) if options.save else nullcontext() as save:
        async with session:
            reply = session.ask(
                read_text(options.question, "question"),
                thread=thread,
                context=context,
                fp=options.fp,
                current_path=options.path,
                retrieval_page_size=options.results,
            )
            await (_print_events if options.json else stream)(reply, terminal)
        if save is not None and reply.thread is not None:
            save(reply.thread)
        elif save is not None:
            terminal.note(f"the service named no thread, so {options.save} was not written")
    return TROUBLE if reply.aborted else DONE


async def _print_events(reply: mintlify.Reply, terminal: Terminal) -> None:
    async with reply:
        async for event in reply:
            terminal.record(event.to_wire())


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
    terminal.write("\n".join(["", title, "", *lines]))


def _source_lines(sources: list[mintlify.AnswerSource]) -> Iterator[str]:
    """Yield a line for each page, and one for each of its sections below it."""
    for source in sources:
        named = [source.title, source.url or source.filename]
        yield f"- {' — '.join(part for part in named if part) or source.type}"
        for section in source.sections:
            yield f"  - {section.title} — {section.url}"


def _code(name: str) -> list[mintlify.ContextItem]:
    return [mintlify.ContextItem("code", read_file(name), path=None if name == "-" else name)]
