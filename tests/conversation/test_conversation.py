"""Conversations: what is committed, what is rolled back, whose turn it is, what is sent."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest

from mintlify_async.conversation.conversation import Conversation
from mintlify_async.errors import (
    AssistantError,
    ConfigurationError,
    NotFoundError,
    RateLimitError,
    ServerError,
    StateError,
    StoreConflictError,
    StreamInterruptedError,
)
from mintlify_async.events import Finish, TextDelta
from mintlify_async.messages import FilePart, Message, TextPart
from mintlify_async.model.question import ContextItem
from mintlify_async.model.thread import Thread
from mintlify_async.storage import (
    MemoryConversationStore,
    SQLiteConversationStore,
    StoredConversation,
)
from mintlify_async.testing import LocalService, ThreadStyle, VirtualClock
from mintlify_async.testing.faults import Cut


@pytest.fixture
async def clock():
    return VirtualClock()


@pytest.fixture
async def service(clock):
    async with LocalService(clock=clock) as service:
        yield service


@pytest.fixture
async def session(service):
    async with service.session() as session:
        yield session


def body(service, index: int = -1) -> dict:
    return json.loads(service.requests[index].body)


def sent(service, index: int = -1) -> list[tuple[str, str]]:
    """Return role and text of the messages that a request carried."""
    return [
        (message["role"], "".join(part.get("text", "") for part in message["parts"]))
        for message in body(service, index)["messages"]
    ]


def answer(text: str, *, id: str = "m", **finish) -> list[dict]:
    return [
        {"type": "start", "messageId": id},
        {"type": "text-start", "id": "0"},
        *({"type": "text-delta", "id": "0", "delta": word + " "} for word in text.split()),
        {"type": "text-end", "id": "0"},
        {"type": "finish", "finishReason": "stop", **finish},
    ]


def roles(chat: Conversation) -> list[str]:
    return [message.role for message in chat.messages]


# The thread -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id_in", "key_in"),
    [
        ({"header"}, {"header"}),
        ({"finish"}, {"finish"}),
        ({"metadata"}, {"metadata"}),
        ({"data"}, {"data"}),
        ({"header", "finish"}, {"header"}),
        ({"finish"}, {"header"}),
        ({"metadata"}, {"header"}),
        ({"header", "finish", "metadata", "data"}, {"metadata"}),
    ],
)
async def test_the_thread_goes_on_wherever_its_key_was(clock, id_in, key_in):
    """The key comes once, with the first answer; three more turns carry it in their bodies."""
    threads = ThreadStyle(id_in=id_in, key_in=key_in)
    async with LocalService(clock=clock, threads=threads) as service, service.session() as session:
        chat = session.conversation(fp="ada")
        questions = ["How do I install it?", "And then?", "And on Windows?", "Why?"]
        for question in questions:
            await chat.ask(question)
        (thread,) = service.threads.values()
        assert thread.questions == questions
        assert chat.thread == Thread(thread.id, thread.key)
        assert "threadId" not in body(service, 0)
        for index in (1, 2, 3):
            assert body(service, index)["threadId"] == thread.id
            assert body(service, index)["threadKey"] == thread.key


async def test_a_thread_without_its_key_is_explained(service, session):
    """The service answers 404; the error says what is missing, and nothing is committed."""
    first = await session.ask("How do I install it?")
    chat = session.conversation(thread=first.thread_id)
    with pytest.raises(NotFoundError, match="without its key"):
        await chat.ask("And then?")
    assert chat.messages == ()
    assert chat.thread == Thread(first.thread_id)


async def test_a_thread_that_is_gone_can_be_forgotten(service, session):
    """The history is carried into a new thread."""
    chat = session.conversation()
    await chat.ask("How do I install it?")
    service.threads.clear()
    with pytest.raises(NotFoundError):
        await chat.ask("And then?")
    chat.forget_thread()
    reply = await chat.retry()
    assert "How do I install it?" in reply.text
    assert chat.thread == Thread("thread_1", service.threads["thread_1"].key)
    assert len(chat.messages) == 4


async def test_the_key_shows_nowhere(service, session):
    """Not in the repr, nor in the messages that are sent or stored; only where the thread is kept."""
    chat = session.conversation(fp="ada")
    await chat.ask("How do I install it?")
    key = chat.thread.key
    assert key not in repr(chat)
    assert key not in repr(chat.messages)
    assert chat.to_dict()["thread"] == {"threadId": "thread_1", "threadKey": key}
    assert key not in json.dumps(chat.to_dict()["messages"])


# Committing -----------------------------------------------------------------------------------


async def test_nothing_changes_before_the_reply_is_entered(service, session):
    """Asking makes a reply, no request and no turn."""
    chat = session.conversation()
    replies = [chat.ask("How do I install it?") for _ in range(3)]
    assert (chat.messages, chat.busy, len(service.requests)) == ((), False, 0)
    await replies[1]
    assert roles(chat) == ["user", "assistant"]


async def test_history_is_sent_with_each_question(service, session):
    """Questions and answers, oldest first, each with the id that it had before."""
    chat = session.conversation(fp="ada")
    first = await chat.ask("How do I install it?")
    await chat.ask("And then?")
    assert sent(service) == [
        ("user", "How do I install it?"),
        ("assistant", first.text),
        ("user", "And then?"),
    ]
    assert body(service)["fp"] == "ada"
    ids = [message["id"] for message in body(service)["messages"]]
    assert ids == [message.id for message in chat.messages[:3]]
    assert all(ids)


async def test_the_turn_is_committed_before_finish_is_handed_out(service, session):
    """Whoever stops reading at ``finish`` has the turn, and may ask the next question."""
    chat = session.conversation()
    reply = chat.ask("How do I install it?")
    async for event in reply:
        if isinstance(event, Finish):
            assert roles(chat) == ["user", "assistant"]
            break
        assert chat.messages == ()
    await chat.ask("And then?")
    assert roles(chat) == ["user", "assistant"] * 2


async def test_what_comes_after_finish_still_counts(service, session):
    """The stream's last word on the thread and the message may come late."""
    late = [{"type": "data-thread", "data": {}, "threadId": "late", "threadKey": "secret"}]
    service.script.ask(events=[*answer("Hello"), *late])
    chat = session.conversation()
    await chat.ask("Hi")
    assert chat.thread == Thread("late", "secret")
    assert [part.type for part in chat.messages[1].parts] == ["text", "data-thread"]
    assert len(chat.messages) == 2


