"""Markdown of complete answers: text, sources and suggestions as lists, and escaping of titles. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from ..argument_checks import check_site
from ..messages import Message
from .finding_sources import AnswerSource, sources_of
from .readable_text import text_after
from .suggestions import suggestions_of


class HasAnswer(Protocol):
    """An answer, a reply, or any other object with an answer's message."""

    @property
    def message(self) -> Message | None:
        """The answer as a message, or None."""
        ...

    @property
    def site(self) -> str | None:
        """The site URL, or None."""
        ...


def answer_markdown(answer: HasAnswer | Message, *, site: str | None = None) -> str:
    """Return a complete answer as plain Markdown: its text, then its sources and suggestions as lists.

    Args:
        answer: An answer, a reply, or an assistant's message.
        site: The site URL, such as ``https://docs.acme.com``. Default: the session's ``site``. With it, paths
            in the answer become full URLs.

    Raises:
        ConfigurationError: *site* is not a full URL.

    Example::

        await channel.send(answer_markdown(answer))
    """
    message, site = _message(answer, site)
    earlier = getattr(answer, "earlier_text", "")
    text = text_after(earlier, message, site) if message is not None else earlier
    return "\n\n".join(filter(None, (text, extras_markdown(answer, site=site))))


def extras_markdown(
    answer: HasAnswer | Message,
    *,
    site: str | None = None,
    sources: str | None = "Sources",
    suggestions: str | None = "See also",
) -> str:
    """Return an answer's sources and suggestions as plain Markdown lists, or an empty text.

    Titles are shown as the service sent them. Markdown's marks in a title are escaped.

    Args:
        answer: An answer, a reply, or an assistant's message.
        site: The site URL. Default: the session's ``site``. With it, paths become full URLs.
        sources: The heading of the sources. None leaves them out.
        suggestions: The heading of the suggestions. None leaves them out.

    Raises:
        ConfigurationError: *site* is not a full URL.
    """
    message, site = _message(answer, site)
    if message is None:
        return ""
    blocks: list[str] = []
    if sources is not None:
        blocks.append(_list(sources, _sources(sources_of(message, site=site))))
    if suggestions is not None:
        suggested = suggestions_of(message, site=site)
        blocks.append(_list(suggestions, (f"- {_link(one.title, one.path)}" for one in suggested)))
    return "\n\n".join(filter(None, blocks))


def _message(answer: HasAnswer | Message, site: str | None) -> tuple[Message | None, str | None]:
    """Return the message and its checked site URL."""
    site = check_site(site)
    if isinstance(answer, Message):
        return answer, site
    return answer.message, site if site is not None else answer.site


def _list(words: str, items: Iterable[str]) -> str:
    lines = list(items)
    return "\n".join([f"**{words}**", "", *lines]) if lines else ""


def _sources(sources: Iterable[AnswerSource]) -> Iterator[str]:
    """Yield one line for each page, and below it one line for each of its sections."""
    for source in sources:
        title = source.title or source.filename or source.url or "a document"
        yield f"- {_link(title, source.url)}"
        for section in source.sections:
            yield f"  - {_link(section.title or '', section.url)}"


def _link(title: str, url: str | None) -> str:
    return f"[{_plain(title)}]({_address(url)})" if url else _MARK_AT_START.sub(r"\1\\", _plain(title))


_ENTITY: Final = r"&(?=#?\w+;)"
_SPECIAL: Final = re.compile(rf"([\\`*_~\[\]<>]|{_ENTITY})")
_MARK_AT_START: Final = re.compile(r"^(?=[-+#]|[0-9]{1,9}[.)])([0-9]*)")  # of a list, a heading or a rule
_UNSAFE: Final = re.compile(r"[\s()<>\\\x00-\x1f\x7f]")


def _plain(text: str) -> str:
    """Return *text* in one line, with Markdown's special characters escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _address(url: str) -> str:
    """Return *url* with percent-encoding for characters that would end a Markdown link, or escape others."""
    encoded = _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), url)
    return re.sub(_ENTITY, r"\\&", encoded)
