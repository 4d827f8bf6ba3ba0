"""The save of a turn: nothing cuts it, and whoever comes next waits for it and gets its error."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import anyio
import pytest

from mintlify_async import AssistantError, Conversation, MemoryStore, StateError
from tests.support.conversation_kit import answer, questions

WORDS = "Press the red button."
FAILED = [*answer(WORDS)[:-2], {"type": "error", "errorText": "overloaded"}]
LIMITS = [0.01, 0.1, 0.4]
ALL_LIMITS = [0.01 * 1.15**number for number in range(27)]
"""Up to 0.4 s; a save takes 0.5 s, and the first limit that cuts it lets it go on for 0.25 s."""


class SlowStore(MemoryStore):
    """A store whose writes take *seconds*, and then fail if there is an *error*."""

    def __init__(self, seconds: float, error: Exception | None = None) -> None:
        super().__init__()
        self.seconds, self.error = seconds, error
        self.saving = asyncio.Event()

    async def write(self, *args, **options) -> bool:
        self.saving.set()
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return await super().write(*args, **options)


async def by_timeout(step: Awaitable[object], limit: float) -> object:
    async with asyncio.timeout(limit):
        return await step


async def by_scope(step: Awaitable[object], limit: float) -> object:
    with anyio.fail_after(limit):
        return await step


async def by_cancellation(step: Awaitable[object], limit: float) -> object:
    async def take() -> object:
        return await step

    task = asyncio.create_task(take())
    if not (await asyncio.wait([task], timeout=limit))[0]:
        task.cancel()
        await asyncio.wait([task])
    if task.cancelled():
        raise TimeoutError
    return task.result()


async def unlimited(step: Awaitable[object], limit: float) -> object:
    return await step


CUTS: list[Callable[[Awaitable[object], float], Awaitable[object]]] = [
    by_timeout,
    by_scope,
    by_cancellation,
    asyncio.wait_for,
]
WAYS = {
    "events": lambda reply, limit: reply,
    "text": lambda reply, limit: reply.text_stream,
    "edits": lambda reply, limit: aiter(reply.edits(every=limit)),
}


async def show(reply, way: str, cut, limit: float, *, block: bool) -> list[str]:
    """Read *reply* to its end, each step after the first with a limit. Return the names of the errors."""
    errors = []
    try:
        async with AsyncExitStack() as stack:
            if block:
                await stack.enter_async_context(reply)
            pieces = WAYS[way](reply, limit)
            await anext(pieces)  # a limit would end a question that is not answered yet
            while True:
                try:
                    await cut(anext(pieces), limit)
                except TimeoutError:
                    continue
                except StopAsyncIteration:
                    break
    except Exception as error:
        errors.append(type(error).__name__)
    return errors


async def show_edits(edits, shown: list[str]) -> None:
    async for edit in edits:
        shown.append(edit.text)


async def stored_questions(session, store: MemoryStore) -> list[str]:
    return questions(await session.conversation(fp="u", store=store, id="c").load())


def shows(limits):
    """Return every way to show an answer: how, what limits a step, the limit, in a block or not."""
    limited = itertools.product(WAYS, CUTS, limits, [True, False])
    return [*limited, *(("edits", unlimited, limit, block) for limit in limits for block in (True, False))]


@pytest.mark.parametrize(
    "limits", [LIMITS, pytest.param(ALL_LIMITS, marks=pytest.mark.sweep)], ids=["few", "all"]
)
@pytest.mark.parametrize("kind", ["stored", "refused", "failed"])
async def test_a_turn_that_was_shown_is_stored_or_an_error_says_so(service, session, kind, limits):
    """Also when a limit cuts the steps that save. So is the error of an answer that is saved in part."""
    service.script.ask(events=FAILED if kind == "failed" else answer(WORDS), times=None)

    async def one(way, cut, limit, block):
        store = SlowStore(0.5, OSError("disk full") if kind == "refused" else None)
        commit = "partial" if kind == "failed" else "finish"
        chat = session.conversation(fp="u", store=store, id="c", commit=commit)
        errors = await show(chat.ask("Hi"), way, cut, limit, block=block)
        return errors, await stored_questions(session, store)

    cases = shows(limits)
    results = await asyncio.gather(*(one(*case) for case in cases))
    expected = {
        "stored": ([], ["Hi"]),
        "refused": (["OSError"], []),
        "failed": (["AssistantError"], ["Hi"]),
    }[kind]
    wrong = [(case, result) for case, result in zip(cases, results, strict=True) if result != expected]
    assert wrong == []


@pytest.mark.parametrize("store", [None, "memory"])
async def test_an_error_that_comes_with_the_text_is_raised(service, session, store):
    """After half an answer, by edits that show it first."""
    service.script.ask(events=FAILED)
    store = MemoryStore() if store else None
    chat = session.conversation(fp="u", store=store, id="c", commit="partial")
    shown: list[str] = []
    with pytest.raises(AssistantError, match="overloaded"):
        await show_edits(chat.ask("Hi").edits(every=0.05), shown)
    assert shown[-1] == WORDS


async def test_a_task_that_swallowed_a_cancellation_is_in_no_hurry(service, session):
    """Its turn is stored as any other."""
    store = SlowStore(0.6)
    chat = session.conversation(fp="u", store=store, id="c")

    async def swallow_and_ask():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return await chat.ask("Hi")

    task = asyncio.create_task(swallow_and_ask())
    await asyncio.sleep(0)
    task.cancel()
    assert await task
    assert await stored_questions(session, store) == ["Hi"]


async def leave(chat, store: SlowStore) -> float:
    """Ask a question, and cancel the task while it saves. Return how long the task then took."""

    async def ask() -> None:
        async with chat.ask("Hi") as reply, reply.edits(every=0.05) as edits:
            async for _ in edits:
                pass

    task = asyncio.create_task(ask())
    await store.saving.wait()
    loop = asyncio.get_running_loop()
    began = loop.time()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    return loop.time() - began


async def test_the_next_turn_waits_for_the_save_of_a_cancelled_one(service, session):
    """The task leaves after a quarter of a second. Another object of the conversation waits, too."""
    store = SlowStore(0.7)
    chats = [session.conversation(fp="u", store=store, id="c") for _ in range(2)]
    assert await leave(chats[0], store) < 0.6
    store.seconds = 0  # of the next save
    await chats[1].ask("And then?")
    assert await stored_questions(session, store) == ["Hi", "And then?"]


async def test_the_next_turn_gets_the_error_of_the_save_once(service, session, caplog):
    """The question is not sent; it can be asked again."""
    store = SlowStore(0.5, OSError("disk full"))
    chat = session.conversation(fp="u", store=store, id="c")
    await leave(chat, store)
    with pytest.raises(OSError, match="disk full"):
        await chat.ask("And then?")
    assert service.requests.count("ask") == 1
    assert chat.unanswered.text == "Hi"
    store.seconds, store.error = 0, None
    await chat.ask("And then?")
    assert await stored_questions(session, store) == ["And then?"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_deletion_does_not_fail_because_a_save_did(service, session, caplog):
    """What was not saved is deleted anyway; the log has the error of the save."""
    store = SlowStore(0)
    chat = session.conversation(fp="u", store=store, id="c")
    await chat.ask("One")
    store.seconds, store.error = 0.5, OSError("disk full")
    store.saving.clear()
    await leave(chat, store)
    await asyncio.sleep(0.6)
    store.seconds, store.error = 0, None
    assert await chat.delete()
    assert await Conversation.ids(store, owner="u") == []
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == ["conversation 'c' was not saved"]


async def test_an_error_that_nobody_receives_is_logged_when_the_session_is_closed(service, caplog):
    """With the conversation's name. Closing waits for the save."""
    store = SlowStore(0.5, OSError("disk full"))
    async with service.session() as session:
        chat = session.conversation(fp="u", store=store, id="c")
        await leave(chat, store)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == ["conversation 'c' was not saved"]
    assert "disk full" in str(errors[0].exc_info[1])


