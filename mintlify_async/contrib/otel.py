"""OpenTelemetry traces and metrics (extra ``otel``). Each operation has one ``invoke_agent`` span.

Install with ``pip install "mintlify-async[otel]"`` and give the session an observer::

    from mintlify_async.contrib.otel import OpenTelemetryObserver

    session = MintlifySession(observer=OpenTelemetryObserver())

The names, and the structure of messages, follow version 0.1.0 of OpenTelemetry's semantic conventions for
generative AI (``semantic-conventions-genai``). The conventions are still in development. Attributes that
these conventions do not have for an ``invoke_agent`` client span start with ``mintlify.``. Prompts, answers
and the texts of errors, which may quote them, are recorded only if *capture_content* is set. A cancelled
operation has ``error.type`` = ``CancelledError``. If you leave a reply before its end, the span has no error.
The span is the parent of aiohttp's spans. It is not the current span while your code handles an event.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final
from urllib.parse import urlsplit

from ..errors import APIStatusError, OutcomeUnknownError, QuotaExceededError, RateLimitError
from ..settings.options import Fact
from ..version import __version__
from ..wrong_names import helpful
from . import extra_missing

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
except ModuleNotFoundError as error:
    raise extra_missing("otel", error) from None

__all__ = ["OpenTelemetryObserver"]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai/0.1.0"
"""The version of the conventions that the spans follow."""

ATTRIBUTES: Final[Mapping[str, str]] = {
    "conversation_id": "gen_ai.conversation.id",  # the id of the thread or of the job
    "domain": "gen_ai.agent.id",  # also set as gen_ai.agent.name
    "finish_reason": "gen_ai.response.finish_reasons",
    "input": "gen_ai.input.messages",  # the question or prompt without the history, only with capture_content
    "output": "gen_ai.output.messages",  # only with capture_content
    "pr_link": "mintlify.job.pr_link",
    "project_id": "gen_ai.agent.id",  # also set as gen_ai.agent.name
    "server_address": "server.address",
    "server_port": "server.port",
    "status": "mintlify.job.status",
}
"""Maps facts to attributes of the span. Any other fact becomes ``mintlify.`` and its name."""

MEASURED: Final = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "mintlify.operation",
    "server.address",
    "server.port",
)
"""The attributes of all metrics."""

REASONS: Final = {"content-filter": "content_filter", "tool-calls": "tool_call"}
"""Maps finish reasons of the service to the words of the conventions, where the two differ."""


@helpful
class OpenTelemetryObserver:
    """Makes one span for each operation of a session.

    Args:
        tracer_provider: The provider of the tracer. The default is the global one.
        meter_provider: The provider of the meter. The default is the global one.
        capture_content: Whether to record prompts, questions, answers and the texts of errors on the span.
            The default is False, because they may contain personal data.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        meter_provider: MeterProvider | None = None,
        capture_content: bool = False,
    ) -> None:
        self._tracer: Tracer = trace.get_tracer("mintlify_async", __version__, tracer_provider, SCHEMA_URL)
        self._capture = capture_content
        self._instruments = _Instruments(meter_provider)

    def start(self, operation: str, facts: Mapping[str, Fact]) -> _Operation:
        """Start a span, with the attributes that a sampler can use."""
        attributes: dict[str, Fact | list[str]] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "mintlify",
            "mintlify.operation": operation,
        }
        holder = facts.get("domain") or facts.get("project_id")
        if holder:
            attributes["gen_ai.agent.name"] = holder
        for name, value in facts.items():
            attributes.update(_attributes(name, value, capture=self._capture))
        title = f"invoke_agent {holder or ''}".strip()
        span = self._tracer.start_span(title, kind=SpanKind.CLIENT, attributes=attributes)
        return _Operation(span, _Measured(self._instruments, operation, attributes), capture=self._capture)


