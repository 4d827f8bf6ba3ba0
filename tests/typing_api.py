"""What a type checker makes of the public calls: read by mypy and pyright in strict mode, never run.

Each call of the surface has its ``assert_type``; a change of a signature that
a user's checker would notice fails here first.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, assert_never, assert_type

from mintlify_async import (
    AbortEvent,
    Answer,
    AnswerSource,
    APIStatusError,
    AssistantError,
    Assumptions,
    Conversation,
    Data,
    ErrorEvent,
    Finish,
    Job,
    JobFailedError,
    JobHandle,
    JobRef,
    JobTimeoutError,
    Ledger,
    MemoryStore,
    Message,
    MintlifySession,
    OutcomeUnknownError,
    PollPolicy,
    Quota,
    RateLimitError,
    ReasoningDelta,
    Reply,
    RetryPolicy,
    SearchFilter,
    SourceUrl,
    SQLiteStore,
    Start,
    StreamError,
    StreamEvent,
    TextDelta,
    Thread,
    Timeouts,
    ToolInputAvailable,
    ToolOutputAvailable,
    Turn,
    UnknownEvent,
    answer_markdown,
    as_completed,
    extras_markdown,
    split_markdown,
    split_suggestions,
    wait_all,
)
from mintlify_async.errors import PartialMessage
from mintlify_async.events import (
    Custom,
    File,
    FinishStep,
    MessageMetadata,
    ReasoningEnd,
    ReasoningFile,
    ReasoningStart,
    ResetStep,
    SourceDocument,
    StartStep,
    SteeringMessage,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolApprovalResponse,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolOutputDenied,
    ToolOutputError,
)
from mintlify_async.jobs.claims import Claim
from mintlify_async.messages import (
    CustomPart,
    DataPart,
    DynamicToolPart,
    FilePart,
    MessagePart,
    ReasoningFilePart,
    ReasoningPart,
    SourceDocumentPart,
    SourceUrlPart,
    SteeringMessagePart,
    StepStartPart,
    TextPart,
    ToolPart,
    UnknownPart,
)
from mintlify_async.model.response_info import ResponseInfo
from mintlify_async.quota import QuotaRemaining
from mintlify_async.rendering.edits import Edits
from mintlify_async.rendering.sources import Suggestion
from mintlify_async.rendering.splitting import Edit
from mintlify_async.storage import Store


async def sessions() -> None:
    async with MintlifySession(
        project_id="p",
        domain="d",
        admin_key=lambda: "key",
        assistant_key="key",
        retry=RetryPolicy(attempts=1),
        poll=PollPolicy(cap=10),
        timeouts=Timeouts(idle=None),
        quota=Quota(),
        assumptions=Assumptions(),
    ) as session:
        assert_type(session, MintlifySession)
        assert_type(session.closed, bool)
        assert_type(session.base_url, str)
        assert_type(session.with_options(fp="user"), MintlifySession)
        assert_type(session.check("agent", "assistant"), None)
        session.check("ask")  # type: ignore[arg-type]
        assert_type(await session.aclose(), None)
        assert_type(await session.close(), None)


async def jobs(session: MintlifySession) -> None:
    handle = await session.create_job("prompt", dedupe_key="key", headers={"a": "b"}, extra_body={"c": 1})
    assert_type(handle, JobHandle)
    assert_type(await handle, Job)
    assert_type(await handle.wait(timeout=None, check=False), Job)
    assert_type(await handle.refresh(), Job)
    assert_type(handle.job, Job | None)
    assert_type(handle.status, str | None)
    assert_type(handle.pr_link, str | None)
    assert_type((handle.done, handle.active, handle.completed), tuple[bool, bool, bool])
    assert_type((handle.archived, handle.failed), tuple[bool, bool])
    assert_type(handle.ref, JobRef)
    async for seen in handle.watch(timeout=60):
        assert_type(seen, Job)
    turn = await handle.send("more", on_active="wait")
    assert_type(turn, Turn)
    assert_type(await turn, Job)
    assert_type(session.job("ref"), JobHandle)
    assert_type(session.job(handle), JobHandle)
    assert_type(session.job(turn.ref), JobHandle)
    assert_type(session.job(await handle), JobHandle)
    session.job(7)  # type: ignore[arg-type]
    assert_type(JobRef.parse("ref"), JobRef)
    assert_type(await session.run_job("prompt", on_created=print), Job)
    assert_type(await wait_all([handle]), list[Job])
    assert_type(await wait_all([handle], return_exceptions=True), list[Job | Exception])
    async for finished in as_completed([handle]):
        assert_type(finished, JobHandle)


def records(job: Job) -> None:
    assert_type(job.id, str)
    assert_type(job.status, str)
    assert_type((job.done, job.active, job.completed), tuple[bool, bool, bool])
    assert_type((job.archived, job.failed), tuple[bool, bool])
    assert_type(job.raw, ResponseInfo | None)
    assert_type(job.to_wire(), dict[str, Any])
    assert_type(Job.from_wire({}), Job)


async def questions(session: MintlifySession, page_messages: Sequence[Mapping[str, Any]]) -> None:
    reply = session.ask("question", thread=Thread("id", "key"), filter=SearchFilter(language="en"))
    assert_type(reply, Reply)
    async for event in reply:
        assert_type(event, StreamEvent)
    async with session.ask(page_messages, context=[{"type": "code", "value": "x"}]) as entered:
        assert_type(entered, Reply)
        async for text in entered.text_stream:
            assert_type(text, str)
    assert_type(reply.text, str)
    assert_type(reply.message, Message | None)
    assert_type(reply.thread, Thread | None)
    assert_type(reply.answer, Answer)
    assert_type(reply.request_id, str | None)
    assert_type(await reply.run(), Answer)
    assert_type(await reply.close(), None)
    assert_type(await reply.aclose(), None)
    async with aclosing(session.ask({"role": "user", "content": "hi"})) as closing:
        assert_type(closing, Reply)
    async with aclosing(closing.text_stream) as closing_text:
        assert_type(await anext(closing_text), str)
    whole = await reply
    assert_type(whole, Answer)
    assert_type(whole.text, str)
    assert_type(whole.message, Message)
    assert_type(whole.thread, Thread | None)
    assert_type(whole.thread_id, str | None)
    assert_type(whole.sources, list[AnswerSource])
    assert_type(whole.suggestions, list[Suggestion])
    assert_type(whole.site, str | None)
    assert_type(whole.finish_reason, str | None)
    assert_type((whole.aborted, whole.abort_reason), tuple[bool, str | None])
    assert_type(whole.response, ResponseInfo | None)
    assert_type(whole.events_seen, int)
    assert_type(whole.request_id, str | None)
    # An answer is no stream, and frozen: both checkers report a comment that they do not need.
    async for _ in await session.ask("x"):  # type: ignore[attr-defined]
        pass
    whole.text = "x"  # type: ignore[misc]
    body, suggestions = split_suggestions(whole.text)
    assert_type(body, str)
    for suggestion in suggestions:
        assert_type(suggestion.title, str)


async def conversations(session: MintlifySession) -> None:
    chat = session.conversation(fp="user")
    assert_type(chat, Conversation)
    assert_type(chat.ask("question", current_path="/guide", context=[]), Reply)
    assert_type(await chat.ask("question"), Answer)
    assert_type(chat.retry(), Reply)
    assert_type(chat.thread, Thread | None)
    assert_type(chat.messages, tuple[Message, ...])
    assert_type(chat.unanswered, Message | None)
    assert_type(await chat.undo(), list[Message])
    assert_type(chat.fork(), Conversation)
    assert_type(await chat.load(), Conversation)
    assert_type(await chat.delete(), bool)
    assert_type(Conversation.from_dict(session, chat.to_dict()), Conversation)


async def surfaces(session: MintlifySession) -> None:
    edits = session.ask("question").edits(every=1.2, limit=4096, tail=extras_markdown)
    assert_type(edits, Edits)
    async for edit in edits:
        assert_type(edit, Edit)
        assert_type((edit.index, edit.text, edit.delta, edit.final), tuple[int, str, str, bool])
    assert_type(split_markdown("text", 4096), list[str])
    assert_type(answer_markdown(await session.ask("question"), site="https://docs.example"), str)
    stores: list[Store] = [MemoryStore(), SQLiteStore("chats.sqlite")]
    assert_type(await Conversation.ids(stores[0], owner="ada"), list[str])


def errors(session: MintlifySession, error: Exception) -> None:
    match error:
        case RateLimitError():
            assert_type(error.retry_after, float | None)
        case APIStatusError():
            assert_type(error.status, int)
        case OutcomeUnknownError():
            assert_type(error.status, int | None)
        case AssistantError():
            assert_type(error.error_text, str)
        case StreamError():
            assert_type(error.partial, PartialMessage | None)
            assert_type(error.text, str)
            session.ask("again", thread=error.thread)
        case JobFailedError():
            assert_type((error.job.id, error.job.status, error.job.pr_link), tuple[str, str, str | None])
            assert_type(session.job(error.job), JobHandle)
        case JobTimeoutError():
            assert_type((error.ref.project_id, error.ref.id), tuple[str, str])
            assert_type(session.job(error.ref), JobHandle)
        case _:
            pass


def exhaustive(event: StreamEvent) -> str:
    """A checker proves that no event of the union is forgotten."""
    match event:
        case Start() | StartStep() | FinishStep() | ResetStep() | MessageMetadata() | SteeringMessage():
            return "steps"
        case TextStart() | TextDelta() | TextEnd():
            return "text"
        case ReasoningStart() | ReasoningDelta() | ReasoningEnd() | ReasoningFile():
            return "reasoning"
        case ToolInputStart() | ToolInputDelta() | ToolInputAvailable() | ToolInputError():
            return "tool input"
        case ToolOutputAvailable() | ToolOutputError() | ToolOutputDenied():
            return "tool output"
        case ToolApprovalRequest() | ToolApprovalResponse():
            return "approval"
        case SourceUrl() | SourceDocument() | File() | Data() | Custom():
            return "other parts"
        case Finish() | AbortEvent() | ErrorEvent():
            return "the end"
        case UnknownEvent():
            return "newer than this version"
        case _:
            assert_never(event)


def parts(part: MessagePart) -> str:
    """The same for the parts of a message."""
    match part:
        case TextPart() | ReasoningPart() | SteeringMessagePart():
            return "said"
        case DynamicToolPart() | ToolPart():
            assert_type(part.tool_name, str)
            return "tools"
        case SourceUrlPart() | SourceDocumentPart() | FilePart() | ReasoningFilePart():
            return "elsewhere"
        case CustomPart() | DataPart() | StepStartPart() | UnknownPart():
            return "the rest"
        case _:
            assert_never(part)


async def at_most_once(path: str) -> None:
    store: Store = SQLiteStore(path)
    async with MintlifySession(ledger=store) as session:
        assert_type(await session.create_job("prompt", dedupe_key="key"), JobHandle)
    assert_type(await Ledger(store).open_claims(), list[Claim])
    assert_type(await Ledger(MemoryStore()).find("key"), Claim | None)
    async with aclosing(SQLiteStore(path)) as closing, aclosing(SQLiteStore(path)):
        assert_type(await closing.close(), None)


async def watched() -> None:
    async with MintlifySession() as session:
        assert_type(await session.quota_left("ask"), tuple[QuotaRemaining, ...])
