"""How commands show an answer: the text as it arrives, then the sources and suggestions."""

from __future__ import annotations

import mintlify_async as mintlify

from .terminal import Terminal


async def show_answer(reply: mintlify.Reply, terminal: Terminal) -> None:
    """Show *reply* as it streams. If the answer is interrupted, its text stays on the screen."""
    with terminal.answer() as feed:
        async with reply:
            async for text in reply.text_stream:
                feed(text)
    show_sources(reply, terminal)
    if reply.suggestions:
        terminal.write("\nSee next:\n")
    for suggestion in reply.suggestions:
        terminal.write(f"- {suggestion.title} — {suggestion.path}")
    if reply.aborted:
        terminal.note("the service ended this answer early")
    elif not reply.text:
        terminal.note("the answer has no text")


def show_sources(reply: mintlify.Reply, terminal: Terminal) -> None:
    """If a complete answer has sources, show them."""
    if reply.sources:
        terminal.write("\nSources:\n")
    for source in reply.sources:
        named = [source.title, source.url or source.filename]
        terminal.write(f"- {' — '.join(part for part in named if part) or source.type}")
        for section in source.sections:
            terminal.write(f"  - {section.title} — {section.url}")