class _Instruments:
    """The histograms and counters of an observer. The histograms are defined by the conventions."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = metrics.get_meter("mintlify_async", __version__, provider, SCHEMA_URL)
        self.duration = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "GenAI operation duration."
        )
        self.first_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", "Time to the first chunk of an answer."
        )
        self.operations = meter.create_counter(
            "mintlify.client.operations", "{operation}", "Questions, jobs and follow-ups."
        )
        self.refusals = meter.create_counter(
            "mintlify.client.refusals", "{refusal}", "Calls that a limit has refused."
        )


class _Measured:
    """The metrics of one operation. Their attributes have few values: no thread, no job and no text."""

    def __init__(
        self, instruments: _Instruments, operation: str, attributes: Mapping[str, Fact | list[str]]
    ) -> None:
        self._instruments = instruments
        self._operation = operation
        self._attributes = {name: attributes[name] for name in MEASURED if name in attributes}
        self._time = asyncio.get_running_loop().time  # any thread may call it
        self._start = self._time()

    def first_chunk(self) -> None:
        self._instruments.first_chunk.record(self._time() - self._start, self._attributes)

    def end(self, error: BaseException | None) -> None:
        attributes = dict(self._attributes)
        if error is not None:
            attributes["error.type"] = type(error).__name__
        self._instruments.duration.record(self._time() - self._start, attributes)
        if self._operation not in ("wait", "refresh"):
            self._instruments.operations.add(1, attributes)
        if isinstance(error, QuotaExceededError | RateLimitError):
            limit = getattr(error, "limit", None) or "service"
            self._instruments.refusals.add(1, {**self._attributes, "mintlify.limit": limit})


class _Operation:
    """An operation, with its open span."""

    def __init__(self, span: Span, measured: _Measured, *, capture: bool) -> None:
        self._span = span
        self._measured = measured
        self._capture = capture
        self._answer = self._reason = ""

    def active(self) -> AbstractContextManager[object]:
        """Return a block in which the span is the current span. Only :meth:`end` records errors."""
        return trace.use_span(
            self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )

    def set(self, name: str, value: Fact) -> None:
        """Set the attribute for a fact."""
        if name == "output":
            self._answer = str(value)
        elif name == "finish_reason":
            self._reason = str(value)
        self._span.set_attributes(_attributes(name, value, capture=self._capture))

    def event(self, name: str, attributes: Mapping[str, Fact]) -> None:
        """Add an event to the span."""
        self._span.add_event(f"mintlify.{name}", dict(attributes))
        if name == "first_event":
            self._measured.first_chunk()

    def end(self, error: BaseException | None = None) -> None:
        """End the span with the class of *error*.

        The error's text is recorded only with the content of messages, because it may quote them.
        """
        self._measured.end(error)
        if error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
            if isinstance(error, APIStatusError | OutcomeUnknownError) and error.status is not None:
                self._span.set_attribute("http.response.status_code", error.status)
            self._span.set_status(Status(StatusCode.ERROR, str(error) if self._capture else None))
        if self._answer and self._capture:
            reason = self._reason or ("error" if error is not None else "unknown")
            message = _message("assistant", self._answer, finish_reason=REASONS.get(reason, reason))
            self._span.set_attribute(ATTRIBUTES["output"], message)
        self._span.end()


def _attributes(name: str, value: Fact, *, capture: bool) -> dict[str, Fact | list[str]]:
    """Return the attributes for a fact. The answer's attribute is made at the end, with the finish reason."""
    if name == "base_url":
        parts = urlsplit(str(value))
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return {ATTRIBUTES["server_address"]: parts.hostname or "", ATTRIBUTES["server_port"]: port}
    if name == "output" or (name == "input" and not capture):
        return {}
    attribute = ATTRIBUTES.get(name, f"mintlify.{name}")
    if name == "input":
        return {attribute: _message("user", str(value))}
    return {attribute: [str(value)] if name == "finish_reason" else value}


def _message(role: str, text: str, **further: str) -> str:
    """Return a list with one message in the conventions' structure, as JSON. Spans have no nested values."""
    message = {"role": role, "parts": [{"type": "text", "content": text}], **further}
    return json.dumps([message], ensure_ascii=False)
