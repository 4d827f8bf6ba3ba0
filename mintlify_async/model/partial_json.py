r"""Parses JSON text that is cut off at any point, as the AI SDK 7 does.

What is open is closed, and what cannot stay (a key without its value, a trailing comma, half an
escape) is removed. With it, a tool's input is shown while it streams.

>>> parse_partial('{"query":"how to st')
{'query': 'how to st'}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

from .json_text import DecodeProblem, decode_json
from .wire_value import MISSING

_PLAIN: Final = re.compile(r'[^"\\]+')
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|[^u])", re.DOTALL)
_HALF_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_KEY: Final = re.compile(r'[^"]*"')
_VALUE_STARTS: Final = frozenset('"[{ftn-0123456789')
_RISKY: Final = re.compile(r"__proto__|constructor|\\u")
_CLOSERS: Final = {"{": "}", "[": "]"}
_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}

# States of the parser. In a container, the state says what may come next.
_OBJECT, _OBJECT_COMMA, _OBJECT_KEY, _OBJECT_COLON, _OBJECT_VALUE = "{", "{,", '{"', "{:", "{v"
_ARRAY, _ARRAY_COMMA, _ARRAY_VALUE = "[", "[,", "[v"
_ROOT, _END = "", "$"
_AFTER_VALUE: Final = {
    _ROOT: _END,
    _OBJECT_COLON: _OBJECT_VALUE,
    _ARRAY: _ARRAY_VALUE,
    _ARRAY_COMMA: _ARRAY_VALUE,
}


def parse_partial(text: str) -> Any:
    """Return the value of *text*, repaired if it must be; ``MISSING`` if that gives no value either."""
    for candidate in (text, None):
        try:
            content = decode_json(_repair(text) if candidate is None else candidate)
        except DecodeProblem:
            continue
        if not _RISKY.search(text) or not _refused(content):
            return content
    return MISSING


def _refused(content: Any) -> bool:
    """Return whether JavaScript refuses *content* for its keys: ``__proto__``, ``constructor.prototype``."""
    if isinstance(content, list):
        return any(map(_refused, cast("Sequence[Any]", content)))
    if not isinstance(content, dict):
        return False
    inside = cast("dict[str, Any]", content)
    constructor = inside.get("constructor")
    if "__proto__" in inside or (isinstance(constructor, dict) and "prototype" in constructor):
        return True
    return any(map(_refused, inside.values()))


def _repair(text: str) -> str:
    """Return *text* up to the last character that can stay, with everything that is open closed."""
    repair = _Repair(text)
    at = 0
    while at < len(text):
        at = repair.step(at)
    return repair.result()


class _Repair:
    """One pass over the text, with the open containers on a stack."""

    __slots__ = ("ending", "keep", "stack", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.keep = 0  # how many characters can stay
        self.stack = [_ROOT]
        self.ending = ""  # completes a string or literal that is open at the end

    def step(self, at: int) -> int:
        """Consume the token at *at* and return where it ends."""
        state = self.stack[-1]
        char = self.text[at]
        if state in _AFTER_VALUE:
            if state == _ARRAY and char == "]":
                return self.close(at)
            return self.value(at, char) if char in _VALUE_STARTS else at + 1
        if state in (_OBJECT_VALUE, _ARRAY_VALUE):
            return self.after_value(at)
        if state == _OBJECT_KEY:
            if char == ":":
                self.stack[-1] = _OBJECT_COLON
            return at + 1
        if state == _END:
            return len(self.text)
        return self.key(at, char, state)

    def key(self, at: int, char: str, state: str) -> int:
        """Consume what may stand where a key may begin."""
        if char == "}" and state == _OBJECT:
            return self.close(at)
        if char != '"':
            return at + 1
        self.stack[-1] = _OBJECT_KEY
        key = _KEY.match(self.text, at + 1)
        return key.end() if key else len(self.text)

    def after_value(self, at: int) -> int:
        """Consume what may stand after a value in a container."""
        char, state = self.text[at], self.stack[-1]
        in_array = state == _ARRAY_VALUE
        if char == ",":
            self.stack[-1] = _ARRAY_COMMA if in_array else _OBJECT_COMMA
        elif char == ("]" if in_array else "}"):
            return self.close(at)
        elif in_array:
            self.keep = at + 1
        return at + 1

    def close(self, at: int) -> int:
        """End the innermost container with the character at *at*."""
        self.stack.pop()
        self.keep = at + 1
        return at + 1

    def value(self, at: int, char: str) -> int:
        """Consume the value that begins at *at*: all of it, or an opening bracket."""
        self.stack[-1] = _AFTER_VALUE[self.stack[-1]]
        if char in "{[":
            self.stack.append(char)
            self.keep = at + 1
            return at + 1
        if char == '"':
            return self.string(at)
        if char in _LITERALS:
            return self.literal(at)
        return self.number(at)

    def string(self, at: int) -> int:
        """Consume a string; half an escape at the end of the text cannot stay."""
        self.keep = at = at + 1
        text = self.text
        while at < len(text):
            if text[at] == '"':
                self.keep = at + 1
                return at + 1
            if text[at] != "\\":
                at = _PLAIN.match(text, at).end()  # type: ignore[union-attr]  # pyright: ignore - it is there
            elif _HALF_ESCAPE.match(text, at):
                self.keep = at
                break
            else:
                escape = _ESCAPE.match(text, at)
                at = escape.end() if escape else at + 2
            self.keep = at
        self.ending = '"'
        return len(text)

    def literal(self, at: int) -> int:
        """Consume true, false or null, or the beginning of it."""
        word, start = _LITERALS[self.text[at]], at
        while at < len(self.text) and word.startswith(self.text[start : at + 1]):
            at += 1
        self.keep = at
        if at == len(self.text):
            self.ending = word[at - start :]
        return self.after_scalar(at)

    def number(self, at: int) -> int:
        """Consume a number: digits can stay; a sign, a point or an exponent only if digits follow."""
        text = self.text
        while at < len(text):
            if "0" <= text[at] <= "9":
                self.keep = at + 1
            elif text[at] not in "eE-.":
                break
            at += 1
        return self.after_scalar(at)

    def after_scalar(self, at: int) -> int:
        """Skip the character that ended a number or a literal, unless it means something to the container."""
        closer = "]" if self.stack[-1] == _ARRAY_VALUE else "}"
        return at if self.text[at : at + 1] in ("", ",", closer) else at + 1

    def result(self) -> str:
        """Return the text that can stay, with everything closed."""
        closers = "".join(_CLOSERS.get(state[:1], "") for state in reversed(self.stack))
        return self.text[: self.keep] + self.ending + closers
