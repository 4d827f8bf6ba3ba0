"""The two keys: a string or a callable comes in; what is sent comes out, and nothing of it is ever shown."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import NoReturn

from .errors import ConfigurationError
from .protocol import Assumptions, KeyKind

__all__ = ["Key", "KeySource"]

KeySource = str | Callable[[], str | Awaitable[str]]

_ARGUMENT = {"admin": "admin_key", "assistant": "assistant_key"}
_ENVIRONMENT = {"admin": "MINTLIFY_ADMIN_API_KEY", "assistant": "MINTLIFY_ASSISTANT_API_KEY"}
_USE = {"admin": "agent jobs", "assistant": "the assistant"}


class Key:
    """One key of a session; its ``repr`` shows nothing and it cannot be pickled."""

    __slots__ = ("_assumptions", "_check_kind", "_kind", "_right", "_source")

    def __init__(
        self, kind: KeyKind, source: KeySource | None, assumptions: Assumptions, *, check_kind: bool
    ) -> None:
        """Check a key that is a string at once; one from a callable when it is used.

        Raises:
            ConfigurationError: It is no string or callable, or has characters that no header may have.
        """
        self._kind: KeyKind = kind
        self._assumptions = assumptions
        self._check_kind = check_kind
        self._source: KeySource | None = source
        self._right = ""  # the key whose kind was found right last
        if source is not None and not callable(source):
            self._check_characters(source)

    @property
    def given(self) -> bool:
        """Whether there is a key at all."""
        return self._source is not None

    @property
    def is_made(self) -> bool:
        """Whether a function of the user's makes it, which may take its time."""
        return callable(self._source)

    @property
    def at_hand(self) -> str | None:
        """The key that :meth:`reveal` would return at once, when its kind was found right; else None."""
        return self._right if self._right and self._right is self._source else None

    async def reveal(self) -> str:
        """Return the key to be sent.

        Raises:
            ConfigurationError: It is missing, of the wrong kind, or the callable returned no key.
        """
        source = self._source
        if source is None:
            raise self._error(
                f"{_ARGUMENT[self._kind]} is missing: {_USE[self._kind]} needs the {self._kind} key; "
                f"pass {_ARGUMENT[self._kind]}= or set {_ENVIRONMENT[self._kind]}"
            )
        if callable(source):
            made = source()
            value = await made if inspect.isawaitable(made) else made
            self._check_characters(value)
        else:
            value = source
        self._check_its_kind(value)
        return value

    def _check_characters(self, value: object) -> None:
        name = _ARGUMENT[self._kind]
        if not isinstance(value, str):
            raise self._error(f"{name} must be a string or return one; got {type(value).__name__}")
        if not value:
            raise self._error(f"{name} is empty; copy the key from the API keys page of the dashboard")
        if not all("!" <= character <= "~" for character in value):
            raise self._error(
                f"{name} may hold visible ASCII characters only: "
                "look for a line break or a space at its ends, or letters of another script"
            )

    def _check_its_kind(self, value: str) -> None:
        if not self._check_kind or value == self._right:
            return
        kind = self._assumptions.kind_of_key(value)
        if kind in (self._kind, "unknown"):
            self._right = value
            return
        other = "another product's key" if kind == "foreign" else f"an {kind} key"
        raise self._error(
            f"{_ARGUMENT[self._kind]} holds {other}: {_USE[self._kind]} needs the {self._kind} key "
            "(check_key_kind=False turns this check off)"
        )

    def _error(self, message: str) -> ConfigurationError:
        return ConfigurationError(message, field=_ARGUMENT[self._kind])

    def __repr__(self) -> str:
        """Show the kind and whether there is one."""
        return f"<{self._kind} key ****>" if self.given else f"<no {self._kind} key>"

    def __reduce__(self) -> NoReturn:
        """Refuse: a pickle is a place where a key gets lost."""
        raise TypeError("a key cannot be pickled; give it to the session on the other side")