async def test_done_without_finish_is_an_end(service, session):
    """``[DONE]`` alone ends an answer in order, too."""
    service.script.ask(events=answer("Hello")[:-1])
    chat = session.conversation()
    await chat.ask("Hi")
    assert roles(chat) == ["user", "assistant"]


async def test_an_answer_without_an_id_gets_one(service, session):
    """Also one whose id is in the history already: ids name one message each."""
    chat = session.conversation()
    service.script.ask(events=answer("One")[1:])
    service.script.ask(events=answer("Two", id="same"))
    service.script.ask(events=answer("Three", id="same"))
    for _ in range(3):
        await chat.ask("Next")
    ids = [message.id for message in chat.messages]
    assert all(ids)
    assert len(set(ids)) == 6
    assert ids[3] == "same"


# Rolling back -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ({"events": answer("Half an answer")[:-2], "done": False}, StreamInterruptedError),
        ({"fault": Cut(at=-200, how="rst")}, StreamInterruptedError),
        ({"events": [*answer("Half")[:-2], {"type": "error", "errorText": "overloaded"}]}, AssistantError),
        ({"status": 429, "headers": {"Retry-After": "9999"}}, RateLimitError),
        ({"status": 503}, ServerError),
    ],
)
async def test_a_turn_that_fails_leaves_no_trace(service, session, script, error):
    """Cut, failed or refused: history and thread are as before, and the question keeps its id."""
    chat = session.conversation()
    await chat.ask("How do I install it?")
    before, thread = chat.messages, chat.thread
    service.script.ask(**script)
    with pytest.raises(error):
        await chat.ask("And then?")
    assert (chat.messages, chat.thread, chat.busy) == (before, thread, False)
    failed = chat.unanswered
    assert failed.text == "And then?"
    await chat.ask("And then?")
    assert chat.messages[2] == failed
    assert [body(service, index)["messages"][-1]["id"] for index in (-2, -1)] == [failed.id] * 2
    assert chat.unanswered is None


async def test_an_aborted_answer_is_not_committed(service, session):
    """The service broke it off: the reply says so, the history does not have it."""
    service.script.ask(events=[*answer("Half")[:-2], {"type": "abort", "reason": "moderation"}])
    chat = session.conversation()
    reply = await chat.ask("Hi")
    assert reply.aborted
    assert chat.messages == ()
    assert chat.unanswered.text == "Hi"


