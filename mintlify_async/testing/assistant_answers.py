"""Makes stream events from a question and the sections found for it. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import field, frozen

from ..wrong_names import helpful
from .docs_index import Section
from .local_threads import ThreadStyle

Event = dict[str, Any]

SECTIONS_QUOTED = 2
"""Number of sections that the text quotes. The other sections are only sources and suggestions."""

SECTION_CHARACTERS = 900
"""Approximate number of characters that are quoted of a section. A code block is never cut."""


@helpful
@frozen(kw_only=True)
class AnswerStyle:
    """The contents of a service's answers.

    ::

        LocalService(answers=AnswerStyle(pause=0.1, site="https://docs.acme.com"))

    Args:
        pause: Seconds between two events.
        site: The start of the sources' URLs.
        thread: The places of the thread's id and key.
    """

    pause: float = 0.0
    site: str = "https://docs.example"
    thread: ThreadStyle = field(factory=ThreadStyle)


@frozen(kw_only=True)
class Content:
    """The contents of one answer. Sources and suggestions are pairs of title and URL."""

    text: str = ""
    sources: Sequence[tuple[str | None, str]] = ()
    suggestions: Sequence[tuple[str | None, str]] = ()
    error: str | None = None


def search_answer(
    question: str, earlier: str | None, results: Sequence[Section], site: str
) -> tuple[Content, list[Event]]:
    """Return the content of the answer to *question*, and the result of the search that precedes it.

    *earlier* is the previous question in the thread or in the history.
    """
    titles: dict[str, str] = {}  # one source per page, best first
    for section in results:
        titles.setdefault(section.page, section.title)
    content = Content(
        text="".join(_text_pieces(question, earlier, results)),
        sources=[(title, f"{site}{path}") for path, title in titles.items()],
        suggestions=[(section.heading, section.path) for section in results[SECTIONS_QUOTED:][:3]],
    )
    return content, [section.to_result() for section in results]


def search_step(question: str, page_size: int, results: list[Event], number: int) -> list[Event]:
    """Return a step with the search tool's input as text, its complete input, and its output."""
    call = {"toolCallId": f"call_{number}", "toolName": "search"}
    arguments = {"query": question, "pageSize": page_size}
    text = json.dumps(arguments, ensure_ascii=False)
    return [
        {"type": "start-step"},
        {"type": "tool-input-start", **call},
        {"type": "tool-input-delta", "toolCallId": f"call_{number}", "inputTextDelta": text},
        {"type": "tool-input-available", **call, "input": arguments},
        {"type": "tool-output-available", "toolCallId": f"call_{number}", "output": {"results": results}},
        {"type": "finish-step"},
    ]


def content_events(
    content: Content, *, number: int, thread: Mapping[str, Any], search: Sequence[Event] = ()
) -> list[Event]:
    """Return an answer as stream events. ``finish`` gets the fields of *thread*.

    The step of *search* is the first step. An error replaces the last event.
    """
    text = content.text
    if content.suggestions:  # one in each line, as the service writes them
        lines = "\n".join(f"({title})[{path}]" for title, path in content.suggestions)
        text += f"\n\n```suggestions\n{lines}\n```"
    events: list[Event] = [{"type": "start", "messageId": f"msg_{number}"}, *search, {"type": "start-step"}]
    for place, (title, address) in enumerate(content.sources, 1):
        source = {"type": "source-url", "sourceId": f"source_{number}_{place}", "url": address}
        events.append(source if title is None else {**source, "title": title})
    if text:
        events += _text_events(text, number)
    if content.error is not None:
        return [*events, {"type": "error", "errorText": content.error}]
    return [*events, {"type": "finish-step"}, {"type": "finish", "finishReason": "stop", **thread}]


def _text_events(text: str, number: int) -> Iterator[Event]:
    """Yield the text, one delta for each word."""
    part = f"text_{number}"
    yield {"type": "text-start", "id": part}
    cuts = [0, *(match.start() for match in re.finditer(r"(?<=\s)\S", text)), len(text)]
    for start, end in pairwise(dict.fromkeys(cuts)):
        yield {"type": "text-delta", "id": part, "delta": text[start:end]}
    yield {"type": "text-end", "id": part}


def _text_pieces(question: str, earlier: str | None, results: Sequence[Section]) -> Iterator[str]:
    if earlier is not None:
        yield f"Earlier in this thread you asked: “{earlier}”.\n\n"
    if not results:
        yield f"The documentation says nothing about “{question}”."
        return
    for section in results[:SECTIONS_QUOTED]:
        link = f"[{section.title}]({section.path})"
        named = f"**{link}**" if section.heading == section.title else f"**{section.heading}** — {link}"
        yield f"{named}\n\n{_excerpt(section.content)}\n\n"
    yield f"Found in {len(results)} section{'s' if len(results) > 1 else ''} of the documentation."


def _excerpt(content: str) -> str:
    """Return the first blocks of a section. Code blocks are not split."""
    blocks, size = list[str](), 0
    for block in re.findall(r"```.*?(?:```|\Z)|(?:(?!```|\n\n).)+", content, re.DOTALL):
        size += len(block)
        if blocks and size > SECTION_CHARACTERS:
            break
        if block.strip():
            blocks.append(block.strip("\n").rstrip())
    return "\n\n".join(blocks)
