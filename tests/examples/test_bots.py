"""The example bots, each as a program of its own: one question is answered, and SIGTERM ends it."""

from __future__ import annotations

import asyncio
import signal

import pytest

from mintlify_async.testing import LocalService
from tests.examples.fake_chats import QUESTION, FakeDiscord, FakeSlack, FakeTelegram
from tests.examples.program_kit import running

pytestmark = pytest.mark.real
BOTS = {
    "slack_bot.py": (FakeSlack, "slack_bolt"),
    "discord_bot.py": (FakeDiscord, "discord"),
    "telegram_bot.py": (FakeTelegram, "aiogram"),
}


@pytest.mark.parametrize("program", BOTS)
async def test_a_question_is_answered(program, tmp_path):
    """The whole answer is shown, with what is below it; the program ends with status 0 and no traceback."""
    platform, module = BOTS[program]
    if module != "discord":  # importing discord warns
        pytest.importorskip(module, reason=f"{module} is not installed")
    async with LocalService() as service, platform() as chat:
        service.script.ask(text="Press the button.", sources=["/login"])
        prelude, environment = chat.prelude.format(url=chat.url), chat.environment
        async with running(program, service, tmp_path, prelude, **environment) as bot, asyncio.timeout(60):
            while (
                not any("/login" in text for text in chat.texts.values()) and bot.process.returncode is None
            ):
                await asyncio.sleep(0.05)
            status, errors = await bot.end(signal.SIGTERM)
    shown = "\n".join(chat.texts.values())
    assert "Press the button." in shown, errors
    assert [request.json["messages"][-1]["parts"][0]["text"] for request in service.requests.of("ask")] == [
        QUESTION
    ]
    assert (status, "Traceback" in errors, "Unclosed" in errors) == (0, False, False), errors


async def test_the_rest_of_an_answer_whose_message_slack_has_ended_is_a_new_message(tmp_path):
    """Slack ends a streamed message after some minutes; then nothing of the answer is lost."""
    async with LocalService() as service, FakeSlack() as chat:
        chat.ended = "2.0"  # the first message takes no more text
        text = {"type": "text-delta", "id": "t", "delta": "Press the button."}
        # The pause makes two edits: the last word is held back for a second.
        service.script.ask(events=[{"type": "start"}, {"type": "text-start", "id": "t"}, text, 600.0])
        prelude = chat.prelude.format(url=chat.url)
        async with running("slack_bot.py", service, tmp_path, prelude, **chat.environment) as bot:
            async with asyncio.timeout(60):
                while len(chat.texts) < 2 and bot.process.returncode is None:
                    await asyncio.sleep(0.05)
            status, errors = await bot.end(signal.SIGTERM)
    assert chat.texts["2.0"] + chat.texts["3.0"] == "Press the button.", errors
    assert (status, "Traceback" in errors) == (0, False), errors
