"""Telegram's Bot API on loopback, as strict as the real one: requests of a bot in, messages in chats out."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from html.parser import HTMLParser
from types import TracebackType
from typing import Any, Self

from aiogram import Bot
from aiogram.client.default import DefaultBotProperties
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiohttp import web
from attrs import define, field

TOKEN = "42:TEST"
SECONDS_BETWEEN = {"private": 1.0, "group": 3.0}
LONGEST = 4096
TAGS = {"a", "b", "blockquote", "code", "del", "em", "i", "ins", "pre", "s", "strike", "strong", "u"}


@define
class Shown:
    """A message that the bot has sent: every text that people saw, and what is marked in the last."""

    texts: list[str] = field(factory=list)
    marked: list[tuple[str, str]] = field(factory=list)

    @property
    def text(self) -> str:
        return self.texts[-1]


class TelegramHTML(HTMLParser):
    """Telegram's HTML: few tags, each closed in order; ``<`` and ``&`` only escaped.

    Attributes:
        text: What people see.
        marked: Each tag's name, or a link's address, with the text inside it.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=False)
        self.text = ""
        self.marked: list[tuple[str, str]] = []
        self.problem = ""
        self._open: list[tuple[str, str, int]] = []
        self.feed(html)
        if self.rawdata:
            self.problem = self.problem or "unclosed start tag"
        self.close()
        if self._open:
            self.problem = (
                self.problem or f"Can't find end tag corresponding to start tag {self._open[-1][0]}"
            )

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.problem = self.problem or f'Unsupported start tag "{tag}"'
        self._open.append((tag, dict(attrs).get("href") or tag, len(self.text)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            self.problem = self.problem or f'Unmatched end tag "{tag}"'
            return
        _, name, start = self._open.pop()
        self.marked.append((name, self.text[start:]))

    def handle_data(self, data: str) -> None:
        if "<" in data or "&" in data:
            self.problem = self.problem or "an unescaped character"
        self.text += data

    def handle_entityref(self, name: str) -> None:
        known = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
        self.text += known.get(name, f"&{name};")

    def handle_comment(self, data: str) -> None:
        self.problem = self.problem or "Unsupported start tag"

    handle_decl = handle_pi = unknown_decl = handle_comment


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

    def bot(self, default: DefaultBotProperties) -> Bot:
        """Return a bot that talks to this API."""
        session = AiohttpSession(api=TelegramAPIServer.from_base(self.url))
        return Bot(TOKEN, session=session, default=default)

    def say(self, text: str | None, *, user: int = 7, chat: int = 7, **more: Any) -> None:
        """Let a user write into a chat; chats with a negative number are groups. None takes a field away."""
        self._count += 1
        sender = {"from": {"id": user, "is_bot": False, "first_name": "Ada"}}
        message = self._message(chat, self._count, text) | sender | more
        message = {name: value for name, value in message.items() if value is not None}
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
        parsed = TelegramHTML(form["text"])
        if problem := self._problem_with(form, parsed):
            return self._refuse("sendMessage", 400, problem)
        self._last[chat] = self.clock.now()
        self.chats[chat].append(Shown([parsed.text], parsed.marked))
        number = 1000 * abs(chat) + len(self.chats[chat]) - 1
        await self._take_time()
        return web.json_response({"ok": True, "result": self._message(chat, number, parsed.text)})

    async def _editMessageText(self, form: dict[str, str]) -> web.Response:  # noqa: N802 - the method's own name
        chat, number = int(form["chat_id"]), int(form["message_id"])
        await self._take_time()
        shown, parsed = self.chats[chat][number % 1000], TelegramHTML(form["text"])
        if self.clock.now() - self._last[chat] < SECONDS_BETWEEN[kind_of(chat)]:
            return self._refuse("editMessageText", 429, "Too Many Requests: retry after 1")
        if problem := self._problem_with(form, parsed):
            return self._refuse("editMessageText", 400, problem)
        if (parsed.text.strip(), parsed.marked) == (shown.text.strip(), shown.marked):
            return self._refuse("editMessageText", 400, "Bad Request: message is not modified")
        self._last[chat] = self.clock.now()
        shown.texts.append(parsed.text)
        shown.marked = parsed.marked
        await self._take_time()
        return web.json_response({"ok": True, "result": self._message(chat, number, parsed.text)})

    async def _take_time(self) -> None:
        await self.clock.sleep(self._dice.uniform(0, self._slowest))

    def _problem_with(self, form: dict[str, str], parsed: TelegramHTML) -> str | None:
        if form.get("parse_mode") != "HTML":
            return "Bad Request: unsupported parse_mode"
        if parsed.problem:
            return f"Bad Request: can't parse entities: {parsed.problem}"
        if not parsed.text.strip():
            return "Bad Request: message text is empty"
        units = len(parsed.text.strip().encode("utf-16-le")) // 2
        return "Bad Request: message is too long" if units > LONGEST else None

    def _refuse(self, method: str, status: int, description: str) -> web.Response:
        self.refused.append((method, description))
        error: dict[str, Any] = {"ok": False, "error_code": status, "description": description}
        if status == 429:
            error["parameters"] = {"retry_after": 1}
        return web.json_response(error, status=status)

    def _message(self, chat: int, number: int, text: str | None) -> dict[str, Any]:
        where = {"id": chat, "type": kind_of(chat), "first_name": "Ada"}
        return {"message_id": number, "date": 1_767_225_600, "chat": where, "text": text}


def kind_of(chat: int) -> str:
    return "group" if chat < 0 else "private"