async def test_a_turn_that_is_broken_off_leaves_no_trace(service, session):
    """By leaving the block, by closing, by cancelling, and by forgetting the reply."""
    chat = session.conversation()

    async def leave_block() -> None:
        async with chat.ask("Hi") as reply:
            await anext(reply)

    async def close() -> None:
        reply = chat.ask("Hi")
        await anext(reply)
        await reply.close()

    async def forget() -> None:
        async for _ in chat.ask("Hi"):
            break

    async def cancel() -> None:
        service.script.ask(events=[*answer("Half")[:-2], 100.0])
        task = asyncio.create_task(chat.ask("Hi").run())
        while not service.requests or not service.answering:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for way in (leave_block, close, forget, cancel):
        await way()
        gc.collect()
        assert chat.messages == ()
        assert not chat.busy, way
        assert chat.unanswered.text == "Hi"
    await chat.retry()
    assert len(chat.messages) == 2


async def test_closing_the_session_rolls_back(service):
    """The answer is cut, and the turn is not kept."""
    async with service.session() as session:
        chat = session.conversation()
        service.script.ask(events=[*answer("Half")[:-2], 100.0])
        async with chat.ask("Hi") as reply:
            await anext(reply)
            await session.close()
            with pytest.raises(StreamInterruptedError):
                await reply.final()
        assert (chat.messages, chat.busy) == ((), False)


async def test_retry_asks_the_same_with_the_same(service, session):
    """The same message, id and options; new options replace them."""
    chat = session.conversation()
    service.script.ask(status=500, times=2)
    with pytest.raises(ServerError):
        await chat.ask("Hi", current_path="/guide", context=[ContextItem("code", "x = 1")])
    with pytest.raises(ServerError):
        await chat.retry()
    assert body(service, -1) == body(service, -2)
    await chat.retry(current_path="/other")
    assert body(service)["currentPath"] == "/other"
    assert "context" not in body(service)
    with pytest.raises(StateError, match="no question to ask again"):
        chat.retry()


async def test_partial_by_choice(service, session):
    """With ``commit="partial"`` an answer that was broken off after some text is kept, with its thread."""
    chat = session.conversation(commit="partial")
    service.script.ask(
        events=answer("Half an")[:-2], done=False, headers={"X-Thread-Id": "t", "X-Thread-Key": "k"}
    )
    with pytest.raises(StreamInterruptedError):
        await chat.ask("Hi")
    assert [message.text for message in chat.messages] == ["Hi", "Half an "]
    assert chat.thread == Thread("t", "k")
    chat.forget_thread()
    async with chat.ask("How do I install it?") as reply:
        async for text in reply.text_stream:
            assert text
            break
    assert len(chat.messages) == 4


async def test_partial_needs_text(service, session):
    """A refusal, or an end before the first word, has nothing to be kept."""
    chat = session.conversation(commit="partial")
    service.script.ask(status=500)
    with pytest.raises(ServerError):
        await chat.ask("Hi")
    service.script.ask(events=[{"type": "start", "messageId": "m"}], done=False)
    with pytest.raises(StreamInterruptedError):
        await chat.ask("Hi")
    assert chat.messages == ()


async def test_partial_when_cancelled(service, session):
    """What was on the screen when the user stopped it is remembered, in the store too."""
    store = MemoryConversationStore()
    chat = session.conversation(commit="partial", store=store, id="c")
    service.script.ask(events=[*answer("Half an")[:-2], 100.0])

    async def read() -> None:
        async with chat.ask("Hi") as reply:
            async for event in reply:
                if isinstance(event, TextDelta) and event.delta == "an ":
                    task.cancel()

    task = asyncio.create_task(read())
    with pytest.raises(asyncio.CancelledError):
        await task
    again = await session.conversation(store=store, id="c").load()
    assert [message.text for message in again.messages] == ["Hi", "Half an "]


# One turn at a time ------------------------------------------------------------------------------


async def test_a_second_turn_is_refused(service, session):
    """By default; the first goes on unharmed."""
    chat = session.conversation()
    async with chat.ask("How do I install it?") as reply:
        assert chat.busy
        with pytest.raises(StateError, match="busy with another turn"):
            await chat.ask("And then?")
        with pytest.raises(StateError, match="busy"):
            await chat.undo()
        with pytest.raises(StateError, match="busy"):
            chat.forget_thread()
        await reply
    assert len(chat.messages) == 2
    assert len(service.requests) == 1


