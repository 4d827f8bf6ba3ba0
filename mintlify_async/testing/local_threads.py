"""Thread ids and keys in; threads that remember their questions out."""

from __future__ import annotations

import secrets
from collections.abc import Collection

from attrs import define, field, frozen

from ..errors import ConfigurationError

__all__ = ["LocalThread", "ThreadBook", "ThreadStyle"]

PLACES = frozenset({"header", "finish", "metadata", "data"})


def _places(value: Collection[str]) -> frozenset[str]:
    """Check the places of an id or a key."""
    if isinstance(value, str) or not set(value) <= PLACES:
        raise ConfigurationError(f"a place is one of {sorted(PLACES)}, given as a collection", field="id_in")
    return frozenset(value)


@frozen(kw_only=True)
class ThreadStyle:
    """Where an answer names its thread, and whether the thread has a key.

    Args:
        id_in: Where the id stands: ``header`` (X-Thread-Id), ``finish`` (``threadId`` on the event),
            ``metadata`` (in its ``messageMetadata``), ``data`` (an event of its own).
        key_in: Where the key stands, once, in the first answer; the same words.
        keys: Whether later requests need the key; without it, or with a wrong one, they get 404.
    """

    id_in: frozenset[str] = field(default=frozenset({"header", "finish"}), converter=_places)
    key_in: frozenset[str] = field(default=frozenset({"header"}), converter=_places)
    keys: bool = True


@define(kw_only=True)
class LocalThread:
    """One conversation as the service keeps it.

    Attributes:
        id: Its id.
        key: Its secret; None when the service gives none.
        questions: What was asked in it, oldest first.
    """

    id: str
    key: str | None = field(repr=False)
    questions: list[str] = field(factory=list[str])


class ThreadBook(dict[str, LocalThread]):
    """Every thread of a service, by id."""

    def begin(self, *, keys: bool) -> LocalThread:
        """Begin a thread."""
        key = f"thread_key_{secrets.token_hex(12)}" if keys else None
        thread = LocalThread(id=f"thread_{len(self) + 1}", key=key)
        self[thread.id] = thread
        return thread

    def open(self, thread_id: str, key: str | None) -> LocalThread | None:
        """Return the thread, or None when there is none or the key does not fit."""
        thread = self.get(thread_id)
        if thread is None or (thread.key is not None and thread.key != key):
            return None
        return thread
