"""The example's Telegram bot against a Bot API on loopback that is as strict as the real one."""

from __future__ import annotations

import asyncio
import importlib
import random
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("aiogram", reason="aiogram is not installed")

import telegram_bot
from aiogram.client.default import DefaultBotProperties
from fake_telegram import FakeTelegram, TelegramHTML
from long_answers import TWO_TEXTS, content, events_of, long_answer
from program_kit import idle, running, until

from mintlify_async import MintlifyError
from mintlify_async.rendering.splitting import MarkdownSplitter
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
    async with telegram.bot(DefaultBotProperties(parse_mode="HTML")) as bot:
        polling = asyncio.create_task(
            telegram_bot.dispatcher.start_polling(
                bot, session=session, store=store, handle_signals=False, close_bot_session=False
            )
        )
        try:
            yield
        finally:
            await telegram_bot.dispatcher.stop_polling()
            await polling


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
            await idle("_process_update")
        messages = telegram.chats[7]
        assert telegram.refused == []
        assert content("\n".join(message.text for message in messages)) == content(text.replace("*", ""))
        assert len(messages) >= 2
        assert not any("```" in text for message in messages for text in message.texts)
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
                await idle("_process_update")
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
            await idle("_process_update")
        assert "Earlier in this thread you asked: “How do I install it?”" in telegram.chats[7][1].text
        assert telegram.refused == []


@pytest.mark.parametrize("script", [{"fault": Cut(at=-400, how="rst")}, {"status": 503}])
async def test_a_failure_is_said_after_the_last_text(service, clock, script, caplog):
    """What had come stays; the apology comes no sooner than an edit would; the next question is answered."""
    service.script.ask(**script)
    async with FakeTelegram(clock) as telegram, service.session() as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            telegram.say("How do I install it?")
            await until(lambda: any("Sorry" in shown.text for shown in telegram.chats[7]), clock)
            telegram.say("How do I install it?")
            await until(lambda: any("Found in" in shown.text for shown in telegram.chats[7]), clock)
            await idle("_process_update")
        assert telegram.refused == []
        assert "Earlier in this thread" not in telegram.chats[7][-1].text
    (record,) = [record for record in caplog.records if record.exc_info]
    assert isinstance(record.exc_info[1], MintlifyError)
    assert record.getMessage() == "no answer in telegram-7-0"


async def test_the_telegram_bot_shows_what_people_read(service, clock):
    """Texts apart, no suggestions block in any edit, whole links below."""
    service.script.ask(events=TWO_TEXTS, pause=0.3)
    async with FakeTelegram(clock) as telegram, service.session(site="https://docs.acme.com") as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            telegram.say("How do I log in?")
            await until(lambda: telegram.chats[7], clock)
            await idle("_process_update")
        (shown,) = telegram.chats[7]
        assert shown.text == (
            "Let me look that up.\n\nLog in\nPress it.\n\nSources\n\n- Log in\n\nSee also\n\n- SSO"
        )
        assert ("b", "Log in") in shown.marked
        assert ("https://docs.acme.com/login", "Log in") in shown.marked
        assert ("https://docs.acme.com/sso", "SSO") in shown.marked
        assert not any("`" in text for text in shown.texts)
        assert telegram.refused == []


async def test_an_answer_without_text_is_said(service, clock):
    """A turn may end without any text; the user is not left alone."""
    service.script.ask(events=[{"type": "start", "messageId": "m"}, {"type": "finish"}])
    async with FakeTelegram(clock) as telegram, service.session() as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            telegram.say("Hm")
            await until(lambda: telegram.chats[7], clock)
            await idle("_process_update")
        assert [shown.text for shown in telegram.chats[7]] == ["I found nothing to say about that."]


@pytest.mark.parametrize(
    "message",
    [
        {"text": "/start"},
        {"text": None, "caption": "a picture"},
        {"sender_chat": {"id": -9, "type": "group", "title": "An anonymous administrator"}},
        {"from": {"id": 136817688, "is_bot": True, "first_name": "Channel"}},
        {"from": None},
    ],
    ids=lambda message: next(iter(message)),
)
async def test_who_and_what_is_not_answered(service, clock, message):
    """Commands, pictures and anonymous senders cost nothing."""
    async with FakeTelegram(clock) as telegram, service.session() as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            telegram.say(**{"text": "ignored", "chat": -5, **message})
            telegram.say("How do I install it?")
            await until(lambda: telegram.chats[7], clock)
            await idle("_process_update")
        assert list(telegram.chats) == [7]
    assert service.requests.count("ask") == 1


