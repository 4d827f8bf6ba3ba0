"""Tracing: one span per operation, conventional attributes, no content by default, no context left behind."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip(
    "opentelemetry.instrumentation.aiohttp_client", reason="its instrumentation is not installed"
)

from opentelemetry import trace
from opentelemetry.instrumentation.aiohttp_client import create_trace_config
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mintlify_async import JobFailedError, OutcomeUnknownError, StreamInterruptedError
from mintlify_async.contrib.otel import OpenTelemetryObserver
from mintlify_async.testing import LocalService, VirtualClock
from mintlify_async.testing.faults import Close, Cut

EVENTS = [
    {"type": "start", "messageId": "m1"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hello"},
    {"type": "text-end", "id": "0"},
    {"type": "finish", "finishReason": "stop", "threadId": "t1"},
]


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
async def service():
    async with LocalService(clock=VirtualClock()) as service:
        yield service


@pytest.fixture
async def session(service, provider):
    async with service.session(observer=OpenTelemetryObserver(provider)) as session:
        yield session


def only(exporter):
    [span] = exporter.get_finished_spans()
    return span


async def test_an_answer_is_one_span_from_request_to_end(service, session, exporter):
    """Its thread, message, reason and address; open until the stream has ended."""
    service.script.ask(events=EVENTS)
    async with session.ask("a question") as reply:
        async for _ in reply:
            assert not trace.get_current_span().get_span_context().is_valid
            assert exporter.get_finished_spans() == ()
    span = only(exporter)
    assert span.name == "invoke_agent acme-docs"
    assert span.kind is SpanKind.CLIENT
    assert span.status.status_code is StatusCode.UNSET
    attributes = dict(span.attributes)
    assert attributes.pop("gen_ai.response.time_to_first_chunk") >= 0
    assert attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "mintlify",
        "gen_ai.agent.id": "acme-docs",
        "gen_ai.conversation.id": "t1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.id": "m1",
        "mintlify.operation": "ask",
        "server.address": "127.0.0.1",
        "server.port": service.port,
    }
    assert [event.name for event in span.events] == ["mintlify.first_event"]


async def test_content_is_captured_only_on_request(service, provider, exporter):
    """It may be personal."""
    service.script.ask(events=EVENTS)
    async with service.session(observer=OpenTelemetryObserver(provider, capture_content=True)) as session:
        await session.ask("a question")
        await session.create_job("a prompt")
    ask, create = exporter.get_finished_spans()
    assert ask.attributes["gen_ai.input.messages"] == "a question"
    assert ask.attributes["gen_ai.output.messages"] == "Hello"
    assert create.attributes["gen_ai.input.messages"] == "a prompt"


async def test_a_job_from_creation_to_its_end_is_one_span(session, exporter):
    """run_job: the creation and every poll belong to it."""
    job = await session.run_job("a secret prompt")
    span = only(exporter)
    assert span.name == "invoke_agent acme"
    assert span.attributes["mintlify.operation"] == "run_job"
    assert span.attributes["gen_ai.conversation.id"] == job.id
    assert span.attributes["mintlify.job.status"] == "completed"
    assert span.attributes["mintlify.job.pr_link"] == job.pr_link
    assert {event.name for event in span.events} == {"mintlify.poll"}
    assert span.events[-1].attributes["status"] == "completed"
    assert "secret" not in span.to_json()


async def test_separate_calls_are_separate_spans(session, exporter):
    """Creation, follow-up and wait."""
    job = await session.create_job("x")
    await job.wait()
    await (await job.send("y")).wait()
    operations = [span.attributes["mintlify.operation"] for span in exporter.get_finished_spans()]
    assert operations == ["create_job", "wait", "send_message", "wait"]
    assert all(span.attributes["gen_ai.conversation.id"] == job.id for span in exporter.get_finished_spans())


@pytest.mark.parametrize("fault", [Cut(60), None])
async def test_a_failure_ends_the_span_with_its_class(service, session, exporter, fault):
    """A cut stream, or one that was left."""
    service.script.ask(events=EVENTS, fault=fault)
    if fault is not None:
        with pytest.raises(StreamInterruptedError):
            await session.ask("x")
        assert only(exporter).status.status_code is StatusCode.ERROR
        assert only(exporter).attributes["error.type"] == "StreamInterruptedError"
    else:
        async with session.ask("x") as reply:
            await anext(reply)
        assert only(exporter).status.status_code is StatusCode.UNSET


async def test_failures_of_jobs(service, session, exporter):
    """Of unknown outcome, and failed at the service."""
    service.script.create_job(fault=Close())
    with pytest.raises(OutcomeUnknownError):
        await session.create_job("x")
    service.script.job("failed")
    with pytest.raises(JobFailedError):
        await session.run_job("x")
    kinds = [span.attributes["error.type"] for span in exporter.get_finished_spans()]
    assert kinds == ["OutcomeUnknownError", "JobFailedError"]


async def test_a_cancelled_call_ends_its_span(provider, exporter):
    """No span stays open."""
    async with (
        LocalService() as service,
        service.session(observer=OpenTelemetryObserver(provider)) as session,
    ):
        service.script.ask(events=EVENTS[:1], delay=60)
        task = asyncio.create_task(session.ask("x").run())
        while not service.requests:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert only(exporter).attributes["error.type"] == "CancelledError"


async def test_aiohttps_own_spans_are_children(service, provider, exporter):
    """Both instrumentations side by side, on a borrowed session."""
    import aiohttp

    config = create_trace_config(tracer_provider=provider)
    async with (
        aiohttp.ClientSession(trace_configs=[config]) as client,
        service.session(client_session=client, observer=OpenTelemetryObserver(provider)) as session,
    ):
        await session.ask("How do I log in?")
        await session.create_job("x")
    spans = exporter.get_finished_spans()
    ours = {s.context.span_id for s in spans if s.name.startswith("invoke_agent")}
    theirs = [s for s in spans if not s.name.startswith("invoke_agent")]
    assert len(ours) == len(theirs) == 2
    assert {span.parent.span_id for span in theirs} == ours


def test_nothing_is_imported_without_the_observer():
    """Free when absent."""
    import subprocess
    import sys

    code = (
        "import mintlify_async, sys; mintlify_async.MintlifySession(); print('opentelemetry' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
