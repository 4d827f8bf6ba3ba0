"""Telegram's Bot API on loopback, as strict as the real one: requests of a bot in, messages in chats out."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from types import TracebackType
from typing import Any, Self

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiohttp import web
from attrs import define, field

TOKEN = "42:TEST"
SECONDS_BETWEEN = 1.0
LONGEST = 4096


@define
class Shown:
    """A message that the bot has sent, with every text that it had."""

    texts: list[str] = field(factory=list)

    @property
    def text(self) -> str:
        return self.texts[-1]


class FakeTelegram:
    """Keeps chats; refuses an edit that comes too fast, or that changes nothing, or is too long."""

    def __init__(self, clock: Any, *, seed: int = 0, slowest: float = 0.4) -> None:
        self.clock = clock
        self.chats: defaultdict[int, list[Shown]] = defaultdict(list)
        self.refused: list[tuple[str, str]] = []
        self._dice = random.Random(seed)
        self._slowest = slowest
        self._last: dict[int, float] = {}
        self._updates: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._count = 0
        app = web.Application()
        app.router.add_route("*", f"/bot{TOKEN}/{{method}}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def bot(self) -> Bot:
        """Return a bot that talks to this API."""
        return Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(self.url)))

    def say(self, text: str, *, user: int = 7, chat: int = 7) -> None:
        """Let a user write into a chat."""
        self._count += 1
        message = self._message(chat, self._count, text) | {
            "from": {"id": user, "is_bot": False, "first_name": "Ada"}
        }
        self._updates.put_nowait({"update_id": self._count, "message": message})

    async def _handle(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        method = request.match_info["method"]
        answer = getattr(self, f"_{method}", None)
        if answer is None:
            return web.json_response({"ok": True, "result": True})
        return await answer(form)

    async def _getMe(self, form: dict[str, str]) -> web.Response:  # noqa: N802 - the method's own name
        me = {"id": 42, "is_bot": True, "first_name": "Docs", "username": "docs_bot"}
        return web.json_response({"ok": True, "result": me})

    async def _getUpdates(self, form: dict[str, str]) -> web.Response:  # noqa: N802 - the method's own name
        return web.json_response({"ok": True, "result": [await self._updates.get()]})

    async def _sendMessage(self, form: dict[str, str]) -> web.Response:  # noqa: N802 - the method's own name
        chat = int(form["chat_id"])
        await self._take_time()
        if problem := self._problem_with(form["text"]):
            return self._refuse("sendMessage", 400, problem)
        self._last[chat] = self.clock.now()
        self.chats[chat].append(Shown([form["text"]]))
        number = 1000 * chat + len(self.chats[chat]) - 1
        await self._take_time()
        return web.json_response({"ok": True, "result": self._message(chat, number, form["text"])})

    async def _editMessageText(self, form: dict[str, str]) -> web.Response:  # noqa: N802 - the method's own name
        chat, text = int(form["chat_id"]), form["text"]
        await self._take_time()
        shown = self.chats[chat][int(form["message_id"]) % 1000]
        if self.clock.now() - self._last[chat] < SECONDS_BETWEEN:
            return self._refuse("editMessageText", 429, "Too Many Requests: retry after 1")
        if problem := self._problem_with(text):
            return self._refuse("editMessageText", 400, problem)
        if text.strip() == shown.text.strip():
            return self._refuse("editMessageText", 400, "Bad Request: message is not modified")
        self._last[chat] = self.clock.now()
        shown.texts.append(text)
        await self._take_time()
        return web.json_response({"ok": True, "result": self._message(chat, int(form["message_id"]), text)})

    async def _take_time(self) -> None:
        await self.clock.sleep(self._dice.uniform(0, self._slowest))

    def _problem_with(self, text: str) -> str | None:
        if not text.strip():
            return "Bad Request: message text is empty"
        units = len(text.strip().encode("utf-16-le")) // 2
        return "Bad Request: message is too long" if units > LONGEST else None

    def _refuse(self, method: str, status: int, description: str) -> web.Response:
        self.refused.append((method, description))
        error: dict[str, Any] = {"ok": False, "error_code": status, "description": description}
        if status == 429:
            error["parameters"] = {"retry_after": 1}
        return web.json_response(error, status=status)

    def _message(self, chat: int, number: int, text: str) -> dict[str, Any]:
        kind = {"id": chat, "type": "private", "first_name": "Ada"}
        return {"message_id": number, "date": 1_767_225_600, "chat": kind, "text": text}
