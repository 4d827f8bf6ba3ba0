"""What the next answers shall be in; the rule for each request out."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from attrs import define, field

from ..errors import ConfigurationError
from .faults import Fault
from .http_answer import Answer, HasWire, Pause, event_stream, json_answer
from .local_jobs import JobLife
from .request_log import RecordedRequest

__all__ = ["Operation", "Rule", "Script"]

Operation = Literal["create_job", "get_job", "send_message", "ask"]
"""The four operations of the interface."""

JOB_OPERATIONS = frozenset({"create_job", "get_job", "send_message"})


@define(kw_only=True, eq=False)
class Rule:
    """How some requests are answered.

    Attributes:
        operation: For which operation; ``any`` for all, ``connect`` for new connections.
        answer: The answer; None: what the service itself would say.
        respond: Makes the answer from the request.
        fault: What happens to the answer on the wire.
        delay: Seconds before the answer.
        life: How the job lives on.
        fields: What is replaced in the job that is answered.
        headers: Headers besides those of the service's own answer.
        times: For how many requests; None: until :meth:`stop`.
        used: For how many requests so far.
    """

    operation: str
    answer: Answer | None = None
    respond: Callable[[RecordedRequest], Answer] | None = None
    fault: Fault | None = None
    delay: float = 0.0
    life: JobLife | None = None
    fields: Mapping[str, Any] = field(factory=dict[str, Any])
    headers: Mapping[str, str] = field(factory=dict[str, str])
    times: int | None = 1
    used: int = 0

    def fits(self, operation: str) -> bool:
        """Say whether the rule is for this operation and not used up."""
        wanted = self.operation == operation or (self.operation == "any" and operation != "connect")
        return wanted and (self.times is None or self.used < self.times)

    def stop(self) -> None:
        """End the rule now."""
        self.times = self.used


class Script:
    """The queued answers of a service, oldest first for each operation."""

    def __init__(self) -> None:
        """Start empty: the service answers by itself."""
        self._rules: list[Rule] = []

    @property
    def rules(self) -> list[Rule]:
        """The rules that are not used up."""
        return [rule for rule in self._rules if rule.times is None or rule.used < rule.times]

    def clear(self) -> None:
        """Drop every rule: the service answers by itself again."""
        self._rules.clear()

    def take(self, operation: str) -> Rule | None:
        """Return the rule for the next request of *operation*, and count its use; the service does this."""
        rule = next((rule for rule in self._rules if rule.fits(operation)), None)
        if rule is not None:
            rule.used += 1
            if rule.times is not None and rule.used >= rule.times:
                self._rules.remove(rule)
        return rule

    def ask(
        self,
        *,
        events: Iterable[Mapping[str, Any] | HasWire | float] | None = None,
        done: bool = True,
        pause: float = 0.0,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = ...,
        body: bytes | str | None = None,
        chunks: Iterable[bytes | str | float] | None = None,
        respond: Callable[[RecordedRequest], Answer] | None = None,
        fault: Fault | None = None,
        delay: float = 0.0,
        times: int | None = 1,
    ) -> Rule:
        """Say how the next question is answered. What is left out stays the service's own.

        Args:
            events: Exactly these stream events (dicts, or events of this package); a number is a pause.
            done: Whether ``[DONE]`` ends those events.
            pause: Seconds between two of those events.
            status: The HTTP status; alone it comes with the service's error shape.
            headers: Further headers.
            json: The body as a JSON document.
            body: The exact body.
            chunks: The exact body in exactly these writes; a number is a pause in seconds.
            respond: A function that makes the :class:`Answer` from the request.
            fault: What happens to the answer on the wire.
            delay: Seconds before the answer.
            times: For how many requests; None: until the returned rule is stopped.
        """
        if events is not None and (body is not None or chunks is not None or json is not ...):
            raise ConfigurationError("give one of events, json, body, chunks", field="events")
        if events is not None:
            answer: Answer | None = event_stream(
                events, headers=headers, pause=pause, done=done, status=status or 200
            )
        else:
            answer = _answer("ask", status, headers, json, body, chunks)
        return self._add(
            "ask",
            answer=answer,
            respond=respond,
            fault=fault,
            delay=delay,
            times=times,
            headers=headers or {},
        )

    def create_job(
        self,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = ...,
        body: bytes | str | None = None,
        chunks: Iterable[bytes | str | float] | None = None,
        respond: Callable[[RecordedRequest], Answer] | None = None,
        life: JobLife | None = None,
        fields: Mapping[str, Any] | None = None,
        fault: Fault | None = None,
        delay: float = 0.0,
        times: int | None = 1,
    ) -> Rule:
        """Say how the next creation is answered. What is left out stays the service's own.

        Args:
            status: The HTTP status; alone it comes with the service's error shape.
            headers: Further headers.
            json: The body as a JSON document.
            body: The exact body.
            chunks: The exact body in exactly these writes; a number is a pause in seconds.
            respond: A function that makes the :class:`Answer` from the request.
            life: How the job lives after this prompt.
            fields: What is replaced in the job that is answered, such as ``{"status": "queued"}``.
            fault: What happens to the answer on the wire; the job exists all the same.
            delay: Seconds before the answer.
            times: For how many requests; None: until the returned rule is stopped.
        """
        answer = _answer("create_job", status, headers, json, body, chunks)
        return self._add(
            "create_job",
            answer=answer,
            respond=respond,
            life=life,
            fields=fields or {},
            fault=fault,
            delay=delay,
            times=times,
            headers=headers or {},
        )

    def send_message(
        self,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = ...,
        body: bytes | str | None = None,
        chunks: Iterable[bytes | str | float] | None = None,
        respond: Callable[[RecordedRequest], Answer] | None = None,
        life: JobLife | None = None,
        fields: Mapping[str, Any] | None = None,
        fault: Fault | None = None,
        delay: float = 0.0,
        times: int | None = 1,
    ) -> Rule:
        """Say how the next follow-up is answered; the arguments are those of :meth:`create_job`."""
        answer = _answer("send_message", status, headers, json, body, chunks)
        return self._add(
            "send_message",
            answer=answer,
            respond=respond,
            life=life,
            fields=fields or {},
            fault=fault,
            delay=delay,
            times=times,
            headers=headers or {},
        )

    def get_job(
        self,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = ...,
        body: bytes | str | None = None,
        chunks: Iterable[bytes | str | float] | None = None,
        respond: Callable[[RecordedRequest], Answer] | None = None,
        fields: Mapping[str, Any] | None = None,
        fault: Fault | None = None,
        delay: float = 0.0,
        times: int | None = 1,
    ) -> Rule:
        """Say how the next look at a job is answered; the arguments are those of :meth:`create_job`."""
        answer = _answer("get_job", status, headers, json, body, chunks)
        return self._add(
            "get_job",
            answer=answer,
            respond=respond,
            fields=fields or {},
            fault=fault,
            delay=delay,
            times=times,
            headers=headers or {},
        )

    def any(
        self,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = ...,
        body: bytes | str | None = None,
        chunks: Iterable[bytes | str | float] | None = None,
        fault: Fault | None = None,
        delay: float = 0.0,
        times: int | None = 1,
    ) -> Rule:
        """Say how the next request is answered, whatever it is; arguments as in :meth:`create_job`."""
        answer = _answer("any", status, headers, json, body, chunks)
        return self._add("any", answer=answer, fault=fault, delay=delay, times=times, headers=headers or {})

    def job(self, *looks: str, times: int | None = 1, **life: Any) -> Rule:
        """Say how the next job lives.

        Args:
            looks: Its status at each look, the last one stays: ``script.job("active", "completed")``.
            times: For how many jobs; None: until the returned rule is stopped.
            life: The arguments of :class:`JobLife`: ``script.job(seconds=60, outcome="failed")``.
        """
        return self.create_job(life=JobLife(looks=looks, **life), times=times)

    def connect(self, fault: Fault, *, times: int | None = 1) -> Rule:
        """Let the next new connection fail before any request.

        A session that keeps connections alive makes no new one.

        Raises:
            ConfigurationError: The fault needs a request.
        """
        if not fault.for_connections:
            raise ConfigurationError(
                f"{type(fault).__name__} needs a request; give it to script.ask, .create_job, … instead",
                field="fault",
            )
        return self._add("connect", fault=fault, times=times)

    def extend(self, rules: Iterable[Rule]) -> None:
        """Queue rules made elsewhere, behind those that wait."""
        self._rules.extend(rules)

    def _add(self, operation: str, **settings: Any) -> Rule:
        if settings["times"] is not None and settings["times"] < 1:
            raise ConfigurationError("times is at least 1, or None for: until told", field="times")
        rule = Rule(operation=operation, **settings)
        self._rules.append(rule)
        return rule


def _answer(
    operation: str,
    status: int | None,
    headers: Mapping[str, str] | None,
    json: object,
    body: bytes | str | None,
    chunks: Iterable[bytes | str | float] | None,
) -> Answer | None:
    """Return the exact answer that the arguments describe, or None when they leave it to the service."""
    if (json is not ...) + (body is not None) + (chunks is not None) > 1:
        raise ConfigurationError("give one of json, body, chunks", field="body")
    if chunks is not None:
        pieces = tuple(Pause(one) if isinstance(one, int | float) else _bytes(one) for one in chunks)
        return Answer(status=status or 200, headers=headers or {}, body=pieces, chunked=True, separate=True)
    if body is not None:
        return Answer(status=status or 200, headers=headers or {}, body=(_bytes(body),) if body else ())
    if json is not ...:
        return json_answer(status or 200, json, headers)
    if status is None:
        return None
    return json_answer(status, {_error_name(operation): f"scripted status {status}"}, headers)


def _error_name(operation: str) -> str:
    return "error" if operation in JOB_OPERATIONS else "message"


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def with_fields(answer: Answer, fields: Mapping[str, Any]) -> Answer:
    """Return *answer* with some fields of its JSON document replaced."""
    if not fields:
        return answer
    document: dict[str, Any] = json_module.loads(answer.content)
    return json_answer(answer.status, document | dict(fields), answer.headers)
