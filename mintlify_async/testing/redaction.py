"""Replaces text in recorded requests and responses, so that no private text is left and no length changes.

Letters and digits become ``x``. A character of several bytes becomes another with the same number of bytes.
An escape sequence becomes another of the same length. Field names, types, states, ids and punctuation stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from attrs import define

from ..assistant.event_stream import DONE

_KEPT_FIELDS: Final = frozenset(
    {
        *("type", "id", "role", "state", "status", "createdAt", "archivedAt", "finishReason", "mediaType"),
        *("messageId", "toolCallId", "toolName", "sourceId", "approvalId", "threadId", "inputEncoding"),
    }
)
"""Fields of the API's objects whose text is kept, because it is an id or a value that the API defines."""

_STRUCTURE: Final = frozenset({"messages", "parts"})
"""Fields that contain objects of the interface. All content below other fields is the user's."""

_KEPT_EVERYWHERE: Final = frozenset({"threadId"})
_SECRET_FIELD: Final = "threadKey"
_FIELD_NAME: Final = re.compile(r"[a-z_][A-Za-z0-9_]{0,39}")

_KEPT_HEADERS: Final = re.compile(
    r"accept|accept-encoding|age|cache-control|cf-ray|connection|content-(encoding|length|type)|date|deprecation"
    r"|retry-after(-ms)?|server|sunset|transfer-encoding|user-agent|vary|via|x-accel-buffering|x-thread-id"
    r"|(x-)?rate-?limit.*|x-vercel-(id|ai-.*)|.*(request|trace|correlation)-?id"
)
_SECRET_HEADER: Final = re.compile(r"authorization|cookie|key|token|secret|password|credential")
_SHORTEST_SECRET: Final = 8
"""A shorter secret may be part of other words, so it is replaced only in its own field."""

_KEPT_MEMBERS: Final = rf"""(?P<kept>(?:"(?:{"|".join(sorted(_KEPT_FIELDS))})":[ ]?"[^"\\]*+",[ ]?)++)"""
"""A run of fields whose text is kept. The run is one token, because most text of events has this form."""

_ONE_TOKEN: Final = (
    r'"(?P<text>[^"\\]*+(?:\\.[^"\\]*+)*+)"?'
    r"|(?P<mark>[][{}:,])"
    r"|(?P<word>(?:true|false|null|NaN|-?Infinity)\b)"
    r"|(?P<other>[^]\"[{}:,]+?(?=true|false|null|NaN|Infinity|[]\"[{}:,]|\Z))"
)
_SINGLE_TOKEN: Final = re.compile(_ONE_TOKEN, re.DOTALL)
_TOKEN: Final = re.compile(f"{_KEPT_MEMBERS}|{_ONE_TOKEN}", re.DOTALL)
_NO_NUMBER: Final = re.compile(r"[^\W0-9eE]")
_DIGIT: Final = re.compile("[0-9]")
_CODE: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_ESCAPE: Final = re.compile(r"(\\(?:u[0-9a-fA-F]{0,4}|.))", re.DOTALL)
_LINE: Final = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
_SSE_FIELD: Final = re.compile(r"(data|event|id|retry)?:[ ]?")
_KEY_IN_TEXT: Final = re.compile(r"""threadKey(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?([^"'\\\s,}&]+)""")
# A key starts a word. After a JSON escape such as \\n, the letter n is not part of the word.
_KEY_OF_SERVICE: Final = re.compile(
    r"(?:\b|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4}))mint_[A-Za-z0-9_-]+"
)  # assumption: key prefixes
_V4_LINE: Final = re.compile(r'[0-9a-k]:(?=["\[{])')


SLICE: Final = 65_536
"""Number of characters that are replaced in one step."""