async def test_closing_the_session_waits_for_the_save(service, session):
    """The turn of a task that has left is stored."""
    store = SlowStore(0.7)
    await leave(session.conversation(fp="u", store=store, id="c"), store)
    await session.close()
    async with service.session() as later:
        assert await stored_questions(later, store) == ["Hi"]


@pytest.mark.parametrize("commit", ["finish", "partial"])
async def test_a_turn_whose_session_is_closed_ends_within_a_second(service, commit):
    """At whatever moment, with a store of 20 ms: it is stored, or its error says that it is not."""
    events = [piece for event in answer(WORDS) for piece in (event, 0.005)]

    async def one(seconds: float) -> None:
        service.script.ask(events=events)
        session, store = service.session(), SlowStore(0.02)
        chat = session.conversation(fp="u", store=store, id="c", commit=commit)
        task = asyncio.create_task(chat.ask("Hi").run())
        await asyncio.sleep(seconds)
        await session.close()
        async with asyncio.timeout(1.0):
            result = (await asyncio.gather(task, return_exceptions=True))[0]
        saved = [message.text for message in chat.messages]
        assert saved or isinstance(result, Exception)
        assert commit == "partial" or len(saved) == (0 if isinstance(result, Exception) else 2)

    for number in range(8):
        await one(number * 0.015)


