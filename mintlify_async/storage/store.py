"""Stores: small records that outlive a process, each with a version, changed by rules without I/O.

One store serves claims, conversations and quotas. A writer says on which version of a record its change is
based, so of two writers that started from the same version one succeeds.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from attrs import field, frozen

from ..errors import StateError, printable

R = TypeVar("R")


class NothingToClose:
    """A store that holds nothing open between two calls."""

    async def close(self) -> None:
        """Nothing needs to be closed; the method exists so that all stores have it. The records stay."""

    aclose = close


@frozen(kw_only=True)
class Record:
    """One record as a store returned it.

    Args:
        value: The written value.
        version: The name that its writer gave to this version.
        since: When it was written, by the store's own time, in seconds since 1970.
    """

    value: bytes = field(repr=False)  # it may contain secrets
    version: str
    since: float


@frozen(kw_only=True)
class Snapshot:
    """Some records of one moment.

    Args:
        records: The records that exist, by key.
        now: The store's own time of the moment, in seconds since 1970.
    """

    records: Mapping[str, Record]
    now: float


@frozen(kw_only=True)
class Window:
    """A limit for :meth:`Store.take`, at most *amount* slots in any *seconds*.

    Args:
        key: The log of the slots that were taken; a key like that of a record. Logs whose keys differ only
            behind the last colon have windows of one length, so that a store may delete their expired slots.
        amount: Slots in any window of time.
        seconds: The window's length.
    """

    key: str
    amount: int
    seconds: float


@frozen(kw_only=True)
class Usage:
    """How much of a window is used.

    Args:
        used: Slots that count now.
        opens_in: Seconds until a slot is free; 0 when one is.
    """

    used: int
    opens_in: float


@frozen(kw_only=True)
class TakeResult:
    """The result of :meth:`Store.take`.

    Args:
        taken: Whether the slot was taken in all windows. If not, it was taken in none.
        blocked: Seconds for which a block still refuses all slots; 0 without one.
        usage: Each window's state, after the slot was taken, in the order of the windows.
    """

    taken: bool
    blocked: float
    usage: tuple[Usage, ...]


class Store(Protocol):
    """Where records are kept: :class:`MemoryStore`, :class:`SQLiteStore`, ``RedisStore``, or one of your own.

    Keys are ``room/folder/name``. A room has no ``/`` and no braces. Records that change together have the
    same room, because a Redis cluster keeps a room on one node. A folder has no ``/``. :meth:`keys` lists a
    folder. A name is any text without NUL and lone surrogates.

    Every method is one atomic step among tasks, threads and processes. A step limits its own time, and ends
    within a second when it is cancelled. It raises :class:`~mintlify_async.errors.StateError` when the store
    cannot be used. A step that was cancelled or failed may have been done, so every step can be repeated.

    Attributes:
        keep: How long finished records are kept, in seconds, as the user chose. None keeps them for good.
            Callers pass it to :meth:`write` with the records that may expire.
    """

    keep: float | None

    async def read(self, keys: Collection[str]) -> Snapshot:
        """Return the records that exist under *keys*, all of one moment, and the store's time.

        Args:
            keys: Keys of one room.
        """
        ...

    async def write(
        self,
        changes: Mapping[str, bytes | None],
        *,
        expected: Mapping[str, str | None],
        version: str,
        keep: float | None = None,
    ) -> bool:
        """If every record still has its *expected* version, make all *changes*. Else make none.

        Args:
            changes: The new value of each record. None deletes the record. All keys are of one room.
            expected: The version that each of these records must have. None means that the record must not
                exist. May name records that are not changed.
            version: The name of the new version, unique for each write that differs; see :func:`new_version`.
            keep: How long the written records are kept, in seconds from now. None keeps them forever.
                Unchanged records in *expected* are kept as long.

        Returns:
            Whether the changes were made. True also when all written records have *version* already,
            because this write is repeated. A write that only deletes is not recognized.
        """
        ...

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that start with *prefix*, sorted.

        Args:
            prefix: ``room/folder/``, or more.
        """
        ...

    async def take(self, windows: Sequence[Window], *, slot: str | None, block: str) -> TakeResult:
        """If every window has a free slot and there is no block, take *slot* in all windows.

        Args:
            windows: The limits, whose keys are of one room.
            slot: The slot's unique name, at most 64 characters. Repeating a call whose slot was taken
                changes nothing and returns that it is taken. None takes nothing and only looks.
            block: The key of a record of the same room. As long as the record exists, nothing is taken. Write
                it with ``keep=``.
        """
        ...

    async def refund(self, windows: Sequence[Window], *, slot: str) -> None:
        """Give *slot* back in every window. If it is not taken, do nothing."""

    async def close(self) -> None:
        """Close the resources that stay open between two steps. The records stay."""


def new_version() -> str:
    """Return a random name for a version, or for a slot."""
    return secrets.token_hex(8)


Rule = Callable[[Snapshot], tuple[Mapping[str, bytes | None], R]]
"""What to change and what to return, for a snapshot. An empty mapping changes nothing."""


async def change(
    store: Store,
    keys: Collection[str],
    rule: Rule[R],
    *,
    keep: float | None = None,
    snapshot: Snapshot | None = None,
) -> R:
    """Read *keys*, change them by *rule*, and return its result. If another writer was faster, start again.

    A rule has no effects, because it may be called several times. It must accept its own result. If a change
    was made but the store's response was lost, the rule is called again with the changed records. Then it
    should change nothing and return the same result.

    Args:
        store: Where the records are.
        keys: The keys that *rule* reads and may change, of one room.
        rule: Gets a snapshot, and returns the changes and a result.
        keep: If a record of *keys* was changed: how long all of them are kept, in seconds. None keeps them
            forever.
        snapshot: What was read before. If it is no longer true, *keys* are read again.

    Raises:
        StateError: The store cannot be used. Whether a change was made is then not known.
    """
    version = new_version()
    while True:
        if snapshot is None:
            snapshot = await store.read(keys)
        changes, result = rule(snapshot)
        if not changes:
            return result
        expected = {key: _version(snapshot, key) for key in keys}
        if await store.write(changes, expected=expected, version=version, keep=keep):
            return result
        snapshot = None


def _version(snapshot: Snapshot, key: str) -> str | None:
    record = snapshot.records.get(key)
    return None if record is None else record.version


def damaged_record(place: str, key: str) -> StateError:
    """Return the error for a record in *place* that cannot be read."""
    return StateError(f"{place} has a damaged record {printable(key, 80)!r}; delete it, or restore the data")


def unknown_version(
    what: str, version: object, readable: object, *, instead: str = "another file"
) -> StateError:
    """Return the error for stored data in a form that this version of the package does not read.

    The package never guesses the form.

    Args:
        what: The kind of storage, with its file or key.
        version: The version in the data, or None.
        readable: The version that can be read.
        instead: Another way out than the package's other version.
    """
    version_text = "no format version" if version is None else f"format version {printable(str(version), 20)}"
    return StateError(
        f"{what} has {version_text}, and this version of mintlify-async reads {readable}: "
        f"use the mintlify-async that wrote it, or {instead}"
    )
