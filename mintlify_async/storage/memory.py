"""A store in the process's memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from math import inf

from attrs import frozen

from ..runtime import dates
from ..runtime.closing import NothingToClose
from .store import Record, Snapshot, TakeResult, Usage, Window, check_keep

__all__ = ["MemoryStore"]

SWEEP_FROM = 256
"""Records from which the expired ones are dropped, each time that the number of records has doubled."""


@frozen
class _MemoryRecord:
    record: Record
    end: float


class MemoryStore(NothingToClose):
    """A store in memory, shared by all threads and event loops of the process. It is lost with the process.

    Its time passes evenly, even if the computer's clock is set.

    Args:
        keep: How long finished records are kept, in seconds; None keeps them for good.

    Raises:
        ConfigurationError: *keep* is not a finite number.
    """

    def __init__(self, *, keep: float | None = None) -> None:
        """Start empty."""
        self.keep = check_keep(keep)
        self._entries: dict[str, _MemoryRecord] = {}
        self._sweep_at = SWEEP_FROM
        self._logs: dict[str, dict[str, float]] = {}  # when each slot was taken, oldest first
        self._lock = threading.Lock()
        self._start: float | None = None  # the date at which the loop's time was 0

    def __repr__(self) -> str:
        """Show how many records it has."""
        return f"<MemoryStore, {len(self._entries)} records>"

    async def read(self, keys: Collection[str]) -> Snapshot:
        """Return the records that exist under *keys*, and the store's time."""
        with self._lock:
            now = self._now()
            entries = {key: entry for key in keys if (entry := self._entry(key, now)) is not None}
            return Snapshot(records={key: entry.record for key, entry in entries.items()}, now=now)

    async def write(
        self,
        changes: Mapping[str, bytes | None],
        *,
        expected: Mapping[str, str | None],
        version: str,
        keep: float | None = None,
    ) -> bool:
        """If every record still has its *expected* version, make all *changes*. Else make none."""
        with self._lock:
            now = self._now()
            if not all(self._version(key, now) == name for key, name in expected.items()):
                written_keys = [key for key, value in changes.items() if value is not None]
                return bool(written_keys) and all(self._version(key, now) == version for key in written_keys)
            end = inf if keep is None else now + keep
            for key, value in changes.items():
                if value is None:
                    self._entries.pop(key, None)
                else:
                    self._entries[key] = _MemoryRecord(Record(value=value, version=version, since=now), end)
            for key in expected.keys() - changes.keys():
                if (entry := self._entries.get(key)) is not None:
                    self._entries[key] = _MemoryRecord(entry.record, end)
            self._drop_expired(now)
            return True

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that start with *prefix*, sorted."""
        with self._lock:
            now = self._now()
            return sorted(k for k, entry in self._entries.items() if k.startswith(prefix) and entry.end > now)

    async def take(self, windows: Sequence[Window], *, slot: str | None, block: str) -> TakeResult:
        """If every window has a free slot and there is no block, take *slot* in all windows."""
        with self._lock:
            now = self._now()
            entry = self._entry(block, now)
            logs = [self._log(window, now) for window in windows]
            is_taken = slot is not None and bool(logs) and all(slot in log for log in logs)
            is_full = any(len(log) >= window.amount for log, window in zip(logs, windows, strict=True))
            if slot is not None and entry is None and not is_full:
                is_taken = True
                for log in logs:
                    log.setdefault(slot, now)
            return TakeResult(
                taken=is_taken,
                blocked=0.0 if entry is None else entry.end - now,
                usage=tuple(_usage(log, window, now) for log, window in zip(logs, windows, strict=True)),
            )

    async def refund(self, windows: Sequence[Window], *, slot: str) -> None:
        """Give *slot* back in every window. If it is not taken, do nothing."""
        with self._lock:
            for window in windows:
                self._logs.get(window.key, {}).pop(slot, None)

    def _now(self) -> float:
        """Return the first step's date plus the time that has passed on the loop's clock since then."""
        time = asyncio.get_running_loop().time()
        if self._start is None:
            self._start = dates.now() - time
        return self._start + time

    def _entry(self, key: str, now: float) -> _MemoryRecord | None:
        entry = self._entries.get(key)
        return entry if entry is not None and entry.end > now else None

    def _version(self, key: str, now: float) -> str | None:
        entry = self._entry(key, now)
        return None if entry is None else entry.record.version

    def _drop_expired(self, now: float) -> None:
        if len(self._entries) >= self._sweep_at:
            self._entries = {key: entry for key, entry in self._entries.items() if entry.end > now}
            self._sweep_at = max(SWEEP_FROM, 2 * len(self._entries))

    def _log(self, window: Window, now: float) -> dict[str, float]:
        log = self._logs.setdefault(window.key, {})
        while log and log[slot := next(iter(log))] + window.seconds <= now:
            del log[slot]
        return log


def _usage(log: Mapping[str, float], window: Window, now: float) -> Usage:
    ahead = len(log) - window.amount
    oldest = next(islice(log.values(), ahead, None)) if ahead >= 0 else None
    return Usage(used=len(log), opens_in=0.0 if oldest is None else max(0.0, oldest + window.seconds - now))
