"""Scripted responses: rules for the service's responses to the next requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, Unpack, cast

from attrs import define, field

from ..errors import ConfigurationError
from ..wrong_names import helpful
from .assistant_answers import Content
from .connection_faults import Fault
from .http_response import Answer, Value, event_stream, json_answer, to_bytes, to_pieces, too_many_requests
from .local_jobs import JobLife
from .rate_limits import used_up
from .request_log import RecordedRequest

Body = bytes | str | Mapping[str, Any] | Iterable[Value] | Callable[[RecordedRequest], Answer]


class AnswerOptions(TypedDict, total=False):
    """The options of every method of :class:`Script`. Without an option, the service decides.

    Attributes:
        status: The HTTP status. Without *body*, the body has the error format of the service. A 429 also has
            ``Retry-After: 3600``, so that the request is not retried.
        headers: Additional headers.
        body: The body. Text and bytes are sent unchanged, and a dict as a JSON document. A list has one entry
            for each write: bytes, text, a stream event, or a pause in seconds. A function takes the request
            and returns the :class:`Answer`.
        fault: The failure while the response is sent. The request is still handled.
        delay: Seconds before the response.
        times: The number of requests (default: 1). None means until :meth:`Rule.stop`.
    """

    status: int | None
    headers: Mapping[str, str] | None
    body: Body | None
    fault: Fault | None
    delay: float
    times: int | None


class JobAnswerOptions(AnswerOptions, total=False):
    """The additional option of the agent's operations. *fields* replaces fields of the returned job."""

    fields: Mapping[str, Any]


class PromptAnswerOptions(JobAnswerOptions, total=False):
    """The additional option of ``create_job`` and ``send_message``. *life* sets the course of the job."""

    life: JobLife | None


@helpful
@define(kw_only=True, eq=False)
class Rule:
    """The response to some requests. The methods of :class:`Script` make and return rules.

    Attributes:
        operation: The operation, or ``any`` for all operations, or ``connect`` for new connections.
        content: The content of the service's own answer to a question. None means its search results.
        events: The stream events of the answer to a question. None means the service's own events.
        pause: Seconds between two events. None means the pause of the service's style.
        used: The number of requests up to now.

    The other attributes are as in :class:`AnswerOptions`.
    """

    operation: str
    status: int | None = None
    headers: Mapping[str, str] | None = None
    body: Body | None = None
    fault: Fault | None = None
    delay: float = 0.0
    times: int | None = 1
    fields: Mapping[str, Any] = field(factory=dict[str, Any])
    life: JobLife | None = None
    content: Content | None = None
    events: list[Value] | None = None
    pause: float | None = None
    used: int = 0

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.status, int | None):  # pyright: ignore[reportUnnecessaryIsInstance] - a slip
            raise ConfigurationError(
                'status is an HTTP status; script.job("active", "failed") sets the status of a job',
                field="status",
            )
        if self.times is not None and self.times < 1:
            raise ConfigurationError("times must be at least 1, or None for no limit", field="times")
        if not (self.body is None or callable(self.body) or isinstance(self.body, str | bytes | Mapping)):
            self.body = tuple(self.body)  # so that each request gets the same body

    @property
    def used_up(self) -> bool:
        """Whether the rule has no requests left."""
        return self.times is not None and self.used >= self.times

    def matches(self, operation: str) -> bool:
        """Return whether the rule answers requests of *operation*."""
        return self.operation == operation or (self.operation == "any" and operation != "connect")

    def stop(self) -> None:
        """End the rule now."""
        self.times = self.used

    def answer(self, request: RecordedRequest, own: Callable[[], Answer]) -> Answer:
        """Return the response to *request*. *own* returns the service's own response."""
        status, headers, body = self.status or 200, self.headers or {}, self.body
        if body is None:
            return self._without_body(status, headers, own)
        if isinstance(body, str | bytes):
            return Answer(status=status, headers=headers, body=(to_bytes(body),))
        if isinstance(body, Mapping):
            return json_answer(status, cast("Mapping[str, Any]", body), headers)
        if callable(body):
            return body(request)
        return Answer(status=status, headers=headers, body=to_pieces(body), chunked=True)

    def _without_body(self, status: int, headers: Mapping[str, str], own: Callable[[], Answer]) -> Answer:
        if self.events is not None:
            return event_stream(self.events, headers=headers, pause=self.pause, status=status)
        if self.status is None:
            answer = own().with_headers(headers)
            if not self.fields:
                return answer
            document: dict[str, Any] = json.loads(answer.content)
            return json_answer(answer.status, document | dict(self.fields), answer.headers)
        if status in (204, 304):
            return Answer(status=status, headers=headers)
        if status == 429:
            return too_many_requests(headers or used_up())
        # The errors of the assistant have another format than the errors of the agent.
        name = "message" if self.operation in ("ask", "any") and status != 402 else "error"
        return json_answer(status, {name: f"scripted status {status}"}, headers)


_HINTS = {"pause": "; delay= is the time before the response, in seconds", "seconds": "; use script.job()"}


def _check_options(method: str, options: Mapping[str, Any], allowed: type) -> None:
    """Refuse options that have no effect. A test with such an option could pass for the wrong reason."""
    names = list(allowed.__annotations__)
    for name in options:
        if name not in names:
            hint = _HINTS.get(name, f"; it takes {', '.join(names)}")
            raise ConfigurationError(f"script.{method} has no option {name}={hint}", field=name)
    given = {name for name, value in options.items() if value is not None}
    own = given & {"fields", "life"}
    other = given & {"status", "body"}
    if own and other:
        raise ConfigurationError(
            f"{min(own)} changes the service's own job: give no {min(other)} with it", field=min(own)
        )
    if callable(options.get("body")) and (unused := given & {"status", "headers"}):
        raise ConfigurationError(
            f"a function as body makes the complete Answer: give no {min(unused)} with it", field=min(unused)
        )


