"""The example for Slack: Bolt itself, against the Web API and Socket Mode on loopback."""

from __future__ import annotations

import asyncio
import importlib
import random
import signal
import sys
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("slack_bolt", reason="slack-bolt is not installed")

from fake_slack import FakeSlack
from long_answers import READ, TWO_TEXTS, content, events_of, long_answer
from program_kit import EXAMPLES, idle, running, until

from mintlify_async.errors import MintlifyError
from mintlify_async.runtime.clock import SystemClock
from mintlify_async.testing import LocalService, VirtualClock
from mintlify_async.testing.faults import Cut

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:slack_bolt")


@pytest.fixture
async def clock():
    return VirtualClock()


@pytest.fixture
async def service(clock):
    async with LocalService(clock=clock) as service:
        yield service


@pytest.fixture
async def slack(service, clock, monkeypatch, tmp_path) -> AsyncIterator[FakeSlack]:
    """Slack, with the example's program connected to it."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"BOT_TOKEN": "xoxb-test", "APP_TOKEN": "xapp-test", "CHANNEL": "C0ASK"}.items():
        monkeypatch.setenv(f"SLACK_{name}", value)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "slack_bot", raising=False)
    slack_bot = importlib.import_module("slack_bot")
    async with FakeSlack(clock) as slack:
        slack_bot.app.client.base_url = slack.url
        slack_bot.session = service.session(site="https://docs.acme.com")
        program = asyncio.create_task(slack_bot.main())
        yield slack
        program.cancel()
        await asyncio.wait([program])
        await idle("on_event", "answer")
        assert not slack.unacknowledged
        assert not any(message.streaming for message in slack.messages.values())
        assert not slack_bot.answering


async def answered(slack: FakeSlack, clock, messages: int = 1) -> None:
    """Wait until there are so many messages, and all answers have ended."""
    await until(lambda: len(slack.messages) >= messages, clock)
    await idle("answer")


@pytest.mark.parametrize("pause", [0.005, 0.0])
async def test_a_mention_is_answered_in_its_thread(slack, service, clock, pause):
    """Each stream is started, appended to, and stopped once; a split answer's code blocks are whole."""
    dice = random.Random(1)
    text = long_answer(dice)
    service.script.ask(events=events_of(text, dice), pause=pause)
    ts = await slack.mention("Tell me everything")
    await answered(slack, clock)
    messages = list(slack.messages.values())
    assert slack.refused == []
    assert len(messages) > 1
    assert {(message.channel, message.thread) for message in messages} == {("C1", ts)}
    assert all(message.text.count("```") % 2 == 0 for message in messages)
    assert content("\n".join(message.text for message in messages)) == content(text)
    (asked,) = service.requests.of("ask")
    assert asked.json["fp"] == "slack-U1"
    assert asked.json["messages"][-1]["parts"] == [{"type": "text", "text": "Tell me everything"}]


async def test_a_thread_is_one_conversation(slack, service, clock):
    """Everybody in a thread talks in it; another thread, and a direct message, know nothing of it."""
    ts = await slack.mention("How do I install it?")
    await answered(slack, clock)
    await slack.mention("And then?", user="U2", thread_ts=ts)
    await answered(slack, clock, 2)
    await slack.mention("How do I log in?")
    await answered(slack, clock, 3)
    await slack.say("How do I log in &amp; out?")
    await answered(slack, clock, 4)
    sent = [request.json["messages"] for request in service.requests.of("ask")]
    assert [len(messages) for messages in sent] == [1, 3, 1, 1]
    assert sent[-1][-1]["parts"][0]["text"] == "How do I log in & out?"
    assert slack.refused == []


async def test_who_is_answered(slack, service, clock):
    """In the channel of questions everything is answered once, elsewhere only a mention; bots never."""
    await slack.mention("How do I log in?", channel="C0ASK")
    await slack.say("How do I install it?", channel="C0ASK")
    await slack.say("Lunch?", channel="C1")
    await slack.say("I am a bot", channel="C0ASK", bot_id="B7")
    await slack.say("has joined the channel", channel="C0ASK", subtype="channel_join")
    await slack.say("The end")
    await answered(slack, clock, 3)
    asked = [request.json["messages"][-1]["parts"][0]["text"] for request in service.requests.of("ask")]
    assert sorted(asked) == ["How do I install it?", "How do I log in?", "The end"]


