"""Answers that outlive their reader: after a reload, in a second tab, until Stop or the end of the grace."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_desk import HEAD, TURN, desk
from relay_kit import events, thread_token, until, user_message
from relay_resume_kit import HELD, Gate, Told, ask_and_leave, ask_in_vain
from relay_store_kit import form
from starlette.exceptions import HTTPException
from starlette.requests import Request

from mintlify_async import ConfigurationError, MintlifyError
from mintlify_async.contrib.relay import MemoryStreamStore, RelayLimits
from mintlify_async.storage import MemoryConversationStore
from mintlify_async.testing import VirtualClock, faults


def resumable(**settings: Any) -> Any:
    return desk(**{"streams": MemoryStreamStore(), **settings})


async def test_a_reload_goes_on_with_the_answer():
    """The page that comes back gets the whole answer from its start; the question is asked once."""
    gate, told = Gate(), Told()
    async with resumable(service={"clock": gate}, **told.hooks) as here:
        here.service.script.ask(events=HELD)
        await ask_and_leave(here)
        async with here.page.stream() as response:
            assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
            body = await response.content.readuntil(b"Hello ")
            gate.open.set()
            body += await response.read()
        assert [event["type"] for event in events(body)] == [event["type"] for event in TURN]
        assert len(here.service.requests) == 1
        assert not here.service.requests[0].client_left
        assert [answer.outcome for answer in told.answers] == ["finished"]


async def test_a_page_that_has_the_answer_does_not_get_it_twice():
    """What the page says to have decides: another worker may learn of the end a moment later."""
    async with resumable(service={"clock": Gate()}) as here:
        here.service.script.ask(events=HELD)
        async with here.page.request() as response:
            await response.content.readuntil(b"Hello ")
            assert (await here.page.resume(params={"after": "m1"}))[0] == 204
            for has in ({"after": "u1"}, {"after": ""}, {}):
                async with here.page.stream(params=has) as resumed:
                    assert resumed.status == 200
            await here.page.stop()


async def test_a_second_tab_reads_the_same_answer():
    """Both tabs get the same bytes, whenever they came."""
    gate = Gate()
    async with resumable(service={"clock": gate}) as here:
        here.service.script.ask(events=HELD)
        async with here.page.request() as first:
            head = await first.content.readuntil(b'Hello "}\n\n')
            async with here.page.stream() as second:
                assert await second.content.readexactly(len(head)) == head
                gate.open.set()
                assert await first.read() == await second.read()


async def test_nothing_runs():
    """204, as for a chat that never was; and stopping it is 204, too."""
    async with resumable() as here:
        here.service.script.ask(events=TURN)
        await here.page.ask(user_message("q"))
        assert await here.page.resume() == (204, b"")
        assert await here.page.resume(chat="another") == (204, b"")
        assert await here.page.stop() == 204


async def test_only_the_owner_reads_and_stops():
    """For another user there is no answer, and what they stop is nothing."""
    async with resumable(service={"clock": Gate()}) as here:
        here.service.script.ask(events=HELD)
        async with here.page.request() as response:
            await response.content.readuntil(b"Hello ")
            eve = here.other("eve")
            assert await eve.resume() == (204, b"")
            assert await eve.stop() == 204
            assert here.service.answering == 1
            assert (await here.other("").resume())[0] == 401
            assert await here.page.stop() == 204
            assert events(await response.read())[-1] == {"type": "abort"}


async def test_a_page_that_leaves_before_the_first_word_finds_the_answer():
    """The search may take long: a reload in that time loses nothing."""
    gate = Gate()
    async with resumable(service={"clock": gate}) as here:
        here.service.script.ask(events=[0.5, *TURN])
        await ask_in_vain(here)
        async with here.page.stream() as response:
            gate.open.set()
            assert events(await response.read())[-1]["type"] == "finish"
        assert len(here.service.requests) == 1


async def test_a_reader_who_is_gone_has_a_grace():
    """After 60 s without a reader the answer is stopped; one that comes back in time keeps it alive."""
    clock, told = VirtualClock(auto=False), Told()
    async with resumable(service={"clock": Gate()}, clock=clock, **told.hooks) as here:
        here.service.script.ask(events=HELD)
        await ask_and_leave(here)
        for _ in range(3):
            await clock.advance(59)
            async with here.page.stream() as response:
                await response.content.readuntil(b"Hello ")
                await clock.advance(100)
        assert here.service.answering == 1
        await clock.advance(60)
        await here.all_closed()
        assert here.service.requests[0].client_left
        assert [answer.outcome for answer in told.answers] == ["left"]


async def test_stop():
    """The service is let go, every tab's stream ends as a stopped one, and the thread goes on."""
    told = Told()
    async with resumable(service={"clock": Gate()}, **told.hooks) as here:
        here.service.script.ask(events=HELD, headers={"X-Thread-Id": "thread_77"})
        async with here.page.request() as first, here.page.stream() as second:
            head = await first.content.readuntil(b"Hello ")
            assert await here.page.stop() == 204
            bodies = [head + await first.read(), await second.read()]
        await here.all_closed()
        assert here.service.requests[0].client_left
        assert [events(body)[-1] for body in bodies] == [{"type": "abort"}] * 2
        assert bodies[0] == bodies[1]
        (answer,) = told.answers
        assert (answer.outcome, answer.message.text, answer.error) == ("left", "Hello ", None)
        assert await here.page.resume() == (204, b"")
        here.service.script.ask(events=TURN)
        await here.page.ask(user_message("Go on"), threadId=thread_token(bodies[0]))
        assert here.asked["threadId"] == "thread_77"