class _Others(dict[int, str]):
    """Maps each character to its replacement, for ``str.translate``."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        plain = "x" if character.isalnum() else character
        other = plain if code < 128 else _other_character(character)
        self[code] = other
        return other


_OTHERS: Final = _Others()


def redact_text(text: str) -> str:
    """Return *text* with letters and digits replaced. The number of bytes stays the same."""
    if "\\" not in text:
        return _translated(text)
    pieces = _ESCAPE.split(text)  # text, escape, text, …
    pieces[::2] = map(_translated, pieces[::2])
    pieces[1::2] = map(_other_escape, pieces[1::2])
    return "".join(pieces)


def _translated(text: str) -> str:
    if len(text) <= SLICE:
        return text.translate(_OTHERS)
    # In slices, because other threads cannot run while Python translates a text.
    return "".join(text[at : at + SLICE].translate(_OTHERS) for at in range(0, len(text), SLICE))


@lru_cache(maxsize=1024)
def _other_escape(escape: str) -> str:
    code = _CODE.fullmatch(escape)
    if code is None:
        return escape if escape.isascii() else escape.translate(_OTHERS)
    value = int(code[1], 16)
    if value < 0x20 or 0xD800 <= value < 0xE000:  # a control character or a lone surrogate
        return escape if value < 0x20 else r"\ud83d" if value < 0xDC00 else r"\ude00"
    return r"\u0078" if value < 0x80 else r"\u00e9"


def _other_character(character: str) -> str:
    """Return another character with the same number of bytes in UTF-8."""
    size = len(character.encode("utf-8", "surrogateescape"))
    if size == 1:
        return "\udcff"  # a byte that is not UTF-8
    return "é" if size == 2 else "…" if size == 3 else "😀"


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))


@define
class _Level:
    """An open object or array. It has the name of the next field, and whether the API defines the object."""

    is_object: bool
    ours: bool
    name: str = ""
    awaits_name: bool = True


class _JsonRedactor:
    """Redacts JSON text, one token at a time. The text may be cut or invalid."""

    def __init__(self, keep_text: bool) -> None:
        self._keep_text = keep_text
        self.reset()

    def reset(self) -> None:
        """Start a new text."""
        self._levels = [_Level(is_object=False, ours=True)]

    def feed(self, text: str) -> str:
        """Return the next piece of the text, redacted."""
        return "".join(map(self._token, _TOKEN.finditer(text)))

    def _token(self, found: re.Match[str]) -> str:
        kind, token = found.lastgroup, found[0]
        if kind == "mark":
            self._mark(token)
        elif kind == "kept":
            level = self._levels[-1]
            if not (level.ours and level.is_object and level.awaits_name):
                return "".join(map(self._token, _SINGLE_TOKEN.finditer(token)))
            level.name = token.rsplit('"', 4)[1]  # the name of the last field
        elif kind == "text":
            text = found["text"]
            if not self._shows(text, self._levels[-1]):
                return f'"{redact_text(text)}{token[len(text) + 1 :]}'
        elif kind == "other" and not self._keep_text:
            if _NO_NUMBER.search(token):
                return redact_text(token)
            return token if self._levels[-1].ours else _DIGIT.sub("1", token)
        return token

    def _shows(self, text: str, level: _Level) -> bool:
        """Return whether a string, which is a field name or a value, is kept."""
        if level.is_object and level.awaits_name:
            level.name = _CODE.sub(_unescaped, text) if "\\" in text else text
            return self._keep_text or _FIELD_NAME.fullmatch(level.name) is not None
        if level.name == _SECRET_FIELD:
            return False
        ours = level.ours and level.name in _KEPT_FIELDS
        return self._keep_text or ours or level.name in _KEPT_EVERYWHERE

    def _mark(self, mark: str) -> None:
        level = self._levels[-1]
        if mark in "{[":
            ours = level.ours and (level.name in _STRUCTURE or not (level.name or level.is_object))
            self._levels.append(_Level(mark == "{", ours, "" if mark == "{" else level.name))
        elif mark in "}]":
            if len(self._levels) > 1:
                self._levels.pop()
        elif level.is_object:
            level.awaits_name = mark == ","


@define
class BodyRedactor:
    """Redacts bodies of JSON, server-sent events, web pages and plain text. They may be cut.

    Args:
        keep_text: Whether to replace only the secrets.
        secrets: Keys to replace everywhere.
    """

    keep_text: bool
    secrets: Iterable[str] = ()

    def redact(self, body: bytes) -> bytes:
        """Return *body* with secrets, and without *keep_text* also text, replaced at the same length."""
        text = body.decode("utf-8", "surrogateescape")
        text = hide(text, self.secrets)
        mark, text = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
        json = _JsonRedactor(self.keep_text)
        if text.lstrip()[:1] in ("{", "["):
            return _encoded(mark + json.feed(text))
        # The data of an event may have several lines, which are one JSON text. A blank line ends the event.
        # Line by line, because other threads cannot run while a long text is split.
        lines = _LINE.finditer(text)
        return _encoded(mark + "".join([self._line(json, line[1]) + line[2] for line in lines]))

    def _line(self, json: _JsonRedactor, line: str) -> str:
        if not line:
            json.reset()
            return line
        opening = _SSE_FIELD.match(line) or _V4_LINE.match(line)
        start = opening.end() if opening else 0
        head, rest = line[:start], line[start:]
        if rest == DONE:
            return line
        if opening and (opening[0].startswith("data") or _V4_LINE.match(line)):
            return head + json.feed(rest)
        return line if self.keep_text else head + redact_text(rest)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def secrets_in(headers: Mapping[str, str], body: bytes) -> set[str]:
    """Return the values of secret headers and the threads' keys in a request or a response."""
    candidates = set(_KEY_IN_TEXT.findall(body.decode("utf-8", "surrogateescape")))
    for name, value in headers.items():
        if "cookie" in name.lower():
            candidates.update(pair.partition("=")[2].strip() for pair in value.split(";"))
        elif _SECRET_HEADER.search(name.lower()):
            candidates.update(value.split())
    candidates.update([quote(secret, safe="") for secret in candidates])  # in the form for a URL
    return {secret for secret in candidates if len(secret) >= _SHORTEST_SECRET}


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return *text* with secrets, and words that start like keys, replaced by texts of equal length."""
    for secret in secrets:
        text = text.replace(secret, "x" * len(secret))
    if "mint_" not in text:
        return text
    return _KEY_OF_SERVICE.sub(lambda found: "x" * len(found[0]), text)


def redact_header(name: str, value: str, *, keep_text: bool) -> str:
    """Return the header's value. With *keep_text*, or in a header of the protocol, only keys are replaced."""
    name = name.lower()
    if _SECRET_HEADER.search(name):
        return re.sub("[^ ]", "x", value)
    return value if keep_text or _KEPT_HEADERS.fullmatch(name) else redact_text(value)


def redact_path(path: str, route: str, *, keep_text: bool) -> str:
    """Replace the placeholders' values in *path*, except the job's id.

    If *path* and *route* have different numbers of segments, redact the complete path.
    """
    if keep_text:
        return path
    steps, places = path.split("/"), route.split("/")
    if len(steps) != len(places):
        return redact_text(path)
    return "/".join(
        redact_text(step) if place.startswith("{") and place != "{job_id}" else step
        for step, place in zip(steps, places, strict=True)
    )