async def test_a_cancelled_reader_does_not_block_the_next(service, session):
    """Cancelled outside a block, while its task and its traceback are still held."""
    chat = session.conversation()
    service.script.ask(events=[*answer("Half")[:-2], 1000.0])

    async def read() -> None:
        async for _ in chat.ask("Hi"):
            pass

    task = asyncio.create_task(read())
    while not chat.busy or not service.answering:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    await chat.ask("How do I install it?")
    assert [message.text for message in chat.messages if message.role == "user"] == ["How do I install it?"]
    assert caught.value is not None


async def test_turns_wait_in_line(service, session):
    """With ``busy="queue"``: in the order of their entering, each with the history before it."""
    chat = session.conversation(busy="queue")
    await asyncio.gather(*(chat.ask(f"Question {n}?").run() for n in range(5)))
    asked = [text for role, text in sent(service) if role == "user"]
    assert asked == [f"Question {n}?" for n in range(5)]
    assert [len(body(service, n)["messages"]) for n in range(5)] == [1, 3, 5, 7, 9]
    assert roles(chat) == ["user", "assistant"] * 5


async def test_leaving_the_line(service, session):
    """Who is cancelled or fails while waiting or running lets the next one through."""
    chat = session.conversation(busy="queue")
    service.script.ask()
    service.script.ask(status=500)
    async with chat.ask("First") as first:
        waiting = [asyncio.create_task(chat.ask(f"Waiting {n}").run()) for n in range(4)]
        for _ in range(5):
            await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[2].cancel()
        await first.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result).__name__ for result in results[:3]] == [
        "CancelledError",
        "ServerError",
        "CancelledError",
    ]
    assert [message.text for message in chat.messages if message.role == "user"] == ["Waiting 3"]
    assert not chat.busy


async def test_cancelled_just_when_its_turn_comes(service, session):
    """The turn that was handed over is handed on."""
    chat = session.conversation(busy="queue")
    first = chat.ask("First")
    await anext(first)
    tasks = [asyncio.create_task(chat.ask(f"Waiting {n}").run()) for n in range(2)]
    for _ in range(3):
        await asyncio.sleep(0)
    await first.close()
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert chat.messages[0].text == "Waiting 1"
    assert not chat.busy


async def test_closed_while_it_waits_in_line(service, session):
    """Nothing is asked for a reply that was given up before its turn."""
    chat = session.conversation(busy="queue")
    async with chat.ask("First"):
        second = chat.ask("Second")
        task = asyncio.create_task(second.run())
        for _ in range(3):
            await asyncio.sleep(0)
        await second.close()
        with pytest.raises(StreamInterruptedError, match="closed before its end"):
            await task
    assert len(service.requests) == 1
    assert not chat.busy


async def test_a_second_reader_does_not_end_the_turn(service, session):
    """Another task that steps the same reply is told; the first reads on and commits."""
    chat = session.conversation()
    reply = chat.ask("How do I install it?")
    first = asyncio.create_task(reply.run())
    await asyncio.sleep(0)
    with pytest.raises(StateError, match="another task"):
        await anext(reply)
    await first
    assert len(chat.messages) == 2


async def test_a_conversation_serves_several_loops(clock):
    """It belongs to no loop, as its session does."""
    # The service runs in this loop; the other loops run in threads.
    async with LocalService() as service, service.session() as session:
        chat = session.conversation(busy="queue")
        for question in ("How do I install it?", "And then?"):

            async def ask(question: str = question) -> None:
                await chat.ask(question)

            await asyncio.to_thread(asyncio.run, ask())
        assert len(chat.messages) == 4


async def test_a_turn_lasts_as_long_as_its_block(service, session):
    """What was read may still be being shown: the next answer waits; the block's own task need not."""
    chat = session.conversation(busy="queue")
    async with chat.ask("How do I install it?") as reply:
        await reply
        other = asyncio.create_task(chat.ask("And then?").run())
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(service.requests) == 1
    await other
    assert len(chat.messages) == 4
    async with chat.ask("One") as reply:
        await reply
        await chat.ask("Two")
    service.script.ask(status=500)
    assert len(chat.messages) == 8


async def test_a_turn_lasts_until_its_edits_were_shown(service, session, clock):
    """Also without a block: read at once, shown slowly, and the next answer comes after."""
    chat = session.conversation(busy="queue")
    shown = []

    async def show(question: str) -> None:
        async for edit in chat.ask(question).edits(every=5.0, limit=200):
            shown.append((question, edit.index))

    await asyncio.gather(show("How do I install it?"), show("How do I ask?"))
    assert len(shown) > 6
    assert shown == sorted(shown, key=lambda one: one[0] == "How do I ask?")
    assert not chat.busy


# What is sent ------------------------------------------------------------------------------------


