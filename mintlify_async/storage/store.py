"""Stores: small records that outlive a process. Each has a version, and rules without I/O change it.

One store serves claims, conversations and quotas. A writer names the version of each record that its change
is based on. So if two writers start from the same version, one succeeds.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from attrs import field, frozen

from ..errors import StateError, printable

R = TypeVar("R")


class NothingToClose:
    """A store that keeps no resources open between two calls."""

    async def close(self) -> None:
        """Do nothing. The method exists because all stores have it. The records stay."""

    aclose = close


@frozen(kw_only=True)
class Record:
    """One record, as a store returned it.

    Args:
        value: The written value.
        version: The name of this version, which its writer chose.
        since: When the record was written, by the store's time, in seconds since 1970.
    """

    value: bytes = field(repr=False)  # it may contain secrets
    version: str
    since: float


@frozen(kw_only=True)
class Snapshot:
    """Some records at one moment.

    Args:
        records: The records that exist, by key.
        now: The store's time at this moment, in seconds since 1970.
    """

    records: Mapping[str, Record]
    now: float


@frozen(kw_only=True)
class Window:
    """A limit for :meth:`Store.take`: at most *amount* slots within *seconds*.

    Args:
        key: The key of the log of taken slots. It has the form of a record's key. Logs whose keys differ only
            after the last colon have windows of the same length, so a store may delete their expired slots.
        amount: Maximum number of slots in any window of time.
        seconds: The length of the window, in seconds.
    """

    key: str
    amount: int
    seconds: float


@frozen(kw_only=True)
class Usage:
    """The use of a window.

    Args:
        used: The number of slots that count now.
        opens_in: Seconds until a slot is free; 0 if a slot is free now.
    """

    used: int
    opens_in: float


@frozen(kw_only=True)
class TakeResult:
    """The result of :meth:`Store.take`.

    Args:
        taken: Whether the slot was taken in all windows. If not, it was taken in no window.
        blocked: Seconds for which a block refuses all slots; 0 without a block.
        usage: The use of each window after the call, in the order of the windows.
    """

    taken: bool
    blocked: float
    usage: tuple[Usage, ...]


class Store(Protocol):
    """A place for records: one of the package's four stores, or your own, which ``StoreCases`` tests.

    The package has :class:`MemoryStore`, :class:`SQLiteStore`, ``PostgresStore`` and ``RedisStore``.

    Keys have the form ``room/folder/name``. A room has no ``/`` and no braces. Records that change together
    have the same room, because a Redis cluster keeps a room on one node. A folder has no ``/``. :meth:`keys`
    lists a folder. A name is any text without NUL and lone surrogates.

    Every method is one atomic step for tasks, threads and processes. A step limits its own time, and ends
    within a second if it is cancelled. It raises :class:`~mintlify_async.errors.StateError` if the store
    cannot be used. A cancelled or failed step may have changed the records. So callers may repeat a
    step, and a repeated step must do no harm.

    Attributes:
        keep: Seconds for which finished records are kept, as the user chose. None keeps them without limit.
            Callers pass it to :meth:`write` with records that may expire.
    """

    keep: float | None

    async def read(self, keys: Collection[str]) -> Snapshot:
        """Return the existing records of *keys*, all at one moment, and the store's time.

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
        """If every record still has its *expected* version, make all *changes*. Otherwise make none.

        Args:
            changes: The new value of each record. None deletes the record. All keys have the same room.
            expected: The version that each of these records must have. None means that the record must not
                exist. *expected* may also name records that are not changed.
            version: The name of the new version, unique for each different write; see :func:`new_version`.
            keep: Seconds from now for which the written records are kept. None keeps them without limit.
                Unchanged records in *expected* are kept for the same time.

        Returns:
            Whether the changes were made. If all written records already have *version*, this write was
            repeated, and the result is True. A repeated write that only deletes is not recognized.
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
            windows: The limits. Their keys have the same room.
            slot: The slot's unique name, at most 64 characters. Repeating a call whose slot was taken changes
                nothing, and returns that it is taken. None takes no slot and only returns the use.
            block: The key of a record in the same room. While the record exists, no slot is taken. Write it
                with ``keep=``.
        """
        ...

    async def refund(self, windows: Sequence[Window], *, slot: str) -> None:
        """Return *slot* to every window. If it is not taken, do nothing."""

    async def close(self) -> None:
        """Close the resources that stay open between two steps. The records stay."""


def new_version() -> str:
    """Return a random name for a version or for a slot."""
    return secrets.token_hex(8)


Rule = Callable[[Snapshot], tuple[Mapping[str, bytes | None], R]]
"""Takes a snapshot. Returns the changes and a result. An empty mapping changes nothing."""


async def change(
    store: Store,
    keys: Collection[str],
    rule: Rule[R],
    *,
    keep: float | None = None,
    snapshot: Snapshot | None = None,
) -> R:
    """Read *keys*, change them with *rule*, and return its result. If another writer was first, repeat this.

    A rule has no side effects, because it may be called several times. If a change was made but the store's
    response was lost, the rule is called again with the changed records. Then it must change nothing and
    return the same result.

    Args:
        store: The store of the records.
        keys: The keys that *rule* reads and may change. They have the same room.
        rule: Takes a snapshot, and returns the changes and a result.
        keep: If a record of *keys* changes, all are kept for this many seconds. None means no limit.
        snapshot: Records that were read before. If they are not current any more, *keys* are read again.

    Raises:
        StateError: The store cannot be used. It is then unknown whether a change was made.
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
    """Return the error for stored data in a format that this version of the package does not read.

    The package never guesses the format.

    Args:
        what: The kind of storage, with its file or key.
        version: The version in the data, or None.
        readable: The version that can be read.
        instead: The end of the error, an alternative to the version that wrote the data.
    """
    version_text = "no format version" if version is None else f"format version {printable(str(version), 20)}"
    return StateError(
        f"{what} has {version_text}, and this version of mintlify-async reads {readable}: "
        f"use the mintlify-async that wrote it, or {instead}"
    )