@helpful
class Script:
    r"""``service.script`` contains the scripted responses of a service.

    Each method queues one response, or several with ``times``. The rules of an operation are used in the
    order of the queue. After them, the service makes its own responses again.

    ::

        service.script.create_job(status=503, headers={"Retry-After": "7"}, times=2)
        service.script.ask("Press the button.", sources=["/login"])
        service.script.ask(error="overloaded")
        service.script.ask(events=[{"type": "start"}, 30.0, {"type": "finish"}])
        service.script.ask(body=[b"data: ", 0.5, b"[DONE]\n\n"])
        service.script.ask(fault=Cut(at=100, how="rst"))
        service.script.job(seconds=60, outcome="failed")
        down = service.script.any(status=503, times=None)
        ...
        down.stop()
    """

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    @property
    def rules(self) -> list[Rule]:
        """The rules that have requests left."""
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
        sources: Iterable[str | tuple[str, str]] = (),
        error: str | None = None,
        events: Iterable[Value] | None = None,
        pause: float | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Rule:
        """Script the answer to the next question.

        From *text*, *sources* and *error*, the service makes an answer. It checks and counts the request and
        names the thread as usual. *events* are sent unchanged, with ``[DONE]`` at the end. For a stream
        without ``[DONE]``, pass a list as *body*.

        Args:
            text: The text of the answer.
            sources: The sources. Each is a URL, or a pair of title and URL.
            error: The text of an ``error`` event that ends the answer.
            events: The stream events, as dicts or as events of this package. A number is a pause, in seconds.
            pause: Seconds between two events. The default is no pause, or the pause of the service's
                ``AnswerStyle``.
            options: See :class:`AnswerOptions`: *status*, *headers*, *body*, *fault*, *delay* (in seconds)
                and *times*.

        Raises:
            ConfigurationError: An argument is invalid or has no effect, or two arguments exclude each other.
        """
        _check_options("ask", options, AnswerOptions)
        content = None
        if text is not None or error is not None or sources:
            sources = [sources] if isinstance(sources, str) else sources
            links = [(None, one) if isinstance(one, str) else one for one in sources]
            content = Content(text=text or "", sources=links, error=error)
        if sum(one is not None for one in (content, events, options.get("body"))) > 1:
            raise ConfigurationError("pass either text/sources/error, or events, or body", field="body")
        if content is not None and options.get("status") is not None:
            raise ConfigurationError("a status replaces the answer: give no text with it", field="status")
        if pause is not None and (options.get("status") is not None or options.get("body") is not None):
            raise ConfigurationError(
                "pause is the time between the service's own events: with a body, write pauses into its list",
                field="pause",
            )
        own = None if events is None else list(events)
        return self._add(Rule(operation="ask", content=content, events=own, pause=pause, **options))

    def create_job(self, **options: Unpack[PromptAnswerOptions]) -> Rule:
        """Script the response to the next ``create_job``.

        Args:
            options: Each is optional.

                - *status*: the HTTP status of a refusal, such as 503. *headers*: additional headers.
                - *body*: text, bytes, a dict as JSON, a list with one entry per write, or a function of the
                  request.
                - *fault*: the failure while the response is sent.
                - *delay*: seconds before the response (default: 0).
                - *times*: the number of requests (default: 1). None means until :meth:`Rule.stop`.
                - *fields*: fields of the returned job to replace. *life*: the course of the job, as a
                  :class:`JobLife`.

        Raises:
            ConfigurationError: An option is invalid, or has no effect.
        """
        _check_options("create_job", options, PromptAnswerOptions)
        return self._add(Rule(operation="create_job", **options))

    def send_message(self, **options: Unpack[PromptAnswerOptions]) -> Rule:
        """Script the response to the next follow-up, with the arguments of :meth:`create_job`."""
        _check_options("send_message", options, PromptAnswerOptions)
        return self._add(Rule(operation="send_message", **options))

    def get_job(self, **options: Unpack[JobAnswerOptions]) -> Rule:
        """Script the response to the next poll, with the arguments of :meth:`create_job` except *life*."""
        _check_options("get_job", options, JobAnswerOptions)
        return self._add(Rule(operation="get_job", **options))

    def any(self, **options: Unpack[AnswerOptions]) -> Rule:
        """Script the response to the next request of any kind.

        The arguments are the same as for :meth:`create_job`, except *fields* and *life*.
        """
        _check_options("any", options, AnswerOptions)
        return self._add(Rule(operation="any", **options))

    def job(self, *looks: str, times: int | None = 1, **life: Any) -> Rule:
        """Script the course of the next job.

        Args:
            looks: A status for each poll, as in ``script.job("active", "completed")``. The last is repeated.
            times: The number of jobs. None means until the returned rule is stopped.
            life: The arguments of :class:`JobLife`, such as ``script.job(seconds=60, outcome="failed")``.

        Raises:
            ConfigurationError: *times* is below 1, or an argument of the life is invalid.
        """
        return self.create_job(life=JobLife(looks=looks, **life), times=times)

    def connect(self, fault: Fault, *, times: int | None = 1) -> Rule:
        """Make the next new connection fail before any request.

        A session that keeps its connections open needs no new connection.

        Args:
            fault: The failure of the connection: ``Reset``, ``Close``, ``NoAnswer`` or ``Raw``.
            times: The number of connections. None means until the returned rule is stopped.

        Raises:
            ConfigurationError: *times* is below 1.
        """
        return self._add(Rule(operation="connect", fault=fault, times=times))

    def extend(self, rules: Iterable[Rule]) -> None:
        """Queue *rules* after the existing rules."""
        self._rules.extend(rules)

    def _add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule
