"""Scripted responses are rules for the service's responses to the next requests."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, Unpack

from attrs import define, field, fields_dict

from ..errors import ConfigurationError
from ..events import Event
from .assistant_answers import Content
from .faults import Fault
from .http_answer import Answer, event_stream, json_answer, to_bytes, to_pieces, too_many_requests
from .local_jobs import JobLife
from .rate_limits import used_up
from .request_log import RecordedRequest


class AnswerOptions(TypedDict, total=False):
    """The options of every method of :class:`Script`. If an option is left out, the service decides.

    Attributes:
        status: The HTTP status. Alone, it comes with a body in the error format of the service. A 429 also
            has ``Retry-After: 3600``, so that it is not tried again.
        headers: Additional headers.
        json: The body, as a JSON document.
        body: The body, exactly.
        chunks: The body, exactly, in exactly these writes. A number is a pause, in seconds.
        respond: A function that makes the :class:`Answer` from the request.
        fault: The failure while the response is sent. The request is still handled.
        delay: Seconds before the response.
        times: The number of requests (default: 1). None means until :meth:`Rule.stop`.
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
    """The additional option of the agent's operations. *fields* replaces fields of the returned job."""

    fields: Mapping[str, Any] | None


class PromptAnswerOptions(JobAnswerOptions, total=False):
    """The additional option of ``create_job`` and ``send_message``. *life* sets the course of the job."""

    life: JobLife | None


@define(kw_only=True, eq=False)
class Rule:
    """The response to some requests. The methods of :class:`Script` make and return rules.

    Attributes:
        operation: The operation, or ``any`` for all operations, or ``connect`` for new connections.
        answer: The response. None means the service's own, with *fields* and *headers* added.
        content: The content of the service's own answer to a question. None means its search results.
        pause: Seconds between two events of the service's own answer. None means the pause of its style.
        used: The number of requests so far.

    The other attributes are as in :class:`AnswerOptions`.
    """

    operation: str
    answer: Answer | None = None
    respond: Callable[[RecordedRequest], Answer] | None = None
    fault: Fault | None = None
    delay: float = 0.0
    life: JobLife | None = None
    content: Content | None = None
    pause: float | None = None
    fields: Mapping[str, Any] = field(factory=dict[str, Any])
    headers: Mapping[str, str] = field(factory=dict[str, str])
    times: int | None = 1
    used: int = 0

    @property
    def used_up(self) -> bool:
        """Whether the rule has answered all its requests."""
        return self.times is not None and self.used >= self.times

    def matches(self, operation: str) -> bool:
        """Return whether the rule answers requests of *operation*."""
        return self.operation == operation or (self.operation == "any" and operation != "connect")

    def stop(self) -> None:
        """End the rule now."""
        self.times = self.used


KEPT = fields_dict(Rule).keys() - {"times"}
"""The options that a rule keeps as they are."""

EXACT = ("json", "body", "chunks", "respond", "status")
"""The options that replace the service's own response."""


