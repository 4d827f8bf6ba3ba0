"""Iterators over jobs: the records of one job as it changes, and the base class for :mod:`.wait_all`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self, TypeVar

from ..errors import StateError
from ..model.job_record import Job
from ..wrong_names import AsyncOnly
from .wait import JobWait

T = TypeVar("T")


class Steps(AsyncOnly, Generic[T]):
    """An async iterator over jobs with one consumer. It ends with the first error of a step.

    After a cancelled step, the iterator can still be used.
    """

    _stepping = False
    _ended = False

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> T:
        """Return the next item.

        Raises:
            JobTimeoutError: The timeout has passed.
            StateError: Another task is waiting in a step, or the session is closed.
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
        """End the iteration. Repeated calls do nothing."""
        self._ended = True


class JobWatch(Steps[Job]):
    """An async iterator over the records of one job; see :meth:`JobHandle.watch`."""

    def __init__(self, begin: Callable[[], JobWait]) -> None:
        """Watch with the wait that *begin* returns. The first step makes the first poll."""
        self._begin = begin
        self._wait: JobWait | None = None

    async def _step(self) -> Job:
        self._wait = self._wait or self._begin()
        job = await self._wait.change()
        self._ended = job.done
        return job
