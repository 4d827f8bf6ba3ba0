"""The admin key and the assistant key of a session: a string, or a function that returns one per request.

No ``repr``, error, traceback or pickle shows a key: it is a :class:`Secret` as soon as it is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import NoReturn

from ..errors import ConfigurationError
from .assumptions import Assumptions
from .requests import KeyKind
from .secret import Secret, hidden

__all__ = ["Key", "KeySource"]

KeySource = str | Callable[[], str | Awaitable[str]]

_ARGUMENT = {"admin": "admin_key", "assistant": "assistant_key"}
_ENVIRONMENT = {"admin": "MINTLIFY_ADMIN_API_KEY", "assistant": "MINTLIFY_ASSISTANT_API_KEY"}
_USE = {"admin": "agent jobs", "assistant": "the assistant"}


class Key:
    """One key of a session."""

    __slots__ = ("_assumptions", "_check_kind", "_checked", "_kind", "_source")

    def __init__(
        self, kind: KeyKind, source: KeySource | None, assumptions: Assumptions, *, check_kind: bool
    ) -> None:
        """Check a string at once; what a function returns is checked when it is used.

        Raises:
            ConfigurationError: It is neither a string nor a function, or has characters that are not
                allowed in a header.
        """
        source = hidden(source)
        self._kind: KeyKind = kind
        self._assumptions = assumptions
        self._check_kind = check_kind
        self._source: KeySource | None = source
        self._checked = Secret()  # the last key whose kind was right
        if source is not None and not callable(source):
            self._check_characters(source)

    @property
    def given(self) -> bool:
        """Whether there is a key at all."""
        return self._source is not None

    @property
    def is_made(self) -> bool:
        """Whether a function of the user makes it, which may take time."""
        return callable(self._source)

    @property
    def at_hand(self) -> Secret | None:
        """The key that :meth:`reveal` would return at once, if its kind was checked; else None."""
        return self._checked if self._checked and self._checked is self._source else None

    async def reveal(self) -> Secret:
        """Return the key to be sent.

        Raises:
            ConfigurationError: It is missing or of the wrong kind, or the function returned no key.
        """
        source = self._source
        if source is None:
            raise self._error(
                f"{_ARGUMENT[self._kind]} is missing: {_USE[self._kind]} needs the {self._kind} key; "
                f"pass {_ARGUMENT[self._kind]}= or set {_ENVIRONMENT[self._kind]}"
            )
        value: object = source
        if callable(source):
            value = hidden(source())
            if inspect.isawaitable(value):
                value = hidden(await value)
        key = self._check_characters(value)
        self._check_its_kind(key)
        return key

    def _check_characters(self, value: object) -> Secret:
        name = _ARGUMENT[self._kind]
        if not isinstance(value, Secret):
            raise self._error(f"{name} must be a string or return one; got {type(value).__name__}")
        if not value:
            raise self._error(f"{name} is empty; copy the key from the API keys page of the dashboard")
        if not all("!" <= character <= "~" for character in value):
            raise self._error(
                f"{name} may hold visible ASCII characters only: "
                "look for a line break or a space at its ends, or letters of another script"
            )
        return value

    def _check_its_kind(self, value: Secret) -> None:
        if not self._check_kind or value == self._checked:
            return
        kind = self._assumptions.kind_of_key(value)
        if kind in (self._kind, "unknown"):
            self._checked = value
            return
        other = "another product's key" if kind == "foreign" else f"an {kind} key"
        raise self._error(
            f"{_ARGUMENT[self._kind]} holds {other}: {_USE[self._kind]} needs the {self._kind} key "
            "(check_key_kind=False turns this check off)"
        )

    def _error(self, message: str) -> ConfigurationError:
        return ConfigurationError(message, field=_ARGUMENT[self._kind])

    def __repr__(self) -> str:
        """Show the kind, and whether there is a key."""
        return f"<{self._kind} key ****>" if self.given else f"<no {self._kind} key>"

    def __reduce__(self) -> NoReturn:
        """Refuse: a pickle would hold the key in plain text."""
        raise TypeError("a key cannot be pickled; give it to the session on the other side")
