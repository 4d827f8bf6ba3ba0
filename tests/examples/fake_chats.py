"""Slack, Discord and Telegram on loopback, as far as one question and its answer need them."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, Self

from aiohttp import web

Form = dict[str, Any]
QUESTION = "How do I log in?"


class FakeChat:
    """A chat service: it sends a question to the bot, and keeps the texts that the bot has shown.

    Attributes:
        texts: The bot's messages, each with its latest text.
        url: Its address.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.url = ""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await self.talk(socket)
            return socket
        as_json = request.content_type == "application/json"
        form = await request.json() if as_json else dict(await request.post())
        answer = await self.call(request.method, request.path.strip("/").split("/"), form)
        # discord.py compares the type as a string, which must not name a character set.
        return web.Response(body=json.dumps(answer).encode(), content_type="application/json")

    async def talk(self, socket: web.WebSocketResponse) -> None:
        """Serve the bot's socket, where the service has one."""
        raise NotImplementedError

    async def call(self, method: str, path: list[str], form: Form) -> Form:
        """Answer a call of the bot."""
        raise NotImplementedError

    def show(self, number: str, text: str) -> None:
        """Keep the text of a message."""
        self.texts[number] = text


class FakeTelegram(FakeChat):
    """The Bot API."""

    prelude = """
import warnings; warnings.simplefilter("ignore")
import aiogram
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
server, real = TelegramAPIServer.from_base({url!r}), aiogram.Bot
aiogram.Bot = lambda token, default: real(token, default=default, session=AiohttpSession(api=server))
"""
    environment = {"TELEGRAM_TOKEN": "42:TEST"}  # noqa: RUF012 - never changed
    asked = False

    async def call(self, method: str, path: list[str], form: Form) -> Form:
        return {"ok": True, "result": await self._result(path[-1], form)}

    async def _result(self, method: str, form: Form) -> Any:
        if method == "getMe":
            return {"id": 42, "is_bot": True, "first_name": "Docs", "username": "docs_bot"}
        if method == "getUpdates":
            if self.asked:
                await asyncio.Event().wait()  # a long poll: nothing more is said
            self.asked = True
            sender = {"id": 7, "is_bot": False, "first_name": "Ada"}
            return [{"update_id": 1, "message": self._message(1, QUESTION) | {"from": sender}}]
        if method in ("sendMessage", "editMessageText"):
            number = int(form.get("message_id", len(self.texts) + 100))
            self.show(str(number), form["text"])
            return self._message(number, form["text"])
        return True

    def _message(self, number: int, text: str) -> Form:
        chat = {"id": 7, "type": "private", "first_name": "Ada"}
        return {"message_id": number, "date": 1_767_225_600, "chat": chat, "text": text}


class FakeSlack(FakeChat):
    """The Web API's methods for streamed messages, and Socket Mode."""

    prelude = """
import slack_bolt.app.async_app as bolt
from slack_sdk.web.async_client import AsyncWebClient
real = bolt.AsyncApp
bolt.AsyncApp = lambda token: real(client=AsyncWebClient(token, base_url={url!r} + "/api/"))
"""
    environment = {"SLACK_BOT_TOKEN": "xoxb-test", "SLACK_APP_TOKEN": "xapp-test"}  # noqa: RUF012 - never changed
    ended = ""  # the time stamp of a message that Slack has ended by itself

    async def talk(self, socket: web.WebSocketResponse) -> None:
        await socket.send_json({"type": "hello", "num_connections": 1})
        event = {
            "type": "message",
            "user": "U1",
            "text": QUESTION,
            "ts": "1.0",
            "channel": "D1",
            "team": "T1",
        }
        payload = {"type": "event_callback", "team_id": "T1", "event": {**event, "channel_type": "im"}}
        await socket.send_json({"type": "events_api", "envelope_id": "e1", "payload": payload})
        async for _ in socket:
            pass

    async def call(self, method: str, path: list[str], form: Form) -> Form:
        if path[-1] == "chat.appendStream" and form["ts"] == self.ended:
            return {"ok": False, "error": "message_not_in_streaming_state"}
        common = {"ok": True, "channel": "D1", "ts": form.get("ts") or f"{len(self.texts) + 2}.0"}
        if path[-1] == "auth.test":
            return {
                **common,
                "url": "https://acme.slack.com/",
                "user_id": "U0",
                "bot_id": "B0",
                "team_id": "T1",
            }
        if path[-1] == "apps.connections.open":
            return {**common, "url": self.url.replace("http:", "ws:") + "/socket"}
        chunks = form.get("chunks") or []
        chunks = json.loads(chunks) if isinstance(chunks, str) else chunks
        text = form.get("text") or form.get("markdown_text") or "".join(chunk["text"] for chunk in chunks)
        self.show(common["ts"], self.texts.get(common["ts"], "") + text)
        return common


class FakeDiscord(FakeChat):
    """REST for messages, and a gateway of events."""

    prelude = """
import warnings; warnings.simplefilter("ignore")
import discord
discord.http.Route.BASE = {url!r} + "/api"
discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = discord.gateway.yarl.URL({url!r})
"""
    environment = {"DISCORD_TOKEN": "bot-token"}  # noqa: RUF012 - never changed
    bot = {"id": "100", "username": "docs", "discriminator": "0000", "avatar": None, "bot": True}  # noqa: RUF012 - never changed

    async def talk(self, socket: web.WebSocketResponse) -> None:
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": 41_250}, "s": None, "t": None})
        async for frame in socket:
            operation = json.loads(frame.data)["op"]
            if operation == 1:
                await socket.send_json({"op": 11, "d": None, "s": None, "t": None})
            elif operation == 2:
                ready = {"v": 10, "user": self.bot, "guilds": [], "session_id": "s"}
                ready |= {"application": self._application(), "resume_gateway_url": self.url}
                await socket.send_json({"op": 0, "t": "READY", "s": 1, "d": ready})
                ada = {"id": "7", "username": "ada", "discriminator": "0000", "avatar": None}
                await socket.send_json(
                    {"op": 0, "t": "MESSAGE_CREATE", "s": 2, "d": self._message("9", QUESTION, ada)}
                )

    async def call(self, method: str, path: list[str], form: Form) -> Form:
        if "messages" not in path:
            return self._application() if "oauth2" in path else self.bot
        number = path[-1] if method == "PATCH" else str(len(self.texts) + 100)
        self.show(number, form["content"])
        return self._message(number, form["content"], self.bot)

    def _application(self) -> Form:
        owner = {"id": "7", "username": "ada", "discriminator": "0000", "avatar": None}
        flags = {"bot_public": True, "bot_require_code_grant": False, "verify_key": "", "rpc_origins": []}
        return {
            "id": "100",
            "name": "docs",
            "flags": 0,
            "description": "",
            "icon": None,
            **flags,
            "owner": owner,
            "team": None,
        }

    def _message(self, number: str, text: str, author: Form) -> Form:
        empty: Form = {"mentions": [], "mention_roles": [], "attachments": [], "embeds": []}
        state = {
            "timestamp": "2026-01-01T00:00:00.000000+00:00",
            "edited_timestamp": None,
            "tts": False,
            "type": 0,
        }
        message = {"id": number, "channel_id": "301", "author": author, "content": text, "pinned": False}
        return {**message, **empty, **state, "mention_everyone": False}