async def test_bounds_on_the_messages_sent(service, session):
    """The newest that fit, never beginning with an answer; the history keeps all."""
    chat = session.conversation(max_messages=4, system="Be brief.")
    for n in range(4):
        service.script.ask(events=answer(f"Answer {n}", id=f"a{n}"))
        await chat.ask(f"Question {n}")
    assert [text.strip() for _, text in sent(service)] == [
        "Be brief.",
        "Question 2",
        "Answer 2",
        "Question 3",
    ]
    assert len(chat.messages) == 8


async def test_bounds_on_the_characters_sent(service, session):
    """The question itself is always sent whole."""
    chat = session.conversation(max_characters=60)
    for n in range(3):
        service.script.ask(events=answer("x" * 19, id=f"a{n}"))
        await chat.ask("y" * 15)
    assert [len(text) for _, text in sent(service)] == [15, 20, 15]
    await chat.ask("z" * 500)
    assert [len(text) for _, text in sent(service)] == [500]


async def test_only_words_are_sent_again(service, session):
    """A search's result stays here; a file of the user's goes again; ``history_parts=None`` sends all."""
    for parts, expected in (
        (None, {"step-start", "tool-search", "source-url", "text"}),
        (..., {"source-url", "text"}),
    ):
        chat = session.conversation(**({} if parts is ... else {"history_parts": parts}))
        picture = FilePart(media_type="image/png", url="data:image/png;base64,AA==")
        question = Message(id="q", role="user", parts=(TextPart(text="How do I install it?"), picture))
        await chat.ask(question)
        await chat.ask("And then?")
        asked, answered, _ = body(service)["messages"]
        assert asked == question.to_wire()
        assert {part["type"] for part in answered["parts"]} == expected
        assert set(answered) == {"id", "role", "parts"}


async def test_a_conversation_without_an_end_may_forget(service, session):
    """Beyond ``keep_messages`` the oldest whole turns go, here and in the store; the thread goes on."""
    store = MemoryConversationStore()
    chat = session.conversation(store=store, id="help", keep_messages=5)
    for n in range(5):
        await chat.ask(f"Question {n}?")
        assert len(chat.messages) <= 5
    assert [message.text for message in chat.messages if message.role == "user"] == [
        "Question 3?",
        "Question 4?",
    ]
    again = await session.conversation(store=store, id="help").load()
    assert (again.messages, again.thread) == (chat.messages, chat.thread)
    assert len(service.threads) == 1


async def test_system_messages_go_first(service, session):
    """Given once; it keeps its id."""
    chat = session.conversation(system="Answer in French.")
    await chat.ask("How do I install it?")
    await chat.ask("And then?")
    assert sent(service)[0] == ("system", "Answer in French.")
    assert body(service, 0)["messages"][0] == body(service, 1)["messages"][0]
    assert roles(chat) == ["user", "assistant"] * 2


async def test_a_conversation_may_begin_with_a_history(service, session):
    """In any form that messages have."""
    chat = session.conversation(
        messages=["Hello", Message(id="a", role="assistant", parts=(TextPart(text="Hi!"),))], thread=None
    )
    await chat.ask({"id": "q", "role": "user", "parts": [{"type": "text", "text": "How do I install it?"}]})
    assert sent(service) == [("user", "Hello"), ("assistant", "Hi!"), ("user", "How do I install it?")]


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ("", "messages"),
        ([], "messages"),
        ({"id": "x", "role": "user"}, "messages.parts"),
        ([{"id": "x", "role": "owner", "parts": []}], "messages[0].role"),
        (Message(id="a", role="assistant", parts=(TextPart(text="Hi"),)), "messages"),
        (["Hi", {"id": "old", "role": "user", "parts": []}], "messages[1].id"),
    ],
)
async def test_a_bad_question_is_named(service, session, question, field):
    """Before anything is sent."""
    chat = session.conversation(messages=[Message.user("Hello", id="old")])
    with pytest.raises(ConfigurationError) as caught:
        chat.ask(question)
    assert caught.value.field == field
    with pytest.raises(ConfigurationError) as caught:
        chat.ask("Hi", current_path="x" * 201)
    assert caught.value.field == "current_path"
    assert not service.requests


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("commit", "never"),
        ("busy", "wait"),
        ("max_messages", 0),
        ("max_characters", True),
        ("history_parts", "text"),
        ("keep_messages", -1),
        ("id", ""),
        ("owner", "x" * 300),
        ("system", Message.user("Hi")),
        ("messages", "Hi"),
        ("thread", 7),
    ],
)
async def test_a_bad_setting_is_named(session, setting, value):
    """When the conversation is made."""
    with pytest.raises(ConfigurationError) as caught:
        session.conversation(**{setting: value})
    assert caught.value.field == setting


