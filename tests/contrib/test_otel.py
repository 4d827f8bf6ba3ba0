"""Tracing: one span per operation, conventional attributes, no content by default, no context left behind."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest

pytest.importorskip(
    "opentelemetry.instrumentation.aiohttp_client", reason="its instrumentation is not installed"
)

from opentelemetry import trace
from opentelemetry.instrumentation.aiohttp_client import create_trace_config
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, StaticSampler
from opentelemetry.trace import SpanKind, StatusCode

from mintlify_async import (
    AssistantError,
    AuthenticationError,
    JobFailedError,
    Message,
    OutcomeUnknownError,
    Quota,
    QuotaExceededError,
    StreamInterruptedError,
)
from mintlify_async.contrib.otel import SCHEMA_URL, OpenTelemetryObserver
from mintlify_async.messages import TextPart
from mintlify_async.testing import Close, Cut, LocalService

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
async def service(virtual):
    async with LocalService() as service:
        yield service


@pytest.fixture
async def session(service, provider):
    observer = OpenTelemetryObserver(provider)
    async with service.session(observer=observer) as session:
        yield session


@pytest.fixture
async def recording(service, provider):
    """A session whose spans have the content."""
    async with service.session(observer=OpenTelemetryObserver(provider, capture_content=True)) as session:
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
    assert attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "mintlify",
        "gen_ai.agent.id": "acme-docs",
        "gen_ai.agent.name": "acme-docs",
        "gen_ai.conversation.id": "t1",
        "gen_ai.response.finish_reasons": ("stop",),
        "mintlify.message_id": "m1",
        "mintlify.operation": "ask",
        "mintlify.request_id": "req_1",
        "server.address": "127.0.0.1",
        "server.port": service.port,
    }
    assert [event.name for event in span.events] == ["mintlify.attempt", "mintlify.first_event"]
    assert span.instrumentation_scope.schema_url == SCHEMA_URL


async def test_content_is_captured_only_on_request(service, recording, exporter):
    """The question is what a user said last. Each is a list of messages, as spans hold no nested values."""
    service.script.ask(events=EVENTS)
    begun = Message(id="m", role="assistant", parts=(TextPart(text="an answer to be continued"),))
    await recording.ask([Message.user("a question"), begun])
    await recording.create_job("a prompt")
    ask, create = exporter.get_finished_spans()
    assert json.loads(ask.attributes["gen_ai.input.messages"]) == [said("user", "a question")]
    assert json.loads(ask.attributes["gen_ai.output.messages"]) == [
        {**said("assistant", "Hello"), "finish_reason": "stop"}
    ]
    assert json.loads(create.attributes["gen_ai.input.messages"]) == [said("user", "a prompt")]


def said(role, text):
    return {"role": role, "parts": [{"type": "text", "content": text}]}


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([*EVENTS[:-1], {"type": "finish", "finishReason": "content-filter"}], "content_filter"),
        ([*EVENTS[:-1], {"type": "finish", "finishReason": "tool-calls"}], "tool_call"),
        ([*EVENTS[:-1], {"type": "finish"}], "unknown"),
        ([*EVENTS[:-1], {"type": "abort"}], "abort"),
        ([*EVENTS[:-1], {"type": "error", "errorText": "no"}], "error"),
    ],
)
async def test_a_message_says_why_it_ended(service, recording, exporter, events, reason):
    """The conventions require a reason and have words of their own for it."""
    service.script.ask(events=events)
    await asyncio.gather(recording.ask("x").run(), return_exceptions=True)
    [message] = json.loads(only(exporter).attributes["gen_ai.output.messages"])
    assert message == {**said("assistant", "Hello"), "finish_reason": reason}


async def test_what_a_sampler_needs_is_known_at_the_start(service, exporter):
    """The conventions name four attributes that the span has from its creation."""
    seen = {}

    class Sampler(StaticSampler):
        def should_sample(self, context, trace_id, name, kind, attributes, *rest):
            seen.update(attributes)
            return super().should_sample(context, trace_id, name, kind, attributes, *rest)

    provider = TracerProvider(sampler=Sampler(Decision.DROP))
    async with service.session(observer=OpenTelemetryObserver(provider)) as session:
        await session.ask("x")
    assert seen["gen_ai.operation.name"] == "invoke_agent"
    assert seen["gen_ai.provider.name"] == "mintlify"
    assert (seen["server.address"], seen["server.port"]) == ("127.0.0.1", service.port)


async def test_a_job_from_creation_to_its_end_is_one_span(service, session, exporter):
    """run_job: the creation and every poll belong to it."""
    job = await session.run_job("a secret prompt")
    span = only(exporter)
    assert span.name == "invoke_agent acme"
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "mintlify",
        "gen_ai.agent.id": "acme",
        "gen_ai.agent.name": "acme",
        "gen_ai.conversation.id": job.id,
        "mintlify.operation": "run_job",
        "mintlify.job.status": "completed",
        "mintlify.job.pr_link": job.pr_link,
        "mintlify.model": "local-stand-in",
        "server.address": "127.0.0.1",
        "server.port": service.port,
    }
    assert {event.name for event in span.events} == {"mintlify.attempt", "mintlify.poll"}
    assert span.events[-1].attributes["status"] == "completed"
    assert "secret" not in span.to_json()


async def test_a_failure_ends_the_span_with_its_class(service, session, exporter):
    """A cut stream, a job of unknown outcome, and one that failed at the service."""
    service.script.ask(events=EVENTS, fault=Cut(60))
    service.script.create_job(fault=Close())
    service.script.job("failed")
    kinds = [StreamInterruptedError, OutcomeUnknownError, JobFailedError]
    for kind, verb in zip(kinds, (session.ask, session.create_job, session.run_job), strict=True):
        with pytest.raises(kind):
            await verb("x")
    spans = exporter.get_finished_spans()
    assert [span.attributes["error.type"] for span in spans] == [kind.__name__ for kind in kinds]
    assert {span.status.status_code for span in spans} == {StatusCode.ERROR}
    assert spans[-1].attributes["mintlify.job.status"] == "failed"


async def read(stream):
    async for _ in stream:
        pass


async def read_in_block(reply):
    async with reply:
        await read(reply)


async def work_in_block(block):
    async with block as stream:
        async for _ in stream:
            await asyncio.Event().wait()


READS = {
    "in a block": read_in_block,
    "in a loop": read,
    "text": lambda reply: read(reply.text_stream),
    "whole": lambda reply: reply.run(),
    "work in a block": work_in_block,
    "edits": lambda reply: read(reply.edits()),
    "work in a block of edits": lambda reply: work_in_block(reply.edits()),
}


@pytest.mark.parametrize("events", [[100.0], [*EVENTS[:3], 100.0]], ids=["silent", "begun"])
@pytest.mark.parametrize("way", READS)
async def test_a_cancelled_reply_says_so(service, session, exporter, way, events):
    """Before its first event or after it, in a block or without, while it is read or not."""
    service.script.ask(events=events)
    task = asyncio.create_task(READS[way](session.ask("x")))
    while not service.answering:
        await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    for _ in range(20):
        await asyncio.sleep(0)
    assert only(exporter).attributes["error.type"] == "CancelledError"


async def leave_loop(stream):
    async for _ in stream:
        break


async def leave_block(block):
    async with block as stream:
        await anext(stream)


async def close(reply):
    await anext(reply)
    await reply.close()


async def go_on_after_a_timeout(reply):
    await anext(reply)
    await anext(reply)
    for _ in range(2):
        step = asyncio.create_task(anext(reply))
        await asyncio.sleep(0)
        step.cancel()
        await asyncio.wait([step])
        await anext(reply)


LEAVES = {
    "a loop": leave_loop,
    "a block": leave_block,
    "dropped": anext,
    "closed": close,
    "a loop of edits": lambda reply: leave_loop(reply.edits()),
    "a block of edits": lambda reply: leave_block(reply.edits()),
    "after timeouts": go_on_after_a_timeout,
}


@pytest.mark.parametrize("way", LEAVES)
async def test_a_reply_that_is_left_ends_its_span(service, session, exporter, way):
    """Without an error, because the application did not want more."""
    service.script.ask(events=[*EVENTS[:2], *[1.0, EVENTS[2]] * 200])
    await LEAVES[way](session.ask("x"))
    gc.collect()
    for _ in range(20):
        await asyncio.sleep(0)
    span = only(exporter)
    assert span.status.status_code is StatusCode.UNSET
    assert "error.type" not in span.attributes
    assert [event.name for event in span.events][:2] == ["mintlify.attempt", "mintlify.first_event"]


async def test_no_text_of_the_server_without_permission(service, session, recording, exporter):
    """An error's message may quote the service, which may quote the question."""
    for asking in (session, recording):
        service.script.ask(events=[*EVENTS[:3], {"type": "error", "errorText": "Ada lives in Rome"}])
        service.script.create_job(status=401, body={"error": "Ada lives in Rome"})
        with pytest.raises(AssistantError):
            await asking.ask("x")
        with pytest.raises(AuthenticationError):
            await asking.create_job("x")
    *private, asked, created = exporter.get_finished_spans()
    assert not any("Ada" in span.to_json() for span in private)
    assert [span.attributes["error.type"] for span in private] == ["AssistantError", "AuthenticationError"]
    assert private[1].attributes["http.response.status_code"] == 401
    assert all("Ada lives in Rome" in span.status.description for span in (asked, created))


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


