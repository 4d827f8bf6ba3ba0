"""OpenTelemetry tracing (extra ``otel``): one ``invoke_agent`` span per operation, from request to end.

Install with ``pip install "mintlify-async[otel]"`` and give the session an observer::

    from mintlify_async.contrib.otel import OpenTelemetryObserver

    session = MintlifySession(observer=OpenTelemetryObserver())

The attributes follow the semantic conventions for generative AI; the table below has them all. Prompts and
answers are recorded only if *capture_content* is set. Spans of aiohttp's own instrumentation become children
of the span. While your code handles an event, the span is not the current one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final
from urllib.parse import urlsplit

from ..errors import APIStatusError, OutcomeUnknownError
from ..runtime.clock import Clock, SystemClock
from ..version import __version__
from . import extra_missing

try:
    from opentelemetry import trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
except ModuleNotFoundError as error:
    raise extra_missing("otel", error) from None

__all__ = ["ATTRIBUTES", "OpenTelemetryObserver"]

ATTRIBUTES: Final[Mapping[str, str]] = {
    "conversation_id": "gen_ai.conversation.id",  # the thread's id, or the job's
    "domain": "gen_ai.agent.id",
    "finish_reason": "gen_ai.response.finish_reasons",
    "input": "gen_ai.input.messages",  # only with capture_content
    "message_id": "gen_ai.response.id",
    "model": "gen_ai.response.model",
    "output": "gen_ai.output.messages",  # only with capture_content
    "pr_link": "mintlify.job.pr_link",
    "project_id": "gen_ai.agent.id",
    "request_id": "mintlify.request_id",
    "server_address": "server.address",
    "server_port": "server.port",
    "status": "mintlify.job.status",
    "operation": "mintlify.operation",
    "time_to_first_event": "gen_ai.response.time_to_first_chunk",  # seconds
}
"""The span's attribute for each fact. Every span has ``gen_ai.operation.name`` = ``invoke_agent``, too."""

Fact = str | int | float | bool
"""The value of an attribute."""

CONTENT: Final = frozenset(("input", "output"))


class OpenTelemetryObserver:
    """Makes one span per operation of a session.

    Args:
        tracer_provider: The provider of the tracer; the global one by default.
        capture_content: Record prompts, questions and answers on the span. Off by default, because they may
            hold personal data.
        clock: Measures the time to the first event; the system's clock by default.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        capture_content: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._tracer: Tracer = trace.get_tracer("mintlify_async", __version__, tracer_provider)
        self._capture = capture_content
        self._clock: Clock = clock or SystemClock()

    def start(self, operation: str, facts: Mapping[str, Fact]) -> _Operation:
        """Start a span."""
        who = facts.get("domain") or facts.get("project_id") or ""
        span = self._tracer.start_span(
            f"invoke_agent {who}".strip(),
            kind=SpanKind.CLIENT,
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "mintlify"},
        )
        made = _Operation(span, self._clock, capture=self._capture)
        made.set("operation", operation)
        for name, value in facts.items():
            made.set(name, value)
        return made


class _Operation:
    """An operation, with its open span."""

    def __init__(self, span: Span, clock: Clock, *, capture: bool) -> None:
        self._span = span
        self._clock = clock
        self._began = clock.now()
        self._capture = capture

    def active(self) -> AbstractContextManager[object]:
        """Return a block in which the span is the current one; only :meth:`end` records errors."""
        return trace.use_span(
            self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )

    def set(self, name: str, value: Fact) -> None:
        """Set the attribute that the conventions name for a fact."""
        if name in CONTENT and not self._capture:
            return
        if name == "base_url":
            self._server(str(value))
            return
        attribute = ATTRIBUTES.get(name, f"mintlify.{name}")
        self._span.set_attribute(attribute, [str(value)] if name == "finish_reason" else value)

    def _server(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self.set("server_address", parts.hostname or "")
        self.set("server_port", parts.port or (443 if parts.scheme == "https" else 80))

    def event(self, name: str, attributes: Mapping[str, Fact]) -> None:
        """Add an event to the span."""
        if name == "first_event":
            self.set("time_to_first_event", self._clock.now() - self._began)
        self._span.add_event(f"mintlify.{name}", dict(attributes))

    def end(self, error: BaseException | None = None) -> None:
        """End the span with the error's class and message, without a traceback, which may hold secrets."""
        if error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
            if isinstance(error, APIStatusError | OutcomeUnknownError) and error.status is not None:
                self._span.set_attribute("http.response.status_code", error.status)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end()