# Undo and fork -------------------------------------------------------------------------------------


async def test_undo_takes_the_last_turn_back(service, session):
    """From the history, and from the service's memory: a new thread begins with what is left."""
    chat = session.conversation()
    await chat.ask("How do I install it?")
    await chat.ask("And on Windows?")
    (question,) = await chat.undo()
    assert (question.text, len(chat.messages), chat.thread) == ("And on Windows?", 2, None)
    reply = await chat.ask("And on a Mac?")
    assert "And on Windows?" not in reply.text
    assert service.threads["thread_2"].questions == ["And on a Mac?"]
    await chat.undo(keep_thread=True)
    assert chat.thread.id == "thread_2"
    await chat.undo()
    with pytest.raises(StateError, match="no turn"):
        await chat.undo()


async def test_an_undone_question_can_be_asked_again(service, session):
    """Another answer to the same message."""
    chat = session.conversation()
    await chat.ask("How do I install it?")
    question = await chat.undo()
    await chat.ask(question)
    assert chat.messages[0] == question[0]


async def test_forks_go_apart(service, session):
    """What is said in one is not heard in the other, neither here nor at the service."""
    chat = session.conversation(fp="ada", system="Be brief.", max_messages=9)
    await chat.ask("How do I install it?")
    other = chat.fork()
    await chat.ask("And on Windows?")
    reply = await other.ask("And on a Mac?")
    assert "Windows" not in reply.text
    assert (len(chat.messages), len(other.messages)) == (4, 4)
    assert chat.messages[:2] == other.messages[:2]
    assert chat.thread.id != other.thread.id
    assert (other.fp, other.system, other.owner) == (chat.fp, chat.system, chat.owner)
    assert other.id != chat.id
    assert chat.fork(keep_thread=True).thread == chat.thread


# To JSON and back ------------------------------------------------------------------------------------


async def test_a_conversation_goes_through_json(service, session):
    """Whole, the key included: the next turn goes on in the same thread."""
    chat = session.conversation(fp="ada", id="help", system="Be brief.")
    await chat.ask("How do I install it?")
    stored = json.loads(json.dumps(chat.to_dict()))
    again = Conversation.from_dict(session, stored, max_messages=10)
    assert again.to_dict() == chat.to_dict()
    assert (again.messages, again.thread, again.system) == (chat.messages, chat.thread, chat.system)
    assert (again.id, again.fp, again.owner) == ("help", "ada", "ada")
    await again.ask("And then?")
    assert service.threads["thread_1"].questions == ["How do I install it?", "And then?"]
    assert len(chat.messages) == 2


@pytest.mark.parametrize("stored", [None, [], {}, {"version": 2, "messages": []}, {"version": 1}])
async def test_what_is_no_conversation_is_refused(session, stored):
    """A version of later, or something else."""
    with pytest.raises(ConfigurationError, match="to_dict"):
        Conversation.from_dict(session, stored)


# Stores ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        return MemoryConversationStore()
    return SQLiteConversationStore(tmp_path / "chats.sqlite")


async def test_a_stored_conversation_goes_on(service, session, store):
    """Another object with the same name reads it at its first turn."""
    await session.conversation(fp="ada", store=store, id="help").ask("How do I install it?")
    chat = session.conversation(fp="ada", store=store, id="help")
    assert chat.messages == ()
    reply = await chat.ask("And then?")
    assert "How do I install it?" in reply.text
    assert len(chat.messages) == 4
    assert service.threads["thread_1"].questions == ["How do I install it?", "And then?"]
    assert (await session.conversation(fp="ada", store=store, id="help").load()).messages == chat.messages


async def test_owners_are_apart(service, session, store):
    """The same id under two users: two conversations; one cannot load the other's."""
    ada = session.conversation(fp="ada", store=store, id="help")
    bob = session.conversation(fp="bob", store=store, id="help")
    await ada.ask("How do I install it?")
    assert (await bob.load()).messages == ()
    reply = await bob.ask("And then?")
    assert sent(service) == [("user", "And then?")]
    assert "How do I install it?" not in reply.text
    assert [message.text for message in ada.messages if message.role == "user"] == ["How do I install it?"]
    assert ada.thread != bob.thread
    assert (await store.ids(owner="ada"), await store.ids(owner="bob")) == (["help"], ["help"])
    shared = session.conversation(fp="ada-on-the-phone", owner="ada", store=store, id="help")
    assert (await shared.load()).messages == ada.messages


