"""Async iterators over jobs, each with one consumer. A step that is cancelled leaves the iterator usable."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from ..errors import StateError
from ..habits import AsyncOnly

T = TypeVar("T")


class Steps(AsyncOnly, Generic[T]):
    """An async iterator whose steps must not overlap. It ends with the first error of a step."""

    _stepping = False
    _ended = False

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> T:
        """Return the next item.

        Raises:
            JobTimeoutError: The timeout has passed.
            StateError: Another task is in a step, or the session is closed.
        """
        if self._ended:
            raise StopAsyncIteration
        if self._stepping:
            raise StateError("another task is already reading this iterator; read it in one task")
        self._stepping = True
        try:
            return await self._step()
        except Exception:
            await self.aclose()
            raise
        finally:
            self._stepping = False

    async def _step(self) -> T:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Finish. Safe to repeat."""
        self._ended = True
