"""The admin key and the assistant key of a session. A key is a string, or a function that returns one.

No ``repr``, error, traceback or pickle shows a key, because each key becomes a ``Secret`` immediately. The
keys of threads are also Secrets.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import NoReturn

from ..argument_checks import copying_slip
from ..errors import ConfigurationError
from ..model.operation import KeyKind
from ..model.secret import Secret, hidden, type_name
from .paths_and_headers import Assumptions

KeySource = str | Callable[[], str | Awaitable[str]]

KEY_VARIABLES = {"admin": "MINTLIFY_ADMIN_API_KEY", "assistant": "MINTLIFY_ASSISTANT_API_KEY"}

_NEED = {"admin": "agent jobs need the admin key", "assistant": "the assistant needs the assistant key"}
_VISIBLE = re.compile("[!-~]+")  # ASCII


def kind_in_words(kind: str) -> str:
    """Return a description of a kind of key. ``Assumptions.kind_of_key`` returns the kind."""
    words = {
        "foreign": "another product's key",
        "widget": "the id of a web widget, which is public and no key",
        "unknown": "a key whose prefix is not known",
    }
    return words.get(kind) or f"an {kind} key"


class Key:
    """One key of a session. A string is checked immediately, and a function's result on each use.

    Args:
        kind: The kind of the key.
        source: The key, or the function that returns it, or None.
        assumptions: The prefixes of keys.
        hint: Additional text for the error if the key is missing.

    Raises:
        ConfigurationError: *source* is neither a string nor a function, or contains characters that are not
            allowed in a header.
    """

    def __init__(
        self, kind: KeyKind, source: KeySource | None, assumptions: Assumptions, *, hint: str = ""
    ) -> None:
        source = hidden(source)  # a traceback can show the locals of a frame
        self.kind: KeyKind = kind
        self._source: KeySource | None = source
        self._assumptions = assumptions
        self._hint = hint
        self._value: Secret | None = None  # the string, after its check
        if source is not None and not callable(source):
            self._check_characters(source)

    @property
    def given(self) -> bool:
        """Whether there is a key."""
        return self._source is not None

    def replaced(self, source: KeySource | None) -> Key:
        """Return the same kind of key from another *source*."""
        return Key(self.kind, source, self._assumptions)

    def check(self) -> Secret | None:
        """Return the key if it is a string of the right kind. A function is not called and gives None.

        Raises:
            ConfigurationError: The key is missing or of the wrong kind.
        """
        if self._source is None:
            variable = KEY_VARIABLES[self.kind]
            raise self._error(
                f"is missing: {_NEED[self.kind]}; pass {self.kind}_key= or set {variable}{self._hint}"
            )
        if callable(self._source):
            return None
        if self._value is None:
            self._value = self._check_value(self._source)
        return self._value

    async def reveal(self) -> Secret:
        """Return the key to send.

        Raises:
            ConfigurationError: The key is missing or of the wrong kind, or the function returned no key.
        """
        key = self.check()
        if key is not None:
            return key
        assert callable(self._source)
        value: object = hidden(self._source())
        return self._check_value(hidden(await value) if inspect.isawaitable(value) else value)

    def _check_value(self, value: object) -> Secret:
        """Return *value* if it is a key of this kind."""
        key = self._check_characters(value)
        kind, assumptions = self._assumptions.kind_of_key(key), self._assumptions
        prefix = assumptions.admin_key_prefix if self.kind == "admin" else assumptions.assistant_key_prefix
        if kind in (self.kind, "unknown") or not prefix:
            return key
        raise self._error(
            f"holds {kind_in_words(kind)}: {_NEED[self.kind]}, "
            f"in {self.kind}_key= or {KEY_VARIABLES[self.kind]}"
        )

    def _check_characters(self, value: object) -> Secret:
        if not isinstance(value, Secret):
            raise self._error(f"must be a string or return one; got {type_name(value)}")
        if not value.strip():
            raise self._error("is empty; copy the key from the API keys page of the dashboard")
        if slip := copying_slip(value):
            raise self._error(slip)
        if value.lower().startswith("bearer "):
            raise self._error("begins with the word Bearer, which the package adds; leave it out")
        if not _VISIBLE.fullmatch(value):
            raise self._error(
                "may contain only visible ASCII characters: "
                "look for blanks and line breaks in it, or letters of another script"
            )
        return value

    def _error(self, problem: str) -> ConfigurationError:
        name = f"{self.kind}_key"
        return ConfigurationError(f"{name} {problem}", field=name)

    def __repr__(self) -> str:
        return f"<{self.kind} key ****>" if self.given else f"<no {self.kind} key>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key cannot be pickled; give it to the session in the other process")
