"""The admin key and the assistant key of a session: a string, or a function that returns one per request.

No ``repr``, error, traceback or pickle shows a key: it is a :class:`Secret` as soon as it is given.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from typing import NoReturn

from ..errors import ConfigurationError
from .argument_checks import copying_slip
from .assumptions import Assumptions
from .calls import KeyKind
from .secret import Secret, hidden

__all__ = ["KEY_VARIABLES", "SHARED_VARIABLE", "Key", "KeyKind", "KeySource", "kind_in_words", "shared_key"]

KeySource = str | Callable[[], str | Awaitable[str]]

_ARGUMENT = {"admin": "admin_key", "assistant": "assistant_key"}
KEY_VARIABLES = {"admin": "MINTLIFY_ADMIN_API_KEY", "assistant": "MINTLIFY_ASSISTANT_API_KEY"}
SHARED_VARIABLE = "MINTLIFY_API_KEY"
"""Other programs' name for either key: its prefix says which of the two it holds."""

_NEED = {"admin": "agent jobs need", "assistant": "the assistant needs"}


def kind_in_words(kind: str) -> str:
    """Return a kind of key, as ``Assumptions.kind_of_key`` names it, in words."""
    words = {"foreign": "another product's key", "unknown": "a key whose prefix is not known"}
    return words.get(kind) or f"an {kind} key"


def shared_key(assumptions: Assumptions) -> tuple[Secret, str, str]:
    """Return ``MINTLIFY_API_KEY``, the kind of key that it is, and what to say where a key is missing."""
    key = Secret(os.environ.get(SHARED_VARIABLE, ""))
    # Blanks and quotation marks around it are an error of the key that it holds, not another key.
    kind = assumptions.kind_of_key(key.strip(" \t\r\n\"'"))
    return key, kind, f"; {SHARED_VARIABLE} holds {kind_in_words(kind)}" if key.strip() else ""


class Key:
    """One key of a session. A string is checked immediately. The result of a function is checked when used.

    Args:
        kind: Which key it is.
        source: The key, or the function that makes it, or None.
        assumptions: How keys begin.
        hint: What else to say when the key is missing.

    Raises:
        ConfigurationError: It is neither a string nor a function, or has characters that are not allowed
            in a header.
    """

    __slots__ = ("_assumptions", "_checked", "_hint", "_kind", "_source")

    def __init__(
        self,
        kind: KeyKind,
        source: KeySource | None,
        assumptions: Assumptions,
        *,
        hint: str = "",
    ) -> None:
        source = hidden(source)
        self._kind: KeyKind = kind
        self._assumptions = assumptions
        self._hint = hint
        self._source: KeySource | None = source
        self._checked = Secret()  # the last key whose kind was right
        if source is not None and not callable(source):
            self._check_characters(source)

    @property
    def given(self) -> bool:
        """Whether there is a key at all."""
        return self._source is not None

    def replaced(self, source: KeySource | None) -> Key:
        """Return the same kind of key from another *source*."""
        return Key(self._kind, hidden(source), self._assumptions)

    def check(self) -> Secret | None:
        """Return the key when it is a string of the right kind, and None for a function; calls nothing.

        Raises:
            ConfigurationError: It is missing or of the wrong kind.
        """
        if self._source is None:
            name = _ARGUMENT[self._kind]
            raise self._error(
                f"{name} is missing: {_NEED[self._kind]} the {self._kind} key; "
                f"pass {name}= or set {KEY_VARIABLES[self._kind]}{self._hint}"
            )
        return None if callable(self._source) else self._check_kind_of(self._source)

    async def reveal(self) -> Secret:
        """Return the key to be sent.

        Raises:
            ConfigurationError: It is missing or of the wrong kind, or the function returned no key.
        """
        source = self._source
        if not callable(source):
            key = self.check()
            assert key is not None
            return key
        value: object = hidden(source())
        if inspect.isawaitable(value):
            value = hidden(await value)
        return self._check_kind_of(value)

    def _check_characters(self, value: object) -> Secret:
        name = _ARGUMENT[self._kind]
        if not isinstance(value, Secret):
            raise self._error(f"{name} must be a string or return one; got {type(value).__name__}")
        if not value.strip():
            raise self._error(f"{name} is empty; copy the key from the API keys page of the dashboard")
        if slip := copying_slip(value):
            raise self._error(f"{name} {slip}")
        if value.lower().startswith("bearer "):
            raise self._error(f"{name} begins with the word Bearer, which the package adds; leave it out")
        if not all("!" <= character <= "~" for character in value):
            raise self._error(
                f"{name} may hold visible ASCII characters only: "
                "look for blanks and line breaks in it, or letters of another script"
            )
        return value

    def _check_kind_of(self, value: object) -> Secret:
        if self._checked and value == self._checked:
            return self._checked
        key = self._check_characters(value)
        prefixes = {"admin": self._assumptions.admin_key_prefix}
        if not prefixes.get(self._kind, self._assumptions.assistant_key_prefix):
            return key
        kind = self._assumptions.kind_of_key(key)
        if kind in (self._kind, "unknown"):
            self._checked = key
            return key
        name = _ARGUMENT[self._kind]
        raise self._error(
            f"{name} holds {kind_in_words(kind)}: {_NEED[self._kind]} the {self._kind} key, "
            f"in {name}= or {KEY_VARIABLES[self._kind]}"
        )

    def _error(self, message: str) -> ConfigurationError:
        return ConfigurationError(message, field=_ARGUMENT[self._kind])

    def __repr__(self) -> str:
        return f"<{self._kind} key ****>" if self.given else f"<no {self._kind} key>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key cannot be pickled; give it to the session in the other process")
