"""The example's Telegram bot against a Bot API on loopback that is as strict as the real one."""

from __future__ import annotations

import asyncio
import importlib
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("aiogram", reason="aiogram is not installed")

import telegram_bot
from fake_telegram import FakeTelegram
from long_answers import READ, TWO_TEXTS, content, events_of, long_answer

from mintlify_async.storage import MemoryConversationStore, SQLiteConversationStore
from mintlify_async.testing import LocalService, VirtualClock
from mintlify_async.testing.faults import Cut

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:aiogram", "ignore::DeprecationWarning:pydantic"
)


@pytest.fixture
async def clock():
    return VirtualClock()


@pytest.fixture
async def service(clock):
    async with LocalService(clock=clock) as service:
        yield service


@pytest.fixture(autouse=True)
def fresh_program():
    """A dispatcher of aiogram belongs to one loop: each test runs the program anew."""
    importlib.reload(telegram_bot)


@asynccontextmanager
async def running_bot(telegram: FakeTelegram, session, store) -> AsyncIterator[None]:
    """Run the example's bot on *telegram* for the time of the block."""
    async with telegram.bot() as bot:
        polling = asyncio.create_task(
            telegram_bot.dispatcher.start_polling(
                bot, session=session, store=store, handle_signals=False, close_bot_session=False
            )
        )
        try:
            yield
        finally:
            await idle()
            await telegram_bot.dispatcher.stop_polling()
            await polling


async def idle() -> None:
    """Return when every handler of the bot has ended."""
    while handlers := [task for task in asyncio.all_tasks() if "_process_update" in repr(task.get_coro())]:
        await asyncio.wait(handlers)


async def until(condition, clock) -> None:
    """Let the virtual time go on until *condition* holds."""
    for _ in range(20_000):
        if condition():
            return
        await clock.sleep(0.05)
    raise AssertionError("it never came true")


@pytest.mark.parametrize(
    ("pause", "seed"), [(pause, seed) for pause in (0.005, 0.0, "bursts") for seed in range(3)] + [(0.11, 3)]
)
async def test_the_telegram_bot_shows_everything_and_is_never_refused(service, clock, pause, seed):
    """At 5 ms between deltas and in bursts: no refused edit, no text lost, split messages whole."""
    dice = random.Random(seed)
    text = long_answer(dice)
    events: list = events_of(text, dice)
    if pause == "bursts":
        for at in sorted((dice.randrange(2, len(events)) for _ in range(12)), reverse=True):
            events.insert(at, dice.uniform(0.5, 6.0))
    service.script.ask(events=events, pause=pause if isinstance(pause, float) else 0.0)
    async with FakeTelegram(clock, seed=seed) as telegram, service.session() as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            telegram.say("Tell me everything")
            await until(lambda: telegram.chats[7], clock)
            await idle()
        messages = telegram.chats[7]
        assert telegram.refused == []
        assert content("\n".join(message.text for message in messages)) == content(text)
        assert len(messages) >= 2
        for message in messages:
            assert all(text.count("```") % 2 == 0 for text in message.texts)
        assert sum(len(message.texts) for message in messages) <= clock.now() / 1.2 + 1


async def test_the_telegram_bot_remembers_each_chat(service, clock, tmp_path):
    """Also after a restart; two users never mix, not even when they talk at once."""
    store = SQLiteConversationStore(tmp_path / "chats.sqlite")
    async with FakeTelegram(clock) as telegram:
        for round_ in range(2):
            async with service.session() as session, running_bot(telegram, session, store):
                for user in (1, 2, 3):
                    telegram.say(
                        f"How do I install it, asks user {user}, time {round_}?", user=user, chat=user
                    )
                await until(lambda asked=3 * (round_ + 1): len(service.requests) == asked, clock)
                await idle()
        assert telegram.refused == []
        for user in (1, 2, 3):
            second = "\n".join(shown.text for shown in telegram.chats[user][1:])
            assert (
                f"Earlier in this thread you asked: “How do I install it, asks user {user}, time 0?”"
                in second
            )
            everything = "\n".join(shown.text for shown in telegram.chats[user])
            assert not re.findall(rf"asks user [^{user}]", everything)
        assert len(service.threads) == 3


async def test_two_messages_at_once_are_answered_in_turn(service, clock):
    """Telegram hands a user's messages to handlers that run side by side."""
    async with FakeTelegram(clock) as telegram, service.session() as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            telegram.say("How do I install it?")
            telegram.say("And then?")
            await until(lambda: len(service.requests) == 2, clock)
            await idle()
        assert "Earlier in this thread you asked: “How do I install it?”" in telegram.chats[7][1].text
        assert telegram.refused == []


@pytest.mark.parametrize("script", [{"fault": Cut(at=900, how="rst")}, {"status": 503}])
async def test_a_failure_is_said_after_the_last_text(service, clock, script, caplog):
    """What had come stays; the apology comes no sooner than an edit would; the next question is answered."""
    service.script.ask(**script)
    async with FakeTelegram(clock) as telegram, service.session() as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            telegram.say("How do I install it?")
            await until(lambda: any("Sorry" in shown.text for shown in telegram.chats[7]), clock)
            telegram.say("How do I install it?")
            await until(lambda: any("Found in" in shown.text for shown in telegram.chats[7]), clock)
            await idle()
        assert telegram.refused == []
        assert "Earlier in this thread" not in telegram.chats[7][-1].text


async def test_the_telegram_bot_shows_what_people_read(service, clock):
    """Texts apart, no suggestions block in any edit, whole links below."""
    service.script.ask(events=TWO_TEXTS, pause=0.3)
    async with FakeTelegram(clock) as telegram, service.session(site="https://docs.acme.com") as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            telegram.say("How do I log in?")
            await until(lambda: telegram.chats[7], clock)
            await idle()
        assert [shown.text for shown in telegram.chats[7]] == [READ]
        assert not any("`" in text for shown in telegram.chats[7] for text in shown.texts)
        assert telegram.refused == []


async def test_an_answer_without_text_is_said(service, clock):
    """A turn may end without any text; the user is not left alone."""
    service.script.ask(events=[{"type": "start", "messageId": "m"}, {"type": "finish"}])
    async with FakeTelegram(clock) as telegram, service.session() as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            telegram.say("Hm")
            await until(lambda: telegram.chats[7], clock)
            await idle()
        assert [shown.text for shown in telegram.chats[7]] == ["I found nothing to say about that."]


async def test_the_program_itself_runs(monkeypatch, tmp_path):
    """``main`` as the README has it: keys from the environment, conversations in a file."""
    async with LocalService() as service, FakeTelegram(service.clock, slowest=0.0) as telegram:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("TELEGRAM_TOKEN", "42:TEST")
        monkeypatch.setenv("MINTLIFY_BASE_URL", service.base_url)
        monkeypatch.setenv("MINTLIFY_DOMAIN", service.domain)
        monkeypatch.setenv("MINTLIFY_ASSISTANT_API_KEY", service.assistant_key)
        monkeypatch.setattr(telegram_bot, "Bot", lambda token: telegram.bot())
        program = asyncio.create_task(telegram_bot.main())
        service.script.ask(events=events_of("Hello there, Ada.", random.Random(0)))
        telegram.say("Hello")
        while not (telegram.chats[7] and telegram.chats[7][-1].text == "Hello there, Ada."):
            await asyncio.sleep(0.02)
        await idle()
        await telegram_bot.dispatcher.stop_polling()
        await program
    assert (tmp_path / "chats.sqlite").exists()
