"""Observers: the reports of a session about its operations, for your own metrics, logs and traces."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..model.job_record import Job

log = logging.getLogger("mintlify_async")

Fact = str | int | float | bool
"""The value of a fact that an observation notes."""


class Observation(Protocol):
    """One operation while it runs. If a method raises an error, it is logged and the operation continues."""

    def active(self) -> AbstractContextManager[object]:
        """Return a block that is entered around each request, never around a ``yield``."""
        ...

    def set(self, name: str, value: Fact) -> None:
        """Note a fact, such as ``conversation_id``, ``status``, ``finish_reason``, ``model``, ``output``."""
        ...

    def event(self, name: str, attributes: Mapping[str, Fact]) -> None:
        """Note that something happened now.

        ``attempt``: a request was answered or failed (``attempt``, ``seconds``, ``status``, ``request_id``,
        ``error``). ``retry``: it is sent again (``attempt``, ``delay``). ``first_event`` of an answer.
        ``poll`` of a job (``status`` or ``error``).
        """
        ...

    def end(self, error: BaseException | None = None) -> None:
        """End the operation. *error* is its failure or cancellation, or None."""
        ...


class Observer(Protocol):
    """Follows operations, from the request to the end of the stream or of the job.

    A reply that is dropped ends its observation in a finalizer, which may run on any thread.
    """

    def start(self, operation: str, facts: Mapping[str, Fact]) -> Observation:
        """Begin to follow ``ask``, ``create_job``, ``send_message``, ``wait``, ``refresh`` or ``run_job``.

        Args:
            operation: The operation's name.
            facts: The known data: ``domain``, ``project_id``, ``conversation_id``, ``base_url``, ``input``.
        """
        ...


def begin_observation(observer: Observer | None, operation: str, **facts: Fact | None) -> Observation | None:
    """Let *observer* begin. Return None if there is no observer, or if it fails, which is logged."""
    if observer is None:
        return None
    try:
        return _Guarded(observer.start(operation, {k: fact for k, fact in facts.items() if fact is not None}))
    except Exception:
        log.exception(_FAILED)
        return None


_FAILED = "the session's observer failed"


def _guard(step: Callable[..., object], *arguments: object) -> None:
    """Call a user's function. Its error must not take the place of an answer that may be paid for."""
    try:
        step(*arguments)
    except Exception:
        log.exception(_FAILED)


class _Guarded:
    """An observation whose errors are logged."""

    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    @contextmanager
    def active(self) -> Generator[None, None, None]:
        try:
            block = self._observation.active()
            block.__enter__()
        except Exception:
            log.exception(_FAILED)
            yield
            return
        try:
            yield
        except BaseException:
            _guard(block.__exit__, *sys.exc_info())
            raise
        _guard(block.__exit__, None, None, None)

    def set(self, name: str, value: Fact) -> None:
        _guard(self._observation.set, name, value)

    def event(self, name: str, attributes: Mapping[str, Fact]) -> None:
        _guard(self._observation.event, name, attributes)

    def end(self, error: BaseException | None = None) -> None:
        _guard(self._observation.end, error)


@contextmanager
def following(observation: Observation, *, active: bool, ends: bool) -> Generator[Observation, None, None]:
    """Follow a block, which is one request if *active*. If *ends*, the block's end or error ends all."""
    try:
        with observation.active() if active else nullcontext():
            yield observation
    except BaseException as error:
        if ends:
            observation.end(error)
        raise
    if ends:
        observation.end()


def note(observation: Observation | None, **facts: Fact | None) -> None:
    """Note the facts that are known, if an observer follows the operation."""
    if observation is None:
        return
    for name, fact in facts.items():
        if fact:
            observation.set(name, fact)


def note_job(observation: Observation | None, job: Job) -> None:
    """Note the status of a job, if an observer follows the operation."""
    note(observation, status=job.status, model=job.model, pr_link=job.pr_link)
