"""Discord on loopback, as far as a bot in text channels sees it: messages over REST, a gateway of events."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, Self

import discord
from aiohttp import web
from attrs import define, field

LONGEST = 2000
EDITS, SECONDS = 5, 5.0  # five requests of a kind in five seconds and one channel
SUPPRESS_EMBEDS = 1 << 2
MESSAGE_CONTENT = 1 << 15
BOT = {"id": "100", "username": "docs", "discriminator": "0000", "avatar": None, "bot": True}
GUILD, CHANNEL, THREAD, DIRECT = 200, 201, 202, 301


@define
class Shown:
    """A message of the bot, with every text that it had."""

    channel: int
    answers: int
    flags: int
    mentions: dict[str, Any]
    texts: list[str] = field(factory=list)

    @property
    def text(self) -> str:
        return self.texts[-1]


class FakeDiscord:
    """Keeps the bot's messages; refuses what is empty, too long, too fast, or an answer to nothing."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.messages: dict[int, Shown] = {}
        self.refused: list[str] = []
        self.url = ""
        self._said: set[int] = set()
        self._calls: dict[tuple[str, int], list[float]] = {}
        self._count = 1_400_000_000_000_000_000  # ids tell the time
        self._sequence = 0
        self._intents = 0
        self._socket: web.WebSocketResponse | None = None
        self._ready = asyncio.Event()
        app = web.Application()
        app.router.add_get("/api/users/@me", self._me)
        app.router.add_get("/api/oauth2/applications/@me", self._me)
        app.router.add_post("/api/channels/{channel:\\d+}/messages", self._send)
        app.router.add_patch("/api/channels/{channel:\\d+}/messages/{id:\\d+}", self._edit)
        app.router.add_get("/", self._gateway)
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

    # What people do ---------------------------------------------------------------------------

    async def say(self, text: str, *, user: int = 7, channel: int = CHANNEL, bot: bool = False) -> int:
        """Write a message; ``<@100>`` in it mentions the bot."""
        async with asyncio.timeout(20):
            await self._ready.wait()
        mentioned = f"<@{BOT['id']}>" in text
        seen = mentioned or channel == DIRECT or self._intents & MESSAGE_CONTENT
        author = {"id": str(user), "username": "ada", "discriminator": "0000", "avatar": None, "bot": bot}
        message = self._message(self._next(), channel, text if seen else "", author)
        message["mentions"] = [BOT] if mentioned else []
        self._said.add(int(message["id"]))
        await self._dispatch("MESSAGE_CREATE", message)
        return int(message["id"])

    async def delete(self, message: int, *, channel: int = CHANNEL) -> None:
        """Delete a message of a person."""
        self._said.discard(message)
        event = {"id": str(message), "channel_id": str(channel), "guild_id": str(GUILD)}
        await self._dispatch("MESSAGE_DELETE", event)

    # The gateway --------------------------------------------------------------------------------

    async def _gateway(self, request: web.Request) -> web.WebSocketResponse:
        self._socket = web.WebSocketResponse()
        await self._socket.prepare(request)
        await self._socket.send_json({"op": 10, "d": {"heartbeat_interval": 41_250}, "s": None, "t": None})
        async for frame in self._socket:
            sent = json.loads(frame.data)
            if sent["op"] == 1:
                await self._socket.send_json({"op": 11, "d": None, "s": None, "t": None})
            elif sent["op"] == 2:
                assert sent["d"]["token"] == "bot-token"
                self._intents = sent["d"]["intents"]
                await self._welcome()
        return self._socket

    async def _welcome(self) -> None:
        guilds = [{"id": str(GUILD), "unavailable": True}]
        ready = {"v": 10, "user": BOT, "guilds": guilds, "session_id": "s", "application": APPLICATION}
        await self._dispatch("READY", {**ready, "resume_gateway_url": self.url})
        common = {"guild_id": str(GUILD), "position": 0, "permission_overwrites": []}
        channel = {"id": str(CHANNEL), "type": 0, "name": "help", "parent_id": None, **common}
        state = {"archived": False, "auto_archive_duration": 60, "archive_timestamp": DATE, "locked": False}
        thread = {"id": str(THREAD), "type": 11, "name": "login", "parent_id": str(CHANNEL), "owner_id": "7"}
        thread |= {"guild_id": str(GUILD), "thread_metadata": state, "message_count": 0, "member_count": 1}
        guild = {
            "id": str(GUILD),
            "name": "Acme",
            "owner_id": "7",
            "member_count": 2,
            "roles": [],
            "members": [],
        }
        await self._dispatch("GUILD_CREATE", guild | {"channels": [channel], "threads": [thread]})
        self._ready.set()

    async def _dispatch(self, event: str, data: dict[str, Any]) -> None:
        assert self._socket is not None
        self._sequence += 1
        await self._socket.send_json({"op": 0, "t": event, "s": self._sequence, "d": data})

    # REST ---------------------------------------------------------------------------------------

    async def _me(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bot bot-token":
            return json_answer({"message": "401: Unauthorized", "code": 0}, status=401)
        return json_answer(APPLICATION if "oauth2" in request.path else BOT)

    async def _send(self, request: web.Request) -> web.Response:
        form, channel = await request.json(), int(request.match_info["channel"])
        answers = int(form["message_reference"]["message_id"])
        if refusal := self._refusal("POST", channel, form["content"]):
            return refusal
        if answers not in self._said:
            return self._refuse(400, 50035, "Unknown message")
        number = self._next()
        mentions = form["allowed_mentions"]
        self.messages[number] = Shown(channel, answers, form.get("flags", 0), mentions, [form["content"]])
        return json_answer(self._message(number, channel, form["content"], BOT))

    async def _edit(self, request: web.Request) -> web.Response:
        form, channel = await request.json(), int(request.match_info["channel"])
        if refusal := self._refusal("PATCH", channel, form["content"]):
            return refusal
        number = int(request.match_info["id"])
        self.messages[number].texts.append(form["content"])
        return json_answer(self._message(number, channel, form["content"], BOT))

    def _refusal(self, method: str, channel: int, text: str) -> web.Response | None:
        now = self.clock.now()
        calls = [at for at in self._calls.get((method, channel), []) if at > now - SECONDS]
        if len(calls) >= EDITS:
            self.refused.append("429")
            slow = {"message": "You are being rate limited.", "retry_after": 0.1, "global": False}
            return json_answer(slow, status=429, headers={"Via": "1.1 google"})
        self._calls[method, channel] = [*calls, now]
        if not text.strip():
            return self._refuse(400, 50006, "Cannot send an empty message")
        if len(text) > LONGEST:
            return self._refuse(400, 50035, "Must be 2000 or fewer in length.")
        return None

    def _refuse(self, status: int, code: int, words: str) -> web.Response:
        self.refused.append(words)
        return json_answer({"message": words, "code": code}, status=status)

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _message(self, number: int, channel: int, text: str, author: dict[str, Any]) -> dict[str, Any]:
        where = {} if channel == DIRECT else {"guild_id": str(GUILD)}
        empty: dict[str, Any] = {"mentions": [], "mention_roles": [], "attachments": [], "embeds": []}
        state = {"timestamp": DATE, "edited_timestamp": None, "tts": False, "pinned": False, "type": 0}
        message = {"id": str(number), "channel_id": str(channel), "author": author, "content": text}
        return {**message, **where, **empty, **state, "mention_everyone": False}


def json_answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return an answer whose type is spelt as Discord spells it: discord.py compares it."""
    body = json.dumps(data).encode()
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


DATE = "2026-01-01T00:00:00.000000+00:00"
APPLICATION: dict[str, Any] = {
    "id": "100",
    "name": "docs",
    "flags": 0,
    "description": "",
    "icon": None,
    "bot_public": True,
    "bot_require_code_grant": False,
    "verify_key": "",
    "rpc_origins": [],
    "owner": {"id": "7", "username": "ada", "discriminator": "0000", "avatar": None},
    "team": None,
}


def lead_to(url: str, patch: Any = setattr) -> None:
    """Let discord.py talk to a fake at *url*."""
    patch(discord.http.Route, "BASE", f"{url}/api")
    patch(discord.gateway.DiscordWebSocket, "DEFAULT_GATEWAY", discord.gateway.yarl.URL(url))