async def test_stop_before_the_first_word():
    """The question is withdrawn; the page that asked gets the end of a stopped answer."""
    async with resumable() as here:
        here.service.script.ask(fault=faults.NoAnswer())
        asking = asyncio.create_task(here.page.post())
        await until(lambda: here.service.answering)
        assert await here.page.stop() == 204
        status, body, _ = await asking
        assert (status, events(body)) == (200, [{"type": "abort"}])
        await here.all_closed()
        assert here.service.requests[0].client_left


async def test_an_answer_that_ended_during_a_reload_is_not_lost():
    """A page that shows the question last gets the answer once more; one that has the answer gets 204."""
    clock, gate, told = VirtualClock(auto=False), Gate(), Told()
    async with resumable(service={"clock": gate}, clock=clock, **told.hooks) as here:
        here.service.script.ask(events=HELD)
        await ask_and_leave(here)
        gate.open.set()
        await here.all_closed()
        assert [answer.outcome for answer in told.answers] == ["finished"]
        await clock.advance(59)
        status, body = await here.page.resume(params={"after": "u1"})
        assert (status, events(body)[-1]["type"]) == (200, "finish")
        assert (await here.page.resume(params={"after": "m1"}))[0] == 204
        assert (await here.page.resume())[0] == 204
        await clock.advance(1)
        assert (await here.page.resume(params={"after": "u1"}))[0] == 204


async def test_the_next_question_stops_the_answer_before():
    """A chat has one answer at a time, and a new question is never refused because of the old answer."""
    told = Told()
    async with resumable(service={"clock": Gate()}, **told.hooks) as here:
        here.service.script.ask(events=HELD)
        here.service.script.ask(events=TURN)
        async with here.page.request() as response:
            await response.content.readuntil(b"Hello ")
            second = events(await here.page.ask(user_message("q"), user_message("r", "u2")))
            assert second[-1]["type"] == "finish"
            assert events(await response.read())[-1] == {"type": "abort"}
        assert here.service.requests[0].client_left
        assert [answer.outcome for answer in told.answers] == ["left", "finished"]


async def test_a_refusal_is_told_to_the_page_that_resumed():
    """The page that asked is gone when the service refuses; the one that waits gets the sentence."""
    async with resumable() as here:
        here.service.script.ask(fault=faults.NoAnswer())
        await ask_in_vain(here)
        async with here.page.stream() as response:
            await here.session.close()
            assert [event["type"] for event in events(await response.read())] == ["error"]


async def test_a_refusal_keeps_its_status():
    """The page that asked, and waits, gets the status as without a store."""
    async with resumable() as here:
        here.service.script.ask(status=429, headers={"Retry-After": "3600"})
        assert (await here.page.post())[0] == 429
        assert (await here.page.post(b"[]"))[0] == 400


def errors_alive() -> list[BaseException]:
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, MintlifyError | HTTPException)]


@pytest.mark.parametrize("there", [True, False])
async def test_a_refusal_is_kept_as_its_sentence_only(there: bool):
    """A second reader gets that; the error, whose traceback holds the question, is gone."""
    before = errors_alive()  # other tests' log records
    async with resumable(session={"retry": None}) as here:
        if there:
            here.service.script.ask(status=429, headers={"Retry-After": "3600"})
            assert (await here.page.post())[0] == 429
        else:
            here.service.script.ask(fault=faults.NoAnswer())
            await ask_in_vain(here)
            async with here.page.stream() as response:
                await here.session.close()
                await response.read()
        assert len(errors_alive()) == len(before)
        status, body = await here.page.resume(params={"after": "u1"})
        assert (status, [event["type"] for event in events(body)]) == (200, ["error"])


async def test_an_answer_without_a_chat_ends_with_its_reader():
    """No page could ask for it again."""
    async with resumable(service={"clock": Gate()}) as here:
        here.service.script.ask(events=HELD)
        async with here.page.request({"messages": [user_message("q")]}) as response:
            await response.content.readuntil(b"Hello ")
        await here.all_closed()
        assert here.service.requests[0].client_left