async def test_a_stale_conversation_is_told_before_it_asks(service, session, store):
    """Somebody else saved: nothing is sent; after loading it goes on."""
    one, two = (session.conversation(store=store, id="help") for _ in range(2))
    await one.ask("How do I install it?")
    await two.load()
    await one.ask("And then?")
    with pytest.raises(StoreConflictError, match="load"):
        await two.ask("Why?")
    assert len(service.requests) == 2
    await two.load()
    await two.ask("Why?")
    assert [message.text for message in two.messages if message.role == "user"] == [
        "How do I install it?",
        "And then?",
        "Why?",
    ]


async def test_of_two_at_once_one_wins(service, session, store, tmp_path):
    """Two processes with turns under way: the second to finish is told, with its answer in hand."""
    chat = session.conversation(store=store, id="help")
    await chat.ask("How do I install it?")
    stored = await store.load("help", owner="anonymous")
    seen = []

    async def read(reply) -> None:
        async for event in reply:
            seen.append(event)

    async with chat.ask("And then?") as reply:
        # What another process does has its own objects and no gate of ours.
        await store.save("help", stored.data, owner="anonymous", revision=stored.revision)
        with pytest.raises(StoreConflictError):
            await read(reply)
    assert isinstance(seen[-1], Finish)
    assert reply.text
    assert len(chat.messages) == 2
    assert chat.unanswered.text == "And then?"
    with pytest.raises(StoreConflictError):
        await reply
    await chat.load()
    await chat.ask("And then?")
    assert len(chat.messages) == 4


async def test_a_conflict_shows_when_the_block_is_left_at_finish(service, session):
    """Whoever stops at ``finish`` learns it at the block's end."""
    store = MemoryConversationStore()
    chat = session.conversation(store=store, id="help")

    async def stop_at_finish() -> None:
        async with chat.ask("Hi") as reply:
            await store.save("help", "{}", owner="anonymous", revision=0)
            async for event in reply:
                if isinstance(event, Finish):
                    break

    with pytest.raises(StoreConflictError):
        await stop_at_finish()
    assert chat.messages == ()
    assert not chat.busy


async def test_two_objects_of_one_process_take_turns(service, session, store):
    """A bot that makes a new object for each message of a chat: none is lost, none conflicts."""
    await asyncio.gather(
        *(
            session.conversation(store=store, id="help", busy="queue").ask(f"Question {n}?").run()
            for n in range(5)
        )
    )
    chat = await session.conversation(store=store, id="help").load()
    assert [message.text for message in chat.messages if message.role == "user"] == [
        f"Question {n}?" for n in range(5)
    ]
    assert len(service.threads) == 1


async def test_in_line_a_turn_begins_with_what_the_store_has(service, session, store):
    """Two long-lived objects of one conversation that queue: neither is ever stale."""
    one, two = (session.conversation(store=store, id="help", busy="queue") for _ in range(2))
    for n, chat in enumerate((one, two, one, two)):
        await chat.ask(f"Question {n}?")
    assert len(two.messages) == 8
    assert len((await one.load()).messages) == 8
    assert len(service.threads) == 1


async def test_loading_while_another_object_has_its_turn(service, session, store):
    """It is a look; only a turn of its own stands in the way."""
    one, two = (session.conversation(store=store, id="help") for _ in range(2))
    await one.ask("How do I install it?")
    async with one.ask("And then?"):
        assert len((await two.load()).messages) == 2
        with pytest.raises(StateError, match="busy"):
            await one.load()


async def test_a_failed_turn_writes_nothing(service, session, store):
    """The store has exactly the finished turns."""
    chat = session.conversation(store=store, id="help")
    service.script.ask(status=500)
    with pytest.raises(ServerError):
        await chat.ask("Hi")
    assert await store.load("help", owner="anonymous") is None
    await chat.retry()
    assert json.loads((await store.load("help", owner="anonymous")).data)["messages"][0]["id"]


async def test_undo_forget_and_delete_reach_the_store(service, session, store):
    """What is taken back here is taken back there."""
    chat = session.conversation(store=store, id="help")
    await chat.ask("How do I install it?")
    await chat.ask("And then?")
    await chat.undo()
    assert len((await session.conversation(store=store, id="help").load()).messages) == 2
    chat.forget_thread()
    await chat.save()
    assert (await session.conversation(store=store, id="help").load()).thread is None
    fork = chat.fork(id="other")
    await fork.ask("And on a Mac?")
    assert await store.ids(owner="anonymous") == ["help", "other"]
    assert await chat.delete()
    assert chat.messages == ()
    assert await store.ids(owner="anonymous") == ["other"]
    await chat.ask("How do I install it?")
    assert len((await session.conversation(store=store, id="help").load()).messages) == 2


