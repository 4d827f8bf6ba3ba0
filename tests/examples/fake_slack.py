"""Slack on loopback: the Web API's methods for streamed messages, and Socket Mode's WebSocket of events."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from attrs import define, field

LONGEST = 12_000
PER_MINUTE = {"chat.startStream": 20, "chat.appendStream": 100, "chat.stopStream": 20, "chat.postMessage": 60}
BOT, TEAM = "U0BOT", "T1"


@define
class Shown:
    """A message of the bot: of one piece, or grown by appends."""

    channel: str
    thread: str
    pieces: list[str] = field(factory=list)
    streaming: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class RefusedError(Exception):
    """Slack's answer to a call that it does not accept."""


class FakeSlack:
    """Keeps the bot's messages by their time stamps, and refuses what Slack refuses."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.messages: dict[str, Shown] = {}
        self.refused: list[str] = []
        self.busy_methods: set[str] = set()  # each is refused once
        self.unacknowledged: set[str] = set()
        self.url = ""
        self._calls: dict[str, list[float]] = {}
        self._count = 0
        self._sockets: list[web.WebSocketResponse] = []
        self._connected = asyncio.Event()
        app = web.Application()
        app.router.add_post("/api/{method}", self._handle)
        app.router.add_get("/socket", self._socket)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/api/"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    # What people do ---------------------------------------------------------------------------

    async def mention(self, text: str, *, user: str = "U1", channel: str = "C1", **more: Any) -> str:
        """Mention the bot in a channel that it reads, too: Slack sends two events."""
        ts = self._now()
        event = {"user": user, "text": f"<@{BOT}> {text}", "ts": ts, "channel": channel, "team": TEAM, **more}
        await self.send({"type": "app_mention", **event})
        await self.send({"type": "message", "channel_type": "channel", **event})
        return ts

    async def say(self, text: str, *, user: str = "U1", channel: str = "D1", **more: Any) -> str:
        """Write a direct message, or one in a channel, without a mention."""
        ts, kind = self._now(), "im" if channel.startswith("D") else "channel"
        event = {"user": user, "text": text, "ts": ts, "channel": channel, "channel_type": kind, "team": TEAM}
        await self.send({"type": "message", **event, **more})
        return ts

    async def delete(self, ts: str, *, channel: str = "C1") -> None:
        """Delete a question. One that has answers in its thread becomes a tombstone."""
        event = {"type": "message", "channel": channel, "channel_type": "channel", "ts": self._now()}
        if any(message.thread == ts for message in self.messages.values()):
            tombstone = {"type": "message", "subtype": "tombstone", "ts": ts, "thread_ts": ts}
            await self.send({**event, "subtype": "message_changed", "message": tombstone})
        else:
            await self.send({**event, "subtype": "message_deleted", "deleted_ts": ts})

    async def send(self, event: dict[str, Any], *, times: int = 1) -> None:
        """Send an event to the bot that is connected; Slack may send one again."""
        async with asyncio.timeout(20):
            await self._connected.wait()
        self._count += 1
        envelope = f"envelope-{self._count}"
        self.unacknowledged.add(envelope)
        payload = {"type": "event_callback", "team_id": TEAM, "event_id": f"Ev{self._count}", "event": event}
        frame = {"type": "events_api", "envelope_id": envelope, "payload": payload}
        for _ in range(times):
            await self._sockets[-1].send_json(frame)

    def _now(self) -> str:
        self._count += 1
        return f"{1_767_225_600 + self._count}.{self._count:06}"

    # What the bot calls -----------------------------------------------------------------------

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._sockets.append(socket)
        await socket.send_json({"type": "hello", "num_connections": 1})
        self._connected.set()
        async for message in socket:
            self.unacknowledged.discard(json.loads(message.data)["envelope_id"])
        return socket

    async def _handle(self, request: web.Request) -> web.Response:
        as_json = request.content_type == "application/json"
        form = await request.json() if as_json else dict(await request.post())
        method = request.match_info["method"]
        token = "xapp-test" if method == "apps.connections.open" else "xoxb-test"
        if request.headers.get("Authorization") != f"Bearer {token}":
            return web.json_response({"ok": False, "error": "invalid_auth"})
        calls = [at for at in self._calls.get(method, []) if at > self.clock.now() - 60]
        if method in self.busy_methods or len(calls) >= PER_MINUTE.get(method, 1000):
            self.busy_methods.discard(method)
            self.refused.append("ratelimited")
            error = {"ok": False, "error": "ratelimited"}
            return web.json_response(error, status=429, headers={"Retry-After": "0"})
        self._calls[method] = [*calls, self.clock.now()]
        try:
            answer = getattr(self, "_" + method.replace(".", "_"))(form)
        except RefusedError as error:
            self.refused.append(f"{method}: {error}")
            return web.json_response({"ok": False, "error": str(error)})
        return web.json_response({"ok": True, **answer})

    def _auth_test(self, form: dict[str, Any]) -> dict[str, Any]:
        return {"url": "https://acme.slack.com/", "user_id": BOT, "bot_id": "B0BOT", "team_id": TEAM}

    def _apps_connections_open(self, form: dict[str, Any]) -> dict[str, Any]:
        return {"url": self.url.replace("http:", "ws:").replace("/api/", "/socket")}

    def _chat_postMessage(self, form: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - the method's own name
        ts = self._now()
        self.messages[ts] = Shown(form["channel"], form.get("thread_ts", ""), [form["text"]])
        return {"channel": form["channel"], "ts": ts}

    def _chat_startStream(self, form: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - the method's own name
        if not form.get("thread_ts"):
            raise RefusedError("invalid_thread_ts")
        if not form["channel"].startswith("D") and not (
            form.get("recipient_user_id") and form.get("recipient_team_id")
        ):
            raise RefusedError("missing_recipient_user_id")
        ts = self._now()
        self.messages[ts] = Shown(form["channel"], form["thread_ts"], streaming=True)
        return self._append(ts, form)

    def _chat_appendStream(self, form: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - the method's own name
        return self._append(form["ts"], form)

    def _append(self, ts: str, form: dict[str, Any]) -> dict[str, Any]:
        chunks = form.get("chunks") or []
        chunks = json.loads(chunks) if isinstance(chunks, str) else chunks
        text = "".join(chunk["text"] for chunk in chunks) or form.get("markdown_text", "")
        message = self.messages[ts]
        if not text or not message.streaming:
            raise RefusedError("no_text" if not text else "message_not_in_streaming_state")
        if len(text) + len(message.text) > LONGEST:
            raise RefusedError("msg_too_long")
        message.pieces.append(text)
        return {"channel": form["channel"], "ts": ts}

    def _chat_stopStream(self, form: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - the method's own name
        if not self.messages[form["ts"]].streaming:
            raise RefusedError("message_not_in_streaming_state")
        self.messages[form["ts"]].streaming = False
        return {"channel": form["channel"], "ts": form["ts"]}
