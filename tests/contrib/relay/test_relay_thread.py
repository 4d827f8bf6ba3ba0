"""The thread goes on through the page by a sealed token; the page never sees its id or key."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from mintlify_async import Thread
from mintlify_async.contrib.relay.seal import ThreadSeal
from mintlify_async.testing import AnswerStyle, Customer, ThreadStyle
from tests.support.relay_desk import HEAD, TURN, desk
from tests.support.relay_kit import SECRET, events, thread_token, user_message

TEXT = [{"type": "text", "text": "An answer"}]
TWO_SITES = [Customer(), Customer("other", assistant_key=Customer().assistant_key)]


async def test_the_thread_of_an_answer_that_breaks_off_goes_on(here):
    """Named in the middle, it reaches the page before the error, so that the reader can ask on."""
    named = {"type": "message-metadata", "messageMetadata": {"threadId": "thread_77"}}
    here.service.script.ask(body=[*HEAD, named])
    seen = await here.page.ask(user_message("q"))
    assert [event["type"] for event in events(seen)][-2:] == ["message-metadata", "error"]
    assert here.opened(thread_token(seen), "ada") == Thread("thread_77")


async def test_an_answer_that_never_began_is_an_error_alone(here):
    """Nothing comes before ``start``, not even the thread: the page would throw."""
    here.service.script.ask(
        events=[{"type": "error", "errorText": "no"}], headers={"X-Thread-Id": "thread_77"}
    )
    seen = await here.page.ask(user_message("q"))
    assert [event["type"] for event in events(seen)] == ["error"]


async def test_the_latest_seal_counts(here):
    """The last assistant message with a token names the thread; later ones without a token do not end it."""
    tokens = [here.sealed(Thread(f"thread_{name}")) for name in ("old", "new")]
    history = [
        user_message("1"),
        {"id": "a1", "role": "assistant", "parts": [], "metadata": {"threadId": tokens[0]}},
        {"id": "a2", "role": "assistant", "parts": [], "metadata": {"threadId": tokens[1]}},
        {"id": "a3", "role": "assistant", "parts": [], "metadata": {"page": 1}},
        user_message("2", "u2", metadata={"threadId": "no seal, and no answer"}),
    ]
    here.service.script.ask(events=TURN, times=None)
    await here.page.ask(*history)
    assert here.asked["threadId"] == "thread_new"
    await here.page.ask(*history, threadId=tokens[0])  # by a page's own prepareSendMessagesRequest
    assert here.asked["threadId"] == "thread_old"


@pytest.mark.parametrize(
    ("user", "odd"),
    [("bob", ""), ("ada", "\n"), ("ada", "*"), ("ada", "/")],
    ids=["another user", "line ending", "asterisk", "slash"],
)
async def test_a_seal_that_does_not_open_is_left_behind(here, user, odd):
    """Another user's token, or one with an additional character: asked without it, with the history."""
    answer = {"id": "a", "role": "assistant", "parts": TEXT}
    answer["metadata"] = {"threadId": here.sealed(Thread("thread_1")) + odd}
    here.service.script.ask(events=TURN)
    shown = await here.other(user).ask(user_message("1"), answer, user_message("2", "u2"))
    (request,) = here.service.requests
    assert "threadId" not in request.json
    assert [message["id"] for message in request.json["messages"]] == ["u1", "a", "u2"]
    assert here.opened(thread_token(shown), user) == Thread("thread_77")


@pytest.mark.parametrize("place", ["header", "finish", "metadata", "data"])
async def test_the_thread_never_shows(place):
    """Wherever the service names the thread, the page gets a token that opens to it."""
    style = ThreadStyle(id_in={place}, key_in={place})
    async with desk(service={"answers": AnswerStyle(thread=style)}) as here:
        body = await here.page.ask(user_message("How do I log in?"))
        (thread,) = here.service.threads.values()
        assert here.opened(thread_token(body), "ada") == Thread(thread.id, thread.key)


async def test_a_404_that_is_not_about_the_thread_ends(here):
    """A wrong domain answers every question with 404: two POSTs in all, and a 502 for the page."""
    here.service.script.ask(status=404, times=None)
    token = here.sealed(Thread("thread_1", "k"))
    status, _, _ = await here.page.post({"messages": [user_message("q")], "threadId": token})
    assert (status, len(here.service.requests)) == (502, 2)


async def test_an_apps_question_to_another_site_goes_on_there():
    """With ask={"domain": ...} the tokens are those of that site."""
    async with desk(service={"customers": TWO_SITES}, ask={"domain": "other-docs"}) as here:
        token = thread_token(await here.page.ask(user_message("1")))
        (thread,) = here.service.threads.values()
        seal, site = ThreadSeal([SECRET]), f"{here.session.base_url} other-docs"
        assert seal.open(token, "ada", site) == Thread(thread.id, thread.key)
        await here.page.ask(user_message("2"), threadId=token)
        assert here.asked["threadId"] == thread.id