async def test_the_system_message_is_stored(service, session, store):
    """The code's own wins over the stored one; the same words keep their id."""
    first = session.conversation(store=store, id="help", system="Be brief.")
    await first.ask("Hi")
    for system, expected in ((None, "Be brief."), ("Be brief.", "Be brief."), ("Be long.", "Be long.")):
        chat = await session.conversation(store=store, id="help", system=system).load()
        assert chat.system.text == expected
        assert (chat.system.id == first.system.id) == (expected == "Be brief.")


async def test_without_a_store_there_is_nothing_to_load(session):
    """Said plainly."""
    chat = session.conversation()
    for step in (chat.load, chat.save, chat.delete):
        with pytest.raises(StateError, match="no store"):
            await step()


async def test_a_fork_needs_what_the_store_has(session):
    """What was not read cannot be forked."""
    chat = session.conversation(store=MemoryConversationStore(), id="help")
    with pytest.raises(StateError, match="load"):
        chat.fork()


@pytest.mark.parametrize("data", ["", "[]", '{"version": 99, "messages": []}', "[" * 100_000])
async def test_what_is_no_conversation_in_the_store(service, session, data):
    """Told before anything is sent; the gate is free again."""
    store = MemoryConversationStore()
    await store.save("help", data, owner="anonymous", revision=0)
    chat = session.conversation(store=store, id="help")
    for _ in range(2):
        with pytest.raises(StateError, match="no conversation"):
            await chat.ask("Hi")
    assert not service.requests
    assert not chat.busy


class Broken(MemoryConversationStore):
    """A store that cannot save."""

    async def save(self, id: str, data: str, *, owner: str, revision: int) -> int:
        raise OSError("the disk is full")


async def test_a_store_that_fails_is_told(service, session):
    """The answer is there; the turn is not committed; the error is the store's own."""
    chat = session.conversation(store=Broken(), id="help")
    reply = chat.ask("Hi")
    for _ in range(2):
        with pytest.raises(OSError, match="disk is full"):
            await reply
    assert reply.text
    assert chat.messages == ()
    assert not chat.busy


class Slow(MemoryConversationStore):
    """A store whose saving takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.saving = asyncio.Event()
        self.go = asyncio.Event()

    async def save(self, id: str, data: str, *, owner: str, revision: int) -> int:
        self.saving.set()
        await self.go.wait()
        return await super().save(id, data, owner=owner, revision=revision)


async def test_cancelled_while_saving(service, session):
    """The save is not torn: store and conversation agree; and no event is lost."""
    store = Slow()
    chat = session.conversation(store=store, id="help")
    reply = chat.ask("Hi")
    seen = []

    async def read() -> None:
        async for event in reply:
            seen.append(event)

    task = asyncio.create_task(read())
    await store.saving.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    store.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(chat.messages) == 2
    stored = await store.load("help", owner="anonymous")
    assert isinstance(stored, StoredConversation)
    assert stored.revision == chat.revision
    await read()
    assert isinstance(seen[-1], Finish)
    assert not chat.busy


async def test_an_observer_that_fails_ends_the_turn(service):
    """Nothing was sent, so the turn is rolled back, and the same reply can be started again."""

    class Observer:
        def start(self, operation, facts):
            raise ValueError("mine")

    async with service.session(observer=Observer()) as session:
        chat = session.conversation()
        reply = chat.ask("Hi")
        for _ in range(2):
            with pytest.raises(ValueError, match="mine"):
                await anext(reply)
            assert not chat.busy
            assert chat.unanswered.text == "Hi"
    assert not service.requests


async def test_a_session_that_closed_while_a_turn_waited_in_line(service):
    """The question is prepared anew when its time comes; that it cannot be ends the turn."""
    async with service.session() as session:
        chat = session.conversation(busy="queue")
        async with chat.ask("First") as first:
            second = chat.ask("Second")
            task = asyncio.create_task(second.run())
            for _ in range(3):
                await asyncio.sleep(0)
            await first
            await session.close()
        with pytest.raises(StateError, match="closed"):
            await task
        assert not chat.busy
        assert chat.unanswered.text == "Second"
