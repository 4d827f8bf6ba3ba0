"""The example for Slack, with Slack's own client, against its streaming methods on loopback."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("slack_sdk", reason="slack_sdk is not installed")

import slack_bot
from fake_slack import FakeSlack
from long_answers import READ, TWO_TEXTS, content, events_of, long_answer

from mintlify_async.errors import StreamInterruptedError
from mintlify_async.storage import MemoryConversationStore
from mintlify_async.testing import LocalService, VirtualClock
from mintlify_async.testing.faults import Cut


@pytest.fixture
async def clock():
    return VirtualClock()


@pytest.fixture
async def service(clock):
    async with LocalService(clock=clock) as service:
        yield service


@pytest.mark.parametrize("pause", [0.005, 0.0])
async def test_the_slack_recipe_appends(service, clock, pause):
    """Each stream is started, appended to, and stopped once; the thread is one conversation."""
    dice = random.Random(1)
    text = long_answer(dice)
    service.script.ask(events=events_of(text, dice), pause=pause)
    mention = {"channel": "C1", "ts": "1.0", "team": "T1", "user": "U1", "text": "Tell me everything"}
    async with FakeSlack() as slack, service.session() as session:
        store = MemoryConversationStore()
        await slack_bot.answer(slack.client(), mention, session, store)
        messages = list(slack.messages.values())
        assert slack.refused == []
        assert all(message.stopped and message.thread == "1.0" for message in messages)
        assert all(message.text.count("```") % 2 == 0 for message in messages)
        assert content("\n".join(message.text for message in messages)) == content(text)
        again = mention | {"ts": "2.0", "thread_ts": "1.0", "user": "U2", "text": "And then?"}
        await slack_bot.answer(slack.client(), again, session, store)
        assert "Earlier in this thread" not in text
        assert len(service.requests[-1].json["messages"]) == 3


async def test_the_slack_recipe_shows_what_people_read(service, clock):
    """The appended pieces are the texts apart, without the suggestions block, with whole links below."""
    service.script.ask(events=TWO_TEXTS, pause=0.3)
    mention = {"channel": "C1", "ts": "1.0", "team": "T1", "user": "U1", "text": "How do I log in?"}
    async with FakeSlack() as slack, service.session(site="https://docs.acme.com") as session:
        await slack_bot.answer(slack.client(), mention, session, MemoryConversationStore())
        assert [message.text for message in slack.messages.values()] == [READ]


async def test_a_slack_stream_is_stopped_when_the_answer_is_cut(service, clock):
    """What had come is there, and the stream is not left open."""
    service.script.ask(fault=Cut(at=1500, how="rst"))
    mention = {"channel": "C1", "ts": "1.0", "team": "T1", "user": "U1", "text": "How do I install it?"}
    async with FakeSlack() as slack, service.session() as session:
        with pytest.raises(StreamInterruptedError):
            await slack_bot.answer(slack.client(), mention, session, MemoryConversationStore())
        assert all(message.stopped for message in slack.messages.values())
        assert slack.refused == []
