"""Reports operations to the session's observer. Errors of the observer are logged, and change nothing."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from ..runtime.logs import log_fields
from ..settings.options import Fact, Observation, Observer

if TYPE_CHECKING:
    from ..model.job_record import Job

log = logging.getLogger("mintlify_async")


def begin_observation(observer: Observer, operation: str, **facts: Fact | None) -> Observation | None:
    """Start an observation. If the observer fails, log its error, and return None."""
    try:
        known_facts = {name: fact for name, fact in facts.items() if fact is not None}
        return _Guarded(observer.start(operation, known_facts), operation)
    except Exception:
        log.exception(_FAILED, extra=log_fields(operation))
        return None


_FAILED = "the session's observer failed"


class _Guarded:
    """An observation whose errors are logged. They must not replace an answer that costs money."""

    def __init__(self, observation: Observation, operation: str) -> None:
        self._observation = observation
        self._operation = operation

    def _guard(self, step: Callable[..., object], *arguments: object) -> None:
        try:
            step(*arguments)
        except Exception:
            self._log()

    def _log(self) -> None:
        log.exception(_FAILED, extra=log_fields(self._operation))

    @contextmanager
    def active(self) -> Generator[None, None, None]:
        try:
            block = self._observation.active()
            block.__enter__()
        except Exception:
            self._log()
            yield
            return
        try:
            yield
        except BaseException:
            self._guard(block.__exit__, *sys.exc_info())
            raise
        self._guard(block.__exit__, None, None, None)

    def set(self, name: str, value: Fact) -> None:
        self._guard(self._observation.set, name, value)

    def event(self, name: str, attributes: Mapping[str, Fact]) -> None:
        self._guard(self._observation.event, name, attributes)

    def end(self, error: BaseException | None = None) -> None:
        self._guard(self._observation.end, error)


@contextmanager
def following(observation: Observation, *, active: bool, ends: bool) -> Generator[Observation, None, None]:
    """Report a block.

    With *active*, the block makes one request, and the observation is the active one. With *ends*, the
    observation ends with the block.
    """
    try:
        with observation.active() if active else nullcontext():
            yield observation
    except BaseException as error:
        if ends:
            observation.end(error)
        raise
    if ends:
        observation.end()


def note(observation: Observation, **facts: Fact | None) -> None:
    """Report the facts that are not empty."""
    for name, fact in facts.items():
        if fact:
            observation.set(name, fact)


def note_job(observation: Observation, job: Job) -> None:
    """Report the facts of a job."""
    note(observation, status=job.status, model=job.model, pr_link=job.pr_link)
