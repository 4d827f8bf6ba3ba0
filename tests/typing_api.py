"""What a type checker infers of the public calls: mypy and pyright read it in strict mode.

The reference pages are the snapshot of names, signatures and defaults. Here is what they do not show: what an
``await``, a loop, an overload or a ``match`` gives, and what a checker must refuse.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, assert_never, assert_type

import mintlify_async as m
from mintlify_async import events as e
from mintlify_async import messages as p
from mintlify_async.jobs.ledger import Claim
from mintlify_async.model.response_info import ResponseInfo
from mintlify_async.quota import QuotaRemaining
from mintlify_async.rendering.growing_messages import Edit
from mintlify_async.storage import Store


async def sessions() -> None:
    settings = m.MintlifySession(project_id="p", admin_key=lambda: "key", timeouts=m.Timeouts(idle=None))
    async with settings as session:
        assert_type(session, m.MintlifySession)
        assert_type(session.with_options(fp="user"), m.MintlifySession)
        assert_type(await session.quota_left("ask"), tuple[QuotaRemaining, ...])
        session.check("ask")  # type: ignore[arg-type]


def absence(part: p.ToolPart) -> str:
    return "it streams" if part.input is p.MISSING or part.output is e.MISSING else str(part.input)


async def jobs(session: m.MintlifySession) -> None:
    handle = await session.create_job("prompt", dedupe_key="key", headers={"a": "b"}, extra_body={"c": 1})
    assert_type(handle, m.JobHandle)
    assert_type(await handle, m.Job)
    assert_type((handle.job, handle.done), tuple[m.Job | None, bool])
    async for job in handle.watch(timeout=60):
        assert_type(job, m.Job)
    follow_up = await handle.send("more", on_active="wait")
    assert_type(follow_up, m.FollowUp)
    assert_type(await follow_up, m.Job)
    for name in ("ref", handle, follow_up.ref, await handle):
        assert_type(session.job(name), m.JobHandle)
    session.job(7)  # type: ignore[arg-type]
    assert_type(await session.run_job("prompt", on_created=print), m.Job)
    assert_type(await m.wait_all([handle]), list[m.Job])
    async for finished in m.as_completed([handle]):
        assert_type(finished, m.JobHandle)


async def questions(session: m.MintlifySession, page: Sequence[Mapping[str, Any]]) -> None:
    reply = session.ask("question", thread=m.Thread("id", "key"), filter=m.SearchFilter(language="en"))
    async for event in reply:
        assert_type(event, m.StreamEvent)
    async with session.ask(page, context=[{"type": "code", "value": "x"}]) as entered:
        assert_type(entered, m.Reply)
        async for text in entered.text_stream:
            assert_type(text, str)
    assert_type((reply.text, reply.message, reply.thread), tuple[str, m.Message | None, m.Thread | None])
    async with aclosing(session.ask({"role": "user", "content": "hi"})) as closing:
        assert_type(closing, m.Reply)
    async with aclosing(closing.text_stream) as closing_text:
        assert_type(await anext(closing_text), str)
    answer = await reply
    assert_type(answer, m.Answer)
    assert_type((answer.message, answer.sources), tuple[m.Message, list[m.AnswerSource]])
    # An answer is no stream, and frozen: both checkers report a comment that they do not need.
    async for _ in await session.ask("x"):  # type: ignore[attr-defined]
        pass
    answer.text = "x"  # type: ignore[misc]
    async for edit in session.ask("question").edits(every=1.2, limit=4096, tail=m.extras_markdown):
        assert_type(edit, Edit)


async def conversations(session: m.MintlifySession) -> None:
    chat = session.conversation(fp="user")
    assert_type(await chat.ask("question", current_path="/guide", context=[]), m.Answer)
    assert_type((chat.retry(), chat.fork()), tuple[m.Reply, m.Conversation])
    assert_type(m.Conversation.from_dict(session, chat.to_dict()), m.Conversation)


async def stores(path: str) -> None:
    every: list[Store] = [m.MemoryStore(), m.SQLiteStore(path)]
    async with m.MintlifySession(ledger=every[0], quota=m.Quota(store=every[1])) as session:
        assert_type(await session.create_job("prompt", dedupe_key="key"), m.JobHandle)
    assert_type(await m.Ledger(every[1]).open_claims(), list[Claim])
    assert_type((await m.Ledger(every[1]).jobs())[0].job_id, str)
    assert_type(await m.Conversation.ids(every[1], owner="ada"), list[str])
    async with aclosing(m.SQLiteStore(path)) as closing:
        assert_type(await closing.close(), None)


def errors(session: m.MintlifySession, error: Exception) -> None:
    match error:
        case m.APIStatusError():
            assert_type(error.status, int)
        case m.StateError() if error.answer is not None:
            assert_type(error.answer.sources, list[m.AnswerSource])
        case m.StreamError():
            assert_type((error.partial, error.text), tuple[m.Message | None, str])
            if error.partial is not None:
                assert_type(error.partial.to_wire(), dict[str, Any])
            if error.thread is not None:
                assert_type(error.thread.to_json(), str)
            session.ask("again", thread=error.thread)
        case m.JobFailedError():
            assert_type((error.job.model, error.job.raw), tuple[str | None, ResponseInfo | None])
            session.job(error.job)
        case m.JobTimeoutError():
            assert_type((error.ref.awaiting_turn, error.job), tuple[bool, m.Job | None])
            session.job(error.ref)
        case _:
            pass


def parts(part: p.MessagePart) -> None:
    """A checker proves that no part is forgotten; ``test_events`` compares the union of events."""
    match part:
        case p.TextPart() | p.ReasoningPart() | p.SteeringMessagePart() | p.StepStartPart():
            pass
        case p.DynamicToolPart() | p.ToolPart():
            assert_type(part.tool_name, str)
        case p.SourceUrlPart() | p.SourceDocumentPart() | p.FilePart() | p.ReasoningFilePart():
            pass
        case p.CustomPart() | p.DataPart() | p.UnknownPart():
            pass
        case _:
            assert_never(part)
