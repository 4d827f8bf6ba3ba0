"""Scripted answers: rules that say how the service answers the next requests."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, Unpack

from attrs import define, field

from ..errors import ConfigurationError
from .faults import Fault
from .http_answer import Answer, Pause, WireEvent, event_stream, json_answer
from .local_jobs import JobLife
from .request_log import RecordedRequest


class AnswerOptions(TypedDict, total=False):
    """What every method of :class:`Script` accepts. What is left out stays the service's own.

    Attributes:
        status: The HTTP status. Alone, it comes with a body in the error format of the service.
        headers: Further headers.
        json: The body, as a JSON document.
        body: The body, exactly.
        chunks: The body, exactly, in exactly these writes; a number is a pause, in seconds.
        respond: A function that makes the :class:`Answer` from the request.
        fault: What breaks when the answer is sent. The request is handled all the same.
        delay: Seconds before the answer.
        times: For how many requests (default: 1); None: until :meth:`Rule.stop`.
    """

    status: int | None
    headers: Mapping[str, str] | None
    json: object
    body: bytes | str | None
    chunks: Iterable[bytes | str | float] | None
    respond: Callable[[RecordedRequest], Answer] | None
    fault: Fault | None
    delay: float
    times: int | None


class JobAnswerOptions(AnswerOptions, total=False):
    """What the agent's operations accept besides: *fields* replaces fields of the answered job."""

    fields: Mapping[str, Any] | None


class PromptAnswerOptions(JobAnswerOptions, total=False):
    """What ``create_job`` and ``send_message`` accept besides: *life* says how the job proceeds."""

    life: JobLife | None