async def test_an_answer_that_is_too_large_ends():
    """Memory is bounded: the answer is closed at the service, and ends with an error."""
    told = Told()
    huge = [{"type": "text-delta", "id": "0", "delta": "x" * 50_000}] * 100
    async with resumable(streams=MemoryStreamStore(max_bytes=200_000), **told.hooks) as here:
        here.service.script.ask(events=[*HEAD, *huge])
        body = await here.page.ask(user_message("q"))
        assert events(body)[-1]["type"] == "error"
        assert len(body) < 2_000_000
        assert [answer.outcome for answer in told.answers] == ["failed"]


async def test_a_place_is_free_when_the_page_hears_the_end():
    """The next question may come the moment after: it is not refused as one too many."""
    async with resumable(max_concurrent_per_user=1) as here:
        for number in range(5):
            here.service.script.ask(events=TURN)
            await here.page.ask(user_message("q", f"u{number}"))


async def test_readers_who_resume_are_limited():
    """As many as answers: each is a connection."""
    async with resumable(service={"clock": Gate()}, max_concurrent_per_user=2) as here:
        here.service.script.ask(events=HELD)
        async with here.page.request() as first, here.page.stream() as second, here.page.stream() as third:
            assert [response.status for response in (first, second, third)] == [200] * 3
            assert (await here.page.resume())[0] == 429
            await here.page.stop()
            await first.read()
        await until(lambda: not here.service.answering)
        assert (await here.page.resume())[0] == 204


@pytest.mark.parametrize("wrong", [{"grace": -1}, {"keep": float("nan")}, {"max_bytes": 0}, {"grace": True}])
def test_wrong_settings_are_named(wrong):
    """Before any question."""
    with pytest.raises(ConfigurationError) as caught:
        MemoryStreamStore(**wrong)
    assert caught.value.field == next(iter(wrong))


async def test_a_server_that_gives_up_a_request_ends_what_was_not_asked():
    """A handler that is cancelled before the question is whole asks nothing; later, its answer goes on."""
    gate = Gate()

    async with resumable(service={"clock": gate}, limits=RelayLimits(body_seconds=600)) as here:
        here.service.script.ask(events=HELD)
        for messages in ([], [{"type": "http.request", "body": json.dumps(QUESTION).encode()}]):
            request = Request(SCOPE, Receive(messages))
            before = len(here.service.requests)
            response = await here.relay.respond(request, user="ada")
            handling = asyncio.create_task(response(request.scope, request.receive, nowhere))
            await (until(lambda: here.service.answering) if messages else asyncio.sleep(0.05))
            handling.cancel()
            await asyncio.wait([handling])
            assert handling.cancelled()
            assert len(here.service.requests) == before + bool(messages)
        async with here.page.stream() as resumed:
            gate.open.set()
            assert events(await resumed.read())[-1]["type"] == "finish"


async def test_an_app_that_shuts_down_ends_the_answer():
    """Its readers get an error and the end, and the hook is told."""
    told = Told()
    async with resumable(service={"clock": Gate()}, **told.hooks) as here:
        here.service.script.ask(events=HELD)
        async with here.page.request() as response:
            await response.content.readuntil(b"Hello ")
            for task in asyncio.all_tasks():
                if "LiveAnswer" in str(task.get_coro()):
                    task.cancel()
            assert events(await response.read())[-1]["type"] == "error"
        assert [answer.outcome for answer in told.answers] == ["interrupted"]


async def test_an_app_that_shuts_down_while_an_answer_is_being_stopped():
    """The part is being saved then; the readers do not wait for ever."""
    saving = asyncio.Event()

    class Slow(MemoryConversationStore):
        async def save(self, *arguments: Any, **settings: Any) -> int:
            saving.set()
            return await asyncio.Event().wait()

    clock = VirtualClock(auto=False)
    async with resumable(service={"clock": Gate()}, store=Slow(), clock=clock) as here:
        here.service.script.ask(events=HELD)
        async with here.page.request(form("q")) as response:
            await response.content.readuntil(b"Hello ")
            assert await here.page.stop() == 204
            await saving.wait()
            for task in asyncio.all_tasks():
                if "LiveAnswer" in str(task.get_coro()):
                    task.cancel()
            async with asyncio.timeout(10):
                assert events(await response.read()) is not None
        await clock.advance(10)


@pytest.mark.parametrize("wrong", ["redis://localhost", MemoryStreamStore])
async def test_something_else_is_no_store(wrong: Any):
    """The message names what to pass."""
    with pytest.raises(ConfigurationError, match="MemoryStreamStore"):
        async with resumable(streams=wrong):
            pass


QUESTION = {"id": "chat-1", "messages": [user_message("q")], "trigger": "submit-message"}
SCOPE = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}


async def nowhere(message: Any) -> None:
    """The reader's end of a connection that no test looks at."""


class Receive:
    """The messages of a request, and then silence."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.messages = list(messages)

    async def __call__(self) -> dict[str, Any]:
        if self.messages:
            return self.messages.pop(0)
        await asyncio.Event().wait()
        return {}
