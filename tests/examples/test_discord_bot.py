"""The example for Discord: discord.py itself, against REST and a gateway on loopback."""

from __future__ import annotations

import asyncio
import importlib
import random
import signal
import warnings
from collections.abc import AsyncIterator

import pytest

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # it imports audioop
    pytest.importorskip("discord", reason="discord.py is not installed")

from fake_discord import BOT, CHANNEL, DIRECT, SUPPRESS_EMBEDS, THREAD, FakeDiscord, lead_to
from long_answers import READ, TWO_TEXTS, content, events_of, long_answer
from program_kit import EXAMPLES, idle, running, until

from mintlify_async.errors import MintlifyError
from mintlify_async.testing import LocalService, VirtualClock
from mintlify_async.testing.faults import Cut

ASK = f"<@{BOT['id']}> "


@pytest.fixture
async def clock():
    return VirtualClock()


@pytest.fixture
async def service(clock):
    async with LocalService(clock=clock) as service:
        yield service


@pytest.fixture
async def server(service, clock, monkeypatch, tmp_path) -> AsyncIterator[FakeDiscord]:
    """Discord, with the example's bot connected to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    discord_bot = importlib.import_module("discord_bot")
    async with FakeDiscord(clock) as server, service.session(site="https://docs.acme.com") as session:
        lead_to(server.url, monkeypatch.setattr)
        async with discord_bot.Bot(session) as bot:
            bot._connection.guild_ready_timeout = 0.0  # how long it waits for more servers
            program = asyncio.create_task(bot.start("bot-token"))
            yield server
            assert server.refused == []
        await asyncio.wait([program])
        await idle("answer", "_run_event")
        assert not bot.answering


async def answered(server: FakeDiscord, clock, messages: int = 1) -> None:
    """Wait until there are so many messages, and all answers have ended."""
    await until(lambda: len(server.messages) >= messages, clock)
    await idle("answer")


@pytest.mark.parametrize("pause", [0.005, 0.0])
async def test_a_mention_is_answered(server, service, clock, pause):
    """Nothing is refused; each message answers the question, mentions no one, and shows no previews."""
    dice = random.Random(2)
    text = long_answer(dice)
    service.script.ask(events=events_of(text, dice), pause=pause)
    question = await server.say(ASK + "Tell me everything")
    await answered(server, clock)
    messages = list(server.messages.values())
    assert len(messages) > 4
    assert content("\n".join(message.text for message in messages)) == content(text)
    for message in messages:
        assert (message.channel, message.answers, message.flags) == (CHANNEL, question, SUPPRESS_EMBEDS)
        assert message.mentions["parse"] == []
        assert message.mentions.get("replied_user", False) is False
        assert all(text.count("```") % 2 == 0 for text in message.texts)
    (asked,) = service.requests.of("ask")
    assert asked.json["fp"] == "discord-7"
    assert asked.json["messages"][-1]["parts"] == [{"type": "text", "text": "Tell me everything"}]


async def test_a_thread_is_one_conversation(server, service, clock):
    """A channel, a thread and a direct chat know nothing of each other; people in one share it."""
    await server.say(ASK + "How do I install it?", channel=THREAD)
    await answered(server, clock)
    await server.say(ASK + "And then?", channel=THREAD, user=8)
    await answered(server, clock, 2)
    await server.say(ASK + "How do I log in?")
    await answered(server, clock, 3)
    await server.say("How do I log in?", channel=DIRECT)
    await answered(server, clock, 4)
    sent = [len(request.json["messages"]) for request in service.requests.of("ask")]
    assert sent == [1, 3, 1, 1]


async def test_who_is_answered(server, service, clock):
    """Bots, and people who did not mention it, are left alone."""
    await server.say("Lunch?")
    await server.say(ASK + "I am a bot", user=9, bot=True)
    await server.say(ASK + "How do I log in?")
    await answered(server, clock)
    assert len(service.requests) == 1


async def test_it_shows_what_people_read(server, service, clock):
    """The texts apart, without the suggestions block, with whole links below."""
    service.script.ask(events=TWO_TEXTS, pause=0.3)
    await server.say(ASK + "How do I log in?")
    await answered(server, clock)
    assert [message.text for message in server.messages.values()] == [READ]


async def test_an_answer_without_text_is_said(server, service, clock):
    """A turn may end without any text; the user is not left alone."""
    service.script.ask(events=[{"type": "start", "messageId": "m"}, {"type": "finish"}])
    await server.say(ASK + "Hm")
    await answered(server, clock)
    assert [shown.text for shown in server.messages.values()] == ["I found nothing to say about that."]


async def test_deleting_the_question_stops_the_answer(server, service, clock):
    """The service sees the connection closed."""
    service.script.ask(events=[*TWO_TEXTS[:3], 3600.0, *TWO_TEXTS[3:]])
    question = await server.say(ASK + "How do I log in?")
    await until(lambda: server.messages, clock)
    await server.delete(question)
    await until(lambda: service.requests[-1].client_left, clock)
    await idle("answer")
    assert clock.now() < 3600


@pytest.mark.parametrize(("script", "shown"), [({"fault": Cut(at=-400, how="rst")}, 2), ({"status": 503}, 1)])
async def test_a_failure_is_said_and_logged(server, service, clock, caplog, script, shown):
    """What had come stays, a sentence follows, and the log has the cause."""
    service.script.ask(**script)
    await server.say(ASK + "How do I install it?")
    await answered(server, clock, shown)
    last = list(server.messages.values())[-1]
    assert last.text == "Sorry, I could not answer that. Please ask again in a moment."
    assert len(server.messages) == shown
    (record,) = [record for record in caplog.records if record.exc_info]
    assert isinstance(record.exc_info[1], MintlifyError)
    assert record.getMessage() == f"no answer in discord-{CHANNEL}"


ON_LOOPBACK = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {folder!r})
from fake_discord import lead_to
lead_to({url!r})
warnings.simplefilter("default")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_program_ends_cleanly(tmp_path, number):
    """With status 0 and no traceback, also in the middle of an answer."""
    async with LocalService() as service, FakeDiscord(service.clock) as server:
        service.script.ask(events=[*TWO_TEXTS[:3], 3600.0])
        prelude = ON_LOOPBACK.format(url=server.url, folder=str(EXAMPLES.parent / "tests" / "examples"))
        async with running(
            "discord_bot.py", service, tmp_path, prelude, DISCORD_TOKEN="bot-token"
        ) as program:
            await server.say(ASK + "How do I log in?")
            while not server.messages:
                await asyncio.sleep(0.01)
            status, errors = await program.end(number)
        assert status == 0, errors
        assert "Traceback" not in errors
        assert "Unclosed" not in errors


async def test_the_program_says_which_setting_is_missing(tmp_path):
    """It does not start without the assistant's settings."""
    async with running("discord_bot.py", None, tmp_path, DISCORD_TOKEN="bot-token") as program:
        status, errors = await program.end(None)
    assert status == 1
    assert "MINTLIFY_ASSISTANT_API_KEY" in errors