@define(kw_only=True, eq=False)
class Rule:
    """How some requests are answered. The methods of :class:`Script` make and return rules.

    Attributes:
        operation: The operation; ``any`` for all operations, ``connect`` for new connections.
        answer: The answer; None: the service's own, with *fields* and *headers* added.
        used: For how many requests so far.

    The others are as in :class:`AnswerOptions`.
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

    @property
    def used_up(self) -> bool:
        """Whether the rule has answered as many requests as it is for."""
        return self.times is not None and self.used >= self.times

    def matches(self, operation: str) -> bool:
        """Return whether the rule answers requests of *operation*."""
        return self.operation == operation or (self.operation == "any" and operation != "connect")

    def stop(self) -> None:
        """End the rule now."""
        self.times = self.used


class Script:
    r"""The scripted answers of a service: ``service.script``.

    Each method queues one answer, or several with ``times``. The rules of an operation are used in the order
    in which they were queued; then the service answers by itself again.

    ::

        service.script.create_job(status=503, headers={"Retry-After": "7"}, times=2)
        service.script.ask(events=[{"type": "start"}, 30.0, {"type": "finish"}])
        service.script.ask(chunks=[b"data: ", 0.5, b"[DONE]\n\n"])
        service.script.ask(fault=faults.Cut(at=100, how="rst"))
        service.script.job(seconds=60, outcome="failed")
        down = service.script.any(status=503, times=None)
        ...
        down.stop()
    """

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    @property
    def rules(self) -> list[Rule]:
        """The rules that are not used up."""
        return [rule for rule in self._rules if not rule.used_up]

    def clear(self) -> None:
        """Drop every rule: the service answers by itself again."""
        self._rules.clear()

    def take(self, operation: str) -> Rule | None:
        """Return the rule for the next request of *operation*, and count its use. The service calls this."""
        rule = next((rule for rule in self.rules if rule.matches(operation)), None)
        if rule is not None:
            rule.used += 1
            if rule.used_up:
                self._rules.remove(rule)
        return rule

    def ask(
        self,
        *,
        events: Iterable[Mapping[str, Any] | WireEvent | float] | None = None,
        done: bool = True,
        pause: float = 0.0,
        **options: Unpack[AnswerOptions],
    ) -> Rule:
        """Script the answer to the next question.

        Args:
            events: The stream events, as dicts or as events of this package; a number is a pause, in seconds.
            done: Whether ``[DONE]`` ends these events.
            pause: Seconds between two of these events.
            options: See :class:`AnswerOptions`.

        Raises:
            ConfigurationError: More than one of *events*, *json*, *body* and *chunks* is given, or *times* is
                below 1.
        """
        answer = None
        if events is not None:
            if "json" in options or (options.get("body"), options.get("chunks")) != (None, None):
                raise ConfigurationError("give only one of events, json, body, chunks", field="events")
            headers, status = options.get("headers"), options.get("status") or 200
            answer = event_stream(events, headers=headers, pause=pause, done=done, status=status)
        return self._add("ask", AnswerOptions, dict(options), answer)

    def create_job(self, **options: Unpack[PromptAnswerOptions]) -> Rule:
        """Script the answer to the next creation of a job.

        Args:
            options: See :class:`AnswerOptions`; besides those, *fields* and *life*.

        Raises:
            ConfigurationError: More than one of *json*, *body* and *chunks* is given, or *times* is below 1.
        """
        return self._add("create_job", PromptAnswerOptions, dict(options))

    def send_message(self, **options: Unpack[PromptAnswerOptions]) -> Rule:
        """Script the answer to the next follow-up, with the arguments of :meth:`create_job`."""
        return self._add("send_message", PromptAnswerOptions, dict(options))

    def get_job(self, **options: Unpack[JobAnswerOptions]) -> Rule:
        """Script the answer to the next poll, with the arguments of :meth:`create_job` except *life*."""
        return self._add("get_job", JobAnswerOptions, dict(options))

    def any(self, **options: Unpack[AnswerOptions]) -> Rule:
        """Script the answer to the next request of any kind. See :class:`AnswerOptions`."""
        return self._add("any", AnswerOptions, dict(options))

    def job(self, *looks: str, times: int | None = 1, **life: Any) -> Rule:
        """Script how the next job proceeds.

        Args:
            looks: A status per poll; the last one stays: ``script.job("active", "completed")``.
            times: For how many jobs; None: until the returned rule is stopped.
            life: The arguments of :class:`JobLife`: ``script.job(seconds=60, outcome="failed")``.

        Raises:
            ConfigurationError: *times* is below 1, or an argument of the life is invalid.
        """
        return self.create_job(life=JobLife(looks=looks, **life), times=times)

    def connect(self, fault: Fault, *, times: int | None = 1) -> Rule:
        """Let the next new connection fail before any request.

        A session that keeps its connections alive opens no new one.

        Args:
            fault: What happens to the connection.
            times: For how many connections; None: until the returned rule is stopped.

        Raises:
            ConfigurationError: The fault needs a request, or *times* is below 1.
        """
        if not fault.for_connections:
            raise ConfigurationError(
                f"fault: {type(fault).__name__} needs a request; give it to script.ask, script.create_job, …",
                field="fault",
            )
        return self._add("connect", AnswerOptions, {"fault": fault, "times": times})

    def extend(self, rules: Iterable[Rule]) -> None:
        """Queue *rules* behind those that are there."""
        self._rules.extend(rules)

    def _add(
        self, operation: str, accepted: Any, options: dict[str, Any], answer: Answer | None = None
    ) -> Rule:
        unknown = options.keys() - accepted.__annotations__.keys()
        if unknown:  # also found by type checkers; script files have none
            raise TypeError(f"{operation}() has no argument {', '.join(sorted(unknown))}")
        times = options.get("times", 1)
        if times is not None and times < 1:
            raise ConfigurationError("times must be at least 1, or None for no end", field="times")
        rule = Rule(
            operation=operation,
            answer=answer or exact_answer(operation, options),
            respond=options.get("respond"),
            fault=options.get("fault"),
            delay=options.get("delay", 0.0),
            life=options.get("life"),
            fields=options.get("fields") or {},
            headers=options.get("headers") or {},
            times=times,
        )
        self._rules.append(rule)
        return rule


def exact_answer(operation: str, options: Mapping[str, Any]) -> Answer | None:
    """Return the answer that the options describe, or None where the service is to answer by itself."""
    status: int | None = options.get("status")
    headers: Mapping[str, str] = options.get("headers") or {}
    given = [name for name in ("body", "chunks") if options.get(name) is not None]
    given += ["json"] * ("json" in options)  # null is a document, too
    if len(given) > 1:
        raise ConfigurationError("give only one of json, body, chunks", field="body")
    if given:
        return _answer_with(given[0], options[given[0]], status or 200, headers)
    if status is None:
        return None
    name = "message" if operation in ("ask", "any") else "error"  # the assistant's and the agent's format
    return json_answer(status, {name: f"scripted status {status}"}, headers)


def _answer_with(kind: str, value: Any, status: int, headers: Mapping[str, str]) -> Answer:
    if kind == "json":
        return json_answer(status, value, headers)
    if kind == "body":
        return Answer(status=status, headers=headers, body=(_to_bytes(value),) if value else ())
    pieces = tuple(Pause(one) if isinstance(one, int | float) else _to_bytes(one) for one in value)
    return Answer(status=status, headers=headers, body=pieces, chunked=True, separate=True)


def _to_bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def replace_fields(answer: Answer, fields: Mapping[str, Any]) -> Answer:
    """Return *answer* with some fields of its JSON document replaced."""
    if not fields:
        return answer
    document: dict[str, Any] = json_module.loads(answer.content)
    return json_answer(answer.status, document | dict(fields), answer.headers)