async def test_an_event_that_comes_again_is_answered_once(slack, service, clock):
    """Slack repeats an event whose receipt was lost."""
    event = {"type": "message", "user": "U1", "text": "How do I log in?", "ts": "1.0", "channel": "D1"}
    await slack.send({**event, "channel_type": "im", "team": "T1"}, times=2)
    await answered(slack, clock)
    assert len(service.requests) == 1


async def test_a_refusal_for_its_rate_is_waited_out(slack, service):
    """Nothing of the text is lost, and nothing is shown twice."""
    service.script.ask(events=TWO_TEXTS, pause=0.3)
    slack.busy_methods |= {"chat.startStream", "chat.appendStream", "chat.stopStream"}
    await slack.mention("How do I log in?")
    shown = slack.messages.values()  # Slack's own client waits in real time
    await until(lambda: shown and not any(one.streaming for one in shown), SystemClock())
    await idle("answer")
    assert [message.text for message in slack.messages.values()] == [READ]
    assert slack.refused == ["ratelimited"] * 3


async def test_it_shows_what_people_read(slack, service, clock):
    """The texts apart, without the suggestions block, with whole links below."""
    service.script.ask(events=TWO_TEXTS, pause=0.3)
    await slack.mention("How do I log in?")
    await answered(slack, clock)
    assert [message.text for message in slack.messages.values()] == [READ]


@pytest.mark.parametrize("early", [True, False])
async def test_deleting_the_question_stops_the_answer(slack, service, clock, early):
    """Before its first words, and when it has some; the service sees the connection closed."""
    events = [*TWO_TEXTS[:3], 3600.0, *TWO_TEXTS[3:]] if not early else [3600.0, *TWO_TEXTS]
    service.script.ask(events=events)
    ts = await slack.mention("How do I log in?")
    await until(lambda: service.requests if early else slack.messages, clock)
    await slack.delete(ts)
    await until(lambda: service.requests[-1].client_left, clock)
    await idle("answer")
    assert len(slack.messages) == (0 if early else 1)
    assert clock.now() < 3600


@pytest.mark.parametrize(("script", "shown"), [({"fault": Cut(at=-400, how="rst")}, 2), ({"status": 503}, 1)])
async def test_a_failure_is_said_and_logged(slack, service, clock, caplog, script, shown):
    """What had come stays, a sentence follows in the thread, and the log has the cause."""
    service.script.ask(**script)
    ts = await slack.mention("How do I install it?")
    await answered(slack, clock, shown)
    last = list(slack.messages.values())[-1]
    assert (last.thread, last.text) == (
        ts,
        "Sorry, I could not answer that. Please ask again in a moment.",
    )
    assert len(slack.messages) == shown
    (record,) = [record for record in caplog.records if record.exc_info]
    assert isinstance(record.exc_info[1], MintlifyError)
    assert record.getMessage() == f"no answer in C1-{ts}"


ON_LOOPBACK = """
import slack_bolt.app.async_app as bolt
from slack_sdk.web.async_client import AsyncWebClient
real = bolt.AsyncApp
bolt.AsyncApp = lambda token: real(client=AsyncWebClient(token, base_url={url!r}))
"""
TOKENS = {"SLACK_BOT_TOKEN": "xoxb-test", "SLACK_APP_TOKEN": "xapp-test"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_program_ends_cleanly(tmp_path, number):
    """With status 0 and no traceback, also in the middle of an answer, whose message is left complete."""
    async with LocalService() as service, FakeSlack(service.clock) as slack:
        service.script.ask(events=[*TWO_TEXTS[:3], 3600.0])
        prelude = ON_LOOPBACK.format(url=slack.url)
        async with running("slack_bot.py", service, tmp_path, prelude, **TOKENS) as program:
            await slack.say("How do I log in?")
            while not slack.messages:
                await asyncio.sleep(0.01)
            status, errors = await program.end(number)
        assert status == 0, errors
        assert "Traceback" not in errors
        assert "Unclosed" not in errors
        assert [message.streaming for message in slack.messages.values()] == [False]


async def test_the_program_says_which_setting_is_missing(tmp_path):
    """It does not start without the assistant's settings."""
    async with running("slack_bot.py", None, tmp_path, **TOKENS) as program:
        status, errors = await program.end(None)
    assert status == 1
    assert "MINTLIFY_ASSISTANT_API_KEY" in errors
    assert "MINTLIFY_DOMAIN" in errors
