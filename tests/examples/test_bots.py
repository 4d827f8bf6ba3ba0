"""The example bots: one question is answered; the platforms' own objects are mocks."""

from __future__ import annotations

import asyncio
import importlib
import sys
import warnings
from types import ModuleType
from unittest.mock import AsyncMock, MagicMock

import pytest

from mintlify_async import SQLiteStore
from mintlify_async.testing import LocalService
from tests.support.child_process import ROOT

pytestmark = pytest.mark.real


@pytest.fixture
async def service(virtual, monkeypatch, tmp_path):
    """A service whose settings are in the environment, as are tokens for the platforms."""
    async with LocalService() as service:
        service.script.ask(text="Press the button.", sources=["/login"])
        for name, value in {**service.environment, "SLACK_BOT_TOKEN": "xoxb-1"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(ROOT / "examples"))
        yield service


def load(name: str, library: str) -> ModuleType:
    """Import the example anew, with the settings of this test."""
    with warnings.catch_warnings(action="ignore"):  # importing discord warns
        pytest.importorskip(library, reason=f"{library} is not installed")
        sys.modules.pop(name, None)
        return importlib.import_module(name)


def check(service: LocalService, shown: str) -> None:
    """The answer is shown with what is below it, and the question went out without the mention."""
    assert "Press the button." in shown
    assert "/login" in shown
    (request,) = service.requests.of("ask")
    assert request.json["messages"][-1]["parts"][0]["text"] == "How do I log in?"


@pytest.mark.parametrize("ends", [False, True], ids=["as it grows", "ended by Slack"])
async def test_slack(service, ends):
    """Slack ends a streamed message after some minutes: the rest of the answer is a new message."""
    bot = load("slack_bot", "slack_bolt")
    event = {"ts": "1.0", "user": "U1", "channel": "C1", "text": "<@B1> How do I log in?"}
    say, first, second = AsyncMock(), AsyncMock(), AsyncMock()
    if ends:
        first.append.side_effect = first.stop.side_effect = bot.SlackApiError("x", {"error": bot.ENDED})
    async with bot.session:
        await bot.answer(event, say, AsyncMock(side_effect=[first, second]))
    stream = second if ends else first
    check(service, "".join(call.kwargs["markdown_text"] for call in stream.append.call_args_list))
    stream.stop.assert_awaited()
    say.assert_not_awaited()
    await bot.store.close()


async def test_slack_sends_an_event_again(service):
    """It does so up to five minutes later, when its first delivery was not confirmed: there is one answer."""
    bot = load("slack_bot", "slack_bolt")
    event = {
        "type": "app_mention",
        "ts": "1.0",
        "user": "U1",
        "channel": "C1",
        "text": "<@B1> How do I log in?",
    }
    async with bot.session:
        for _ in range(3):
            await bot.on_event(event, AsyncMock(), AsyncMock(return_value=AsyncMock()))
        assert service.requests.count("ask") == 1
        await bot.on_event(event | {"ts": "2.0"}, AsyncMock(), AsyncMock(return_value=AsyncMock()))
        assert service.requests.count("ask") == 2
    await bot.store.close()


async def test_discord(service):
    bot, sent = load("discord_bot", "discord"), AsyncMock()
    message = MagicMock(content="<@7> How do I log in?", reply=AsyncMock(return_value=sent))
    async with service.session() as session:
        client = bot.Bot(session)
        await client.answer(message)
        await client.store.close()
    last = sent.edit.call_args
    check(service, last.kwargs["content"] if last else message.reply.call_args.args[0])


async def test_telegram(service, tmp_path):
    bot, sent = load("telegram_bot", "aiogram"), AsyncMock()
    message = MagicMock(text="How do I log in?", message_thread_id=None, answer=AsyncMock(return_value=sent))
    store = SQLiteStore(tmp_path / "telegram.sqlite")
    async with service.session() as session:
        await bot.answer(message, session, store)
    await store.close()
    check(service, (sent.edit_text.call_args or message.answer.call_args).args[0])


