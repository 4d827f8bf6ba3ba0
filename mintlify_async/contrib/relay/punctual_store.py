"""A conversation store with a time limit for each step and one error for all failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mintlify_async import StateError, StoreConflictError

if TYPE_CHECKING:
    from mintlify_async.runtime.clock import Clock
    from mintlify_async.storage import ConversationStore, StoredConversation, StoredTurn

T = TypeVar("T")

STORE_SECONDS = 5.0  # how long a step may take: a reader waits for it


class StoreError(StateError):
    """The relay's conversation store failed, or did not answer in time."""


class PunctualStore:
    """The app's store with a time limit. Its errors are :class:`StoreError` and ``StoreConflictError``."""

    def __init__(self, store: ConversationStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def __repr__(self) -> str:
        return repr(self._store)

    async def load(self, id: str, *, owner: str, last: int | None = None) -> StoredConversation | None:
        """Load as the app's store does."""
        return await self._step(partial(self._store.load, id, owner=owner, last=last))

    async def save(
        self, id: str, head: str, turns: Sequence[StoredTurn], *, owner: str, revision: int, keep: range
    ) -> int:
        """Save as the app's store does."""
        save = self._store.save
        return await self._step(partial(save, id, head, turns, owner=owner, revision=revision, keep=keep))

    async def delete(self, id: str, *, owner: str) -> bool:
        """Delete as the app's store does."""
        return await self._step(partial(self._store.delete, id, owner=owner))

    async def ids(self, *, owner: str) -> list[str]:
        """List ids as the app's store does."""
        return await self._step(partial(self._store.ids, owner=owner))

    async def _step(self, step: Callable[[], Awaitable[T]]) -> T:
        try:
            async with self._clock.deadline(self._clock.now() + STORE_SECONDS):
                return await step()
        except StoreConflictError:
            raise
        except TimeoutError:
            reason = f"no answer within {STORE_SECONDS:g} s"
        except Exception as error:  # a store of the app's own may raise anything
            reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise StoreError(f"the conversation store {self._store!r} failed: {reason}")