async def test_a_group_and_its_topics(service, clock):
    """A group talks in one conversation, each of its topics in its own; edits are slower there."""
    dice = random.Random(5)
    service.script.ask(events=events_of(long_answer(dice), dice), pause=0.01)
    async with FakeTelegram(clock) as telegram, service.session() as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            for user, more in ((1, {}), (2, {}), (3, {"message_thread_id": 9, "is_topic_message": True})):
                telegram.say("How do I install it?", user=user, chat=-5, **more)
                await until(lambda asked=user: len(service.requests) == asked, clock)
                await idle("_process_update")
                await clock.sleep(3)
        assert telegram.refused == []
    sent = [len(request.json["messages"]) for request in service.requests.of("ask")]
    assert sent == [1, 3, 1]
    assert [request.json["fp"] for request in service.requests.of("ask")] == [
        f"telegram-{n}" for n in (1, 2, 3)
    ]


async def test_the_end_of_the_program_stops_an_answer(service, clock):
    """No handler is left, and the service sees the connection closed."""
    service.script.ask(events=[*TWO_TEXTS[:3], 3600.0, *TWO_TEXTS[3:]])
    async with FakeTelegram(clock) as telegram, service.session() as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            telegram.say("How do I log in?")
            await until(lambda: telegram.chats[7], clock)
        assert not telegram_bot.answering
        await until(lambda: service.requests[-1].client_left, clock)
    assert clock.now() < 3600


PIECES = [
    "#",
    "* ",
    "**",
    "_",
    "`",
    "```",
    "\n```py\n",
    "~~",
    "[",
    "](",
    ")",
    "<",
    ">",
    "&",
    "&amp;",
    "\\",
    "\n\n",
    "- ",
    "1. ",
    "|",
]


@pytest.mark.parametrize("seed", range(5))
def test_any_text_is_html_that_telegram_accepts(seed):
    """However Markdown was cut: no tag is open or unknown, and there is something to see."""
    dice = random.Random(seed)
    for _ in range(60):
        splitter = MarkdownSplitter(200)
        for _ in range(dice.randrange(1, 40)):
            splitter.feed(dice.choice([*PIECES, "word", "https://a.b/c", " "]))
            if (edit := splitter.next_edit()) is not None:
                parsed = TelegramHTML(telegram_bot.telegram_html(edit.text))
                assert not parsed.problem, edit.text
                assert parsed.text.strip(), edit.text


async def test_an_edit_that_changes_nothing_is_left_out(service, clock):
    """Two backslashes are shown as one: between them, Telegram would refuse the edit, and the answer end."""
    pieces = ["x" * 30, "\\", "\\", "U", "s", "ers are there"]
    deltas = [{"type": "text-delta", "id": "0", "delta": piece} for piece in pieces]
    paused = [step for delta in deltas for step in (delta, 5.0)]
    start = [{"type": "start", "messageId": "m"}, {"type": "text-start", "id": "0"}]
    service.script.ask(events=[*start, *paused, {"type": "text-end", "id": "0"}, {"type": "finish"}])
    async with FakeTelegram(clock) as telegram, service.session() as session:
        async with running_bot(telegram, session, MemoryConversationStore()):
            telegram.say("Where are my files?")
            await until(lambda: telegram.chats[7], clock)
            await idle("_process_update")
        assert telegram.refused == []
        assert [shown.text for shown in telegram.chats[7]] == ["x" * 30 + "\\Users are there"]


ON_LOOPBACK = """
import functools, warnings
warnings.simplefilter("ignore")
import aiogram
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
server = TelegramAPIServer.from_base({url!r})
real = aiogram.Bot
aiogram.Bot = lambda token, default: real(token, default=default, session=AiohttpSession(api=server))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_program_ends_cleanly(tmp_path, number):
    """With status 0 and no traceback, in the middle of an answer; what was finished is in its file."""
    async with LocalService() as service, FakeTelegram(service.clock, slowest=0.0) as telegram:
        prelude = ON_LOOPBACK.format(url=telegram.url)
        async with running(
            "telegram_bot.py", service, tmp_path, prelude, TELEGRAM_TOKEN="42:TEST"
        ) as program:
            service.script.ask(events=events_of("Hello there, *Ada*.", random.Random(0)))
            service.script.ask(events=[*TWO_TEXTS[:3], 3600.0])
            telegram.say("Hello")
            while not (telegram.chats[7] and telegram.chats[7][0].text == "Hello there, Ada."):
                await asyncio.sleep(0.01)
            telegram.say("How do I log in?")
            while len(telegram.chats[7]) < 2:
                await asyncio.sleep(0.01)
            status, errors = await program.end(number)
        assert status == 0, errors
        assert "Traceback" not in errors
        assert "Unclosed" not in errors
    stored = SQLiteConversationStore(tmp_path / "telegram.sqlite")
    assert await stored.ids(owner="telegram-7-0") == ["telegram-7-0"]


async def test_the_program_says_which_setting_is_missing(tmp_path):
    """It does not start without the assistant's settings."""
    async with running("telegram_bot.py", None, tmp_path, TELEGRAM_TOKEN="42:TEST") as program:
        status, errors = await program.end(None)
    assert status == 1
    assert "MINTLIFY_ASSISTANT_API_KEY" in errors