class Script:
    r"""``service.script`` has the scripted responses of a service.

    Each method queues one response, or several with ``times``. The rules of an operation are used in queue
    order. After them, the service makes its own responses again.

    ::

        service.script.create_job(status=503, headers={"Retry-After": "7"}, times=2)
        service.script.ask("Press the button.", sources=["/login"])
        service.script.ask(error="overloaded")
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
        """Remove every rule. The service makes its own responses again."""
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
        text: str | None = None,
        *,
        sources: Iterable[str | tuple[str, str]] | None = None,
        suggestions: Iterable[tuple[str, str]] | None = None,
        error: str | None = None,
        events: Iterable[Mapping[str, Any] | Event | float] | None = None,
        done: bool = True,
        pause: float | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Rule:
        """Script the answer to the next question.

        From *text*, *sources*, *suggestions* or *error*, the service makes an answer. It checks the
        request, counts it and names the thread as always. *events* are sent as they are.

        Args:
            text: The text of the answer.
            sources: Its sources, each a URL, or a pair of title and URL.
            suggestions: The pages it suggests, each a pair of title and path.
            error: The text of an ``error`` event that ends the answer.
            events: The stream events, as dicts or as events of this package. A number is a pause, in seconds.
            done: Whether ``[DONE]`` ends these events.
            pause: Seconds between two events. The default is none, or that of the service's ``AnswerStyle``.
            options: See :class:`AnswerOptions`.

        Raises:
            ConfigurationError: An argument is invalid, or two of them exclude each other.
        """
        content = None
        if any(one is not None for one in (text, sources, suggestions, error)):
            content = Content(
                text=text or "",
                sources=_links("sources", sources or ()),
                suggestions=_links("suggestions", suggestions or ()),
                error=error,
            )
            exact = ("events" if events is not None else None, *(name for name in EXACT if name in options))
            if other := next(filter(None, exact), None):
                raise ConfigurationError(
                    f"give text, sources, suggestions and error, or {other}, not both", field=other
                )
        answer = None
        if events is not None:
            if "json" in options or (options.get("body"), options.get("chunks")) != (None, None):
                raise ConfigurationError("give only one of events, json, body, chunks", field="events")
            headers, status = options.get("headers"), options.get("status") or 200
            answer = event_stream(events, headers=headers, pause=pause or 0.0, done=done, status=status)
        rule = self._add("ask", AnswerOptions, dict(options), answer)
        rule.content, rule.pause = content, pause
        return rule

    def create_job(self, **options: Unpack[PromptAnswerOptions]) -> Rule:
        """Script the response to the next creation of a job.

        Args:
            options: See :class:`AnswerOptions`. *fields* and *life* are also accepted.

        Raises:
            ConfigurationError: More than one of *json*, *body* and *chunks* is given, or *times* is below 1.
        """
        return self._add("create_job", PromptAnswerOptions, dict(options))

    def send_message(self, **options: Unpack[PromptAnswerOptions]) -> Rule:
        """Script the response to the next follow-up, with the arguments of :meth:`create_job`."""
        return self._add("send_message", PromptAnswerOptions, dict(options))

    def get_job(self, **options: Unpack[JobAnswerOptions]) -> Rule:
        """Script the response to the next poll, with the arguments of :meth:`create_job` except *life*."""
        return self._add("get_job", JobAnswerOptions, dict(options))

    def any(self, **options: Unpack[AnswerOptions]) -> Rule:
        """Script the response to the next request of any kind. See :class:`AnswerOptions`."""
        return self._add("any", AnswerOptions, dict(options))

    def job(self, *looks: str, times: int | None = 1, **life: Any) -> Rule:
        """Script the course of the next job.

        Args:
            looks: A status per poll, such as ``script.job("active", "completed")``. The last one stays.
            times: The number of jobs. None means until the returned rule is stopped.
            life: The arguments of :class:`JobLife`, such as ``script.job(seconds=60, outcome="failed")``.

        Raises:
            ConfigurationError: *times* is below 1, or an argument of the life is invalid.
            TypeError: ``JobLife`` has no such argument.
        """
        unknown = ", ".join(life.keys() - fields_dict(JobLife).keys())
        if unknown:
            raise TypeError(
                f"job() has no argument {unknown}: outcome='failed' says how the job ends, "
                "and job('active', 'failed') the status of each poll"
            )
        return self.create_job(life=JobLife(looks=looks, **life), times=times)

    def connect(self, fault: Fault, *, times: int | None = 1) -> Rule:
        """Let the next new connection fail before any request.

        A session that keeps its connections alive opens no new one.

        Args:
            fault: The failure of the connection.
            times: The number of connections. None means until the returned rule is stopped.

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
        """Queue *rules* behind the existing ones."""
        self._rules.extend(rules)

    def _add(
        self, operation: str, accepted: Any, options: dict[str, Any], answer: Answer | None = None
    ) -> Rule:
        accepts: dict[str, object] = accepted.__annotations__
        unknown = options.keys() - accepts.keys()
        if unknown:  # also found by type checkers
            raise TypeError(f"{operation}() has no argument {', '.join(sorted(unknown))}")
        if not isinstance(options.get("status", 200), int | None):
            other = '; a job has another one by script.job("active", "failed")' if "fields" in accepts else ""
            raise ConfigurationError(f"status is an HTTP status such as 503{other}", field="status")
        if not isinstance(options.get("fault"), Fault | None):
            raise ConfigurationError("fault must be a fault, such as faults.Cut(at=100)", field="fault")
        times = options.get("times", 1)
        if times is not None and times < 1:
            raise ConfigurationError("times must be at least 1, or None for no end", field="times")
        answer = answer or _exact_answer(operation, options)
        rule_options = {name: value for name, value in options.items() if name in KEPT and value is not None}
        rule = Rule(operation=operation, answer=answer, times=times, **rule_options)
        self._rules.append(rule)
        return rule


def _links(name: str, links: Iterable[str | tuple[str, str]]) -> list[tuple[str | None, str]]:
    """Return the title and the URL of each link."""
    if isinstance(links, str):
        raise ConfigurationError(f"{name} must be a list", field=name)
    return [(None, link) if isinstance(link, str) else (link[0], link[1]) for link in links]


def _exact_answer(operation: str, options: Mapping[str, Any]) -> Answer | None:
    """Return the response that the options describe, or None for the service's own response."""
    status: int | None = options.get("status")
    headers: Mapping[str, str] = options.get("headers") or {}
    body, chunks = options.get("body"), options.get("chunks")
    if ("json" in options) + (body is not None) + (chunks is not None) > 1:  # null is also a JSON document
        raise ConfigurationError("give only one of json, body, chunks", field="body")
    if "json" in options:
        return json_answer(status or 200, options["json"], headers)
    if body is not None:
        return Answer(status=status or 200, headers=headers, body=(to_bytes(body),) if body else ())
    if chunks is not None:
        pieces = to_pieces(chunks)
        return Answer(status=status or 200, headers=headers, body=pieces, chunked=True, separate=True)
    if status is None:
        return None
    if status == 429:
        return too_many_requests(headers or used_up())
    name = (
        "message" if operation in ("ask", "any") and status != 402 else "error"
    )  # the assistant's, the agent's
    return json_answer(status, {name: f"scripted status {status}"}, headers)


def replace_fields(answer: Answer, fields: Mapping[str, Any]) -> Answer:
    """Return *answer* with some replaced fields in its JSON document."""
    if not fields:
        return answer
    document: dict[str, Any] = json_module.loads(answer.content)
    return json_answer(answer.status, document | dict(fields), answer.headers)
