"""Slack's streaming methods on loopback: appends in, whole messages out, refusals as Slack's own."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from aiohttp import web
from attrs import define, field
from slack_sdk.web.async_client import AsyncWebClient

LONGEST = 12_000


@define
class Streamed:
    """A message that grew by appends."""

    thread: str
    appended: list[str] = field(factory=list)
    stopped: bool = False

    @property
    def text(self) -> str:
        return "".join(self.appended)


class FakeSlack:
    """Keeps streamed messages by their time stamps."""

    def __init__(self) -> None:
        self.messages: dict[str, Streamed] = {}
        self.refused: list[str] = []
        app = web.Application()
        app.router.add_post("/api/{method}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/api/"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def client(self) -> AsyncWebClient:
        """Return Slack's own client, talking to this."""
        return AsyncWebClient(token="xoxb-test", base_url=self._url)

    async def _handle(self, request: web.Request) -> web.Response:
        form = (
            dict(await request.post()) if request.content_type != "application/json" else await request.json()
        )
        return getattr(self, "_" + request.match_info["method"].replace(".", "_"))(form)

    def _chat_startStream(self, form: dict[str, Any]) -> web.Response:  # noqa: N802 - the method's own name
        ts = f"1767225600.{len(self.messages):06}"
        self.messages[ts] = Streamed(form["thread_ts"])
        return self._append(ts, form)

    def _chat_appendStream(self, form: dict[str, Any]) -> web.Response:  # noqa: N802 - the method's own name
        return self._append(form["ts"], form)

    def _append(self, ts: str, form: dict[str, Any]) -> web.Response:
        text, message = form.get("markdown_text", ""), self.messages[ts]
        if not text or len(text) > LONGEST or message.stopped:
            return self._refuse("no_text" if not text else "message_not_in_streaming_state")
        message.appended.append(text)
        return web.json_response({"ok": True, "channel": form["channel"], "ts": ts})

    def _chat_stopStream(self, form: dict[str, Any]) -> web.Response:  # noqa: N802 - the method's own name
        if self.messages[form["ts"]].stopped:
            return self._refuse("message_not_in_streaming_state")
        self.messages[form["ts"]].stopped = True
        return web.json_response({"ok": True, "channel": form["channel"], "ts": form["ts"]})

    def _refuse(self, error: str) -> web.Response:
        self.refused.append(error)
        return web.json_response({"ok": False, "error": error})