ENDS = {"error": 0.0, "cancelled": 0.0, "returned": 5.0}
"""Seconds until the next turn begins. A task that returned may have taken one step for another task."""


@pytest.mark.parametrize("way", ["events", "text"])
@pytest.mark.parametrize("end", ENDS)
async def test_a_turn_in_line_begins_when_the_task_before_has_ended(service, session, end, way):
    """Whatever keeps the task, its reply or its traceback."""
    chat = session.conversation(fp="u", busy="queue")
    kept, in_body = [], asyncio.Event()

    async def first() -> None:
        reply = chat.ask("One")
        kept.append(reply)
        async for _ in WAYS[way](reply, 0):
            in_body.set()
            if end == "cancelled":
                await asyncio.sleep(60)
            await asyncio.sleep(0.1)
            if end == "returned":
                return
            raise ValueError("the handler's own mistake")

    tasks = [asyncio.create_task(first())]
    await in_body.wait()
    tasks.append(asyncio.create_task(chat.ask("Two").run()))
    await asyncio.sleep(0.05)
    assert not tasks[1].done()
    if end == "cancelled":
        tasks[0].cancel()
    async with asyncio.timeout(3.0 + 3 * ENDS[end]):
        await asyncio.wait(tasks)
    assert questions(chat) == ["Two"]
    assert kept[0].closed
    with pytest.raises(StateError, match="another question started"):
        await anext(kept[0])


async def test_the_error_of_a_task_that_nobody_awaits_is_still_logged(service, session):
    """Asyncio reports it, also when the conversation watched the task."""
    chat = session.conversation(fp="u", busy="queue")
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reported.append(context["message"]))

    async def first() -> None:
        reply = chat.ask("One")  # the traceback keeps it
        async for _ in reply:
            await asyncio.sleep(0.05)
            raise ValueError("the handler's own mistake")

    task = asyncio.create_task(first())
    await asyncio.sleep(0.02)
    async with asyncio.timeout(10):
        await chat.ask("Two")
    assert task.done()
    del task
    gc.collect()
    assert reported == ["Task exception was never retrieved"]


async def test_a_turn_in_line_waits_for_the_task_that_reads_on(service, session):
    """The reading may continue in another task, and ``wait_for`` makes a task for each step."""
    service.script.ask(events=[piece for event in answer(WORDS) for piece in (event, 0.02)])
    chat = session.conversation(fp="u", busy="queue")
    reply = chat.ask("One")
    await asyncio.create_task(anext(reply))

    async def read_on() -> None:
        with suppress(StopAsyncIteration):
            for number in itertools.count():
                await (asyncio.wait_for(anext(reply), 10) if number % 2 else anext(reply))
                await asyncio.sleep(0.01)

    reading = asyncio.create_task(read_on())
    await asyncio.sleep(0.03)
    await asyncio.gather(reading, chat.ask("Two").run())
    assert questions(chat) == ["One", "Two"]


@pytest.mark.parametrize("result", [ValueError("my own mistake"), 5])
async def test_a_tail_that_fails_costs_no_text(service, session, result):
    """All text is shown, the error is raised, and the conversation is free."""
    service.script.ask(events=answer(WORDS))
    chat = session.conversation(fp="u")

    def tail(reply):
        if isinstance(result, Exception):
            raise result
        return result

    shown: list[str] = []
    reply = chat.ask("Hi")
    with pytest.raises((ValueError, AttributeError)):
        await show_edits(reply.edits(every=0, tail=tail), shown)
    assert shown[-1] == WORDS
    assert reply.closed
    assert not chat.busy
    await asyncio.create_task(chat.ask("And then?").run())