async def test_separate_calls_are_separate_spans(service, session, exporter):
    """A creation, a wait, a follow-up and a look each have a span with the job's id and status."""
    job = await session.create_job("x")
    await job.wait()
    await job.send("y")
    await job.refresh()
    service.script.get_job(status=401)
    with pytest.raises(AuthenticationError):
        await job.refresh()
    spans = exporter.get_finished_spans()
    operations = [span.attributes["mintlify.operation"] for span in spans]
    assert operations == ["create_job", "wait", "send_message", "refresh", "refresh"]
    assert all(span.attributes["gen_ai.conversation.id"] == job.id for span in spans)
    assert spans[3].attributes["mintlify.job.status"] == job.status
    assert spans[4].attributes["error.type"] == "AuthenticationError"


async def test_metrics_of_questions_jobs_and_refusals(service, provider):
    """The conventions' histograms, and counters of operations and of refusals by limit."""
    reader = InMemoryMetricReader()
    observer = OpenTelemetryObserver(provider, meter_provider=MeterProvider([reader]))
    quota = Quota(ask_per_user=1)
    async with service.session(observer=observer, quota=quota) as session:
        service.script.ask(events=EVENTS)
        await session.ask("x", fp="ann")
        with pytest.raises(QuotaExceededError):
            await session.ask("x", fp="ann")
        await session.create_job("x")
    [resource] = reader.get_metrics_data().resource_metrics
    points = {m.name: list(m.data.data_points) for m in resource.scope_metrics[0].metrics}
    assert set(points) == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "mintlify.client.operations",
        "mintlify.client.refusals",
    }
    [refusal] = points["mintlify.client.refusals"]
    assert (refusal.value, refusal.attributes["mintlify.limit"]) == (1, "ask_per_user")
    assert sum(point.count for point in points["gen_ai.client.operation.duration"]) == 3
    assert [point.count for point in points["gen_ai.client.operation.time_to_first_chunk"]] == [1]
    counts = {
        (point.attributes["mintlify.operation"], point.attributes.get("error.type")): point.value
        for point in points["mintlify.client.operations"]
    }
    assert counts == {("ask", None): 1, ("ask", "QuotaExceededError"): 1, ("create_job", None): 1}
