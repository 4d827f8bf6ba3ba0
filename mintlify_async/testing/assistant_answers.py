"""Makes stream events from a question and the sections found for it. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import field, frozen

from .docs_pages import Section
from .local_threads import ThreadStyle

Event = dict[str, Any]

SECTIONS_QUOTED = 2
"""How many sections the text quotes; the others are only sources and suggestions."""

SECTION_CHARACTERS = 900
"""About how many characters of a section are quoted; a code block is never cut."""


@frozen(kw_only=True)
class AnswerStyle:
    """The contents of a service's answers.

    ::

        LocalService(answers=AnswerStyle(reasoning=True, tool_result_bytes=100_000))

    Args:
        reasoning: Whether a reasoning part precedes the search.
        suggestions: Whether the text ends with a ``suggestions`` block.
        tool_result_bytes: The minimum size of the search result. The real service sends 50 to 100 KB.
        pause: Seconds between two events.
        site: The start of the sources' URLs.
        thread: The places of the thread's id and key.
    """

    reasoning: bool = False
    suggestions: bool = True
    tool_result_bytes: int = 0
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


@frozen(kw_only=True)
class Question:
    """A question with the other fields of its request."""

    text: str
    earlier: Sequence[str] = ()  # of the thread, or of the history
    page_size: int = 5
    criteria: Mapping[str, Any] | None = None  # the request's filter
    context: Sequence[Mapping[str, Any]] = ()
    current_path: str | None = None

    @property
    def query(self) -> str:
        """The search words, from the question and from the context."""
        parts = [self.text, *(str(one["value"])[:400] for one in self.context)]
        if self.earlier and len(self.text.split()) <= 6:  # "And with a timeout?" needs the question before
            parts.append(self.earlier[-1])
        return " ".join(parts)


def answer_events(
    question: Question,
    results: Sequence[Section],
    *,
    number: int,
    style: AnswerStyle,
    thread: Mapping[str, Any],
) -> list[Event]:
    """Return the complete answer as stream events. ``finish`` gets the fields of *thread*."""
    titles: dict[str, str] = {}  # one source per page, best first
    for section in results:
        titles.setdefault(section.page.path, section.page.title)
    others = results[SECTIONS_QUOTED:][:3] if style.suggestions else ()
    content = Content(
        text="".join(_text_pieces(question, results)),
        sources=[(title, f"{style.site}{path}") for path, title in titles.items()],
        suggestions=[(section.heading, section.path) for section in others],
    )
    opening, *rest = content_events(content, number=number, thread=thread)
    return [
        opening,
        {"type": "start-step"},
        *(_reasoning_events(question, number) if style.reasoning else ()),
        *search_events(question, results, number, style),
        {"type": "finish-step"},
        *rest,
    ]


def content_events(content: Content, *, number: int, thread: Mapping[str, Any]) -> list[Event]:
    """Return an answer of one step. An error takes the place of its last event."""
    text = content.text
    if content.suggestions:  # one per line, as the service writes them
        lines = "\n".join(f"({title})[{path}]" for title, path in content.suggestions)
        text += f"\n\n```suggestions\n{lines}\n```"
    events: list[Event] = [{"type": "start", "messageId": f"msg_{number}"}, {"type": "start-step"}]
    for place, (title, address) in enumerate(content.sources, 1):
        source = {"type": "source-url", "sourceId": f"source_{number}_{place}", "url": address}
        events.append(source if title is None else {**source, "title": title})
    if text:
        events += text_events(text, number)
    if content.error is not None:
        return [*events, {"type": "error", "errorText": content.error}]
    return [*events, {"type": "finish-step"}, {"type": "finish", "finishReason": "stop", **thread}]


def _reasoning_events(question: Question, number: int) -> Iterator[Event]:
    part = f"reasoning_{number}"
    yield {"type": "reasoning-start", "id": part}
    yield {"type": "reasoning-delta", "id": part, "delta": "The documentation may say: "}
    yield {"type": "reasoning-delta", "id": part, "delta": f"searching for {question.text!r}."}
    yield {"type": "reasoning-end", "id": part}


def search_events(
    question: Question, results: Sequence[Section], number: int, style: AnswerStyle
) -> Iterator[Event]:
    """Yield the search tool's input in pieces, its complete input, and its output."""
    call = {"toolCallId": f"call_{number}", "toolName": "search"}
    arguments: Event = {"query": question.text, "pageSize": question.page_size}
    if question.criteria:
        arguments["filter"] = dict(question.criteria)
    yield {"type": "tool-input-start", **call}
    text = json.dumps(arguments, ensure_ascii=False)
    for piece in (text[start : start + 24] for start in range(0, len(text), 24)):
        yield {"type": "tool-input-delta", "toolCallId": call["toolCallId"], "inputTextDelta": piece}
    yield {"type": "tool-input-available", **call, "input": arguments}
    found = enlarge([section.to_result() for section in results], style.tool_result_bytes)
    yield {"type": "tool-output-available", "toolCallId": call["toolCallId"], "output": {"results": found}}


def enlarge(results: list[Event], at_least_bytes: int) -> list[Event]:
    """Return *results*, with the last content repeated until they are large enough."""
    missing = at_least_bytes - len(json.dumps(results))
    if missing > 0 and results:
        filler = (results[-1]["content"] or "documentation ") + "\n"
        results[-1]["content"] += filler * (missing // len(filler) + 1)
    return results


def text_events(text: str, number: int) -> Iterator[Event]:
    """Yield the text, one delta per word."""
    part = f"text_{number}"
    yield {"type": "text-start", "id": part}
    cuts = [0, *(match.start() for match in re.finditer(r"(?<=\s)\S", text)), len(text)]
    for start, end in pairwise(dict.fromkeys(cuts)):
        yield {"type": "text-delta", "id": part, "delta": text[start:end]}
    yield {"type": "text-end", "id": part}


def _text_pieces(question: Question, results: Sequence[Section]) -> Iterator[str]:
    if question.earlier:
        yield f"Earlier in this thread you asked: “{question.earlier[-1]}”.\n\n"
    if question.current_path:
        yield f"You are reading `{question.current_path}`.\n\n"
    for one in question.context:
        yield _quoted_context(one)
    if not results:
        yield f"The documentation says nothing about “{question.text}”."
        return
    for section in results[:SECTIONS_QUOTED]:
        link = f"[{section.page.title}]({section.path})"
        named = f"**{link}**" if section.heading == section.page.title else f"**{section.heading}** — {link}"
        yield f"{named}\n\n{excerpt(section.content)}\n\n"
    yield f"Found in {len(results)} section{'s' if len(results) > 1 else ''} of the documentation."


def _quoted_context(one: Mapping[str, Any]) -> str:
    kind = "code" if one["type"] == "code" else "text"
    place = f" from `{one['path']}`" if one.get("path") else ""
    return f"About the {kind} you selected{place}:\n\n```\n{str(one['value'])[:200]}\n```\n\n"


def excerpt(content: str) -> str:
    """Return the first blocks of a section. Code blocks are not split."""
    taken, size = list[str](), 0
    for block in re.findall(r"```.*?(?:```|\Z)|(?:(?!```).)+", content, re.DOTALL):
        for piece in [block] if block.startswith("```") else re.split(r"\n{2,}", block.strip("\n")):
            if taken and size + len(piece) > SECTION_CHARACTERS:
                return "\n\n".join(taken)
            if piece.strip():
                taken.append(piece.rstrip())
                size += len(piece)
    return "\n\n".join(taken)