@pytest.mark.parametrize("pauses", [[7], [7, 7, 7], [61]], ids=["once", "three times", "too long"])
async def test_telegram_asks_for_a_pause(service, pauses):
    """A 429 of Telegram ends no answer: aiogram sends the message again after the pause."""
    bot = load("telegram_bot", "aiogram")
    from aiogram.client.session.aiohttp import AiohttpSession
    from aiogram.exceptions import TelegramRetryAfter
    from aiogram.methods import SendMessage

    method = SendMessage(chat_id=1, text="x")
    refusals = [TelegramRetryAfter(method, "Too Many Requests", retry_after=seconds) for seconds in pauses]
    request = AsyncMock(side_effect=[*refusals, "sent"])
    telegram = AiohttpSession()
    telegram.middleware(bot.patient)
    start = asyncio.get_running_loop().time()
    send = telegram.middleware.wrap_middlewares(request)(MagicMock(), method)
    if pauses == [61]:
        with pytest.raises(TelegramRetryAfter):
            await send
    else:
        assert await send == "sent"
        assert asyncio.get_running_loop().time() - start == pytest.approx(sum(pauses))


class RefusedError(Exception):
    """The platform refuses a message, or is not reached."""


async def ask_discord(session, text: str, sending: AsyncMock) -> None:
    bot = load("discord_bot", "discord")
    client = bot.Bot(session)
    await client.answer(MagicMock(content=f"<@7> {text}", reply=sending))
    await client.store.close()


async def ask_slack(session, text: str, sending: AsyncMock) -> None:
    bot = load("slack_bot", "slack_bolt")
    stream = AsyncMock()
    stream.append = stream.stop = sending
    event = {"ts": "1.0", "user": "U1", "channel": "C1", "text": f"<@B1> {text}"}
    async with bot.session:
        await bot.answer(event, sending, AsyncMock(return_value=stream))
    await bot.store.close()


async def ask_telegram(session, text: str, sending: AsyncMock) -> None:
    bot = load("telegram_bot", "aiogram")
    store = SQLiteStore("telegram.sqlite")
    mention = f"@Acme_docs_bot {text}"
    await bot.answer(MagicMock(text=mention, message_thread_id=None, answer=sending), session, store)
    await store.close()


bots = pytest.mark.parametrize("ask", [ask_discord, ask_slack, ask_telegram])


@bots
async def test_a_bare_mention_gets_a_hint(service, ask):
    """Somebody who only mentions the bot reads what to do. The service gets no question."""
    sending = AsyncMock()
    async with service.session() as session:
        await ask(session, " ", sending)
    assert [call.args[0][:20] for call in sending.call_args_list] == ["Ask me a question ab"]
    assert not service.requests


@bots
@pytest.mark.parametrize("sends", [1, 100], ids=["one fails", "all fail"])
async def test_a_send_that_fails_is_no_end_of_the_apology(service, ask, sends, caplog):
    """The person reads the apology if it can be sent. The log has the error, and the bot goes on."""
    sending = AsyncMock(side_effect=[*[RefusedError()] * sends, *[AsyncMock()] * 5])
    async with service.session() as session:
        await ask(session, "How do I log in?", sending)
    said = [call.args[0] for call in sending.call_args_list if call.args]
    assert said[-1].startswith("Sorry, I could not answer that.")
    assert "no answer in" in caplog.text
    assert service.requests.of("ask")[0].json["messages"][-1]["parts"][0]["text"] == "How do I log in?"


@bots
async def test_an_apology_that_fails_ends_no_handler(service, ask, caplog):
    """The service refuses, and so does the platform."""
    service.script.clear()
    service.script.ask(status=400, body={"detail": "no"})
    async with service.session() as session:
        await ask(session, "How do I log in?", AsyncMock(side_effect=RefusedError()))
    assert "ask: 400: no" in caplog.text


@bots
async def test_an_answer_that_the_service_ends_early_does_not_look_complete(service, ask, caplog):
    """An `abort` raises no error. The person reads the apology, and the log has the reason."""
    service.script.clear()
    service.script.ask(events=[{"type": "start"}, {"type": "abort", "reason": "too long"}])
    sending = AsyncMock()
    async with service.session() as session:
        await ask(session, "How do I log in?", sending)
    said = [call.args[0] for call in sending.call_args_list if call.args]
    assert said[-1].startswith("Sorry, I could not answer that.")
    assert "the service ended it early" in caplog.text
