"""Serves the page and answers its questions; README.md says how to run it. Every secret stays here."""

from __future__ import annotations

import hashlib
import hmac
import html
import logging
import os
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from mintlify_async import MintlifySession, SQLiteConversationStore
from mintlify_async.contrib.relay import Relay, RelayFeedback

PAGE = Path(__file__).parent / "page" / "dist"
COOKIE, YEAR = "browser", 365 * 24 * 3600
# Nothing but the page's own files may run in it; pictures of an answer may come from any https address.
POLICY = "default-src 'self'; img-src 'self' https: data:; object-src 'none'; base-uri 'none'"

log = logging.getLogger("uvicorn.error")


def store_feedback(feedback: RelayFeedback) -> None:
    """Replace this by your database."""
    log.info("%s rates message %r with %+d", feedback.user, feedback.message_id, feedback.value)


def create_app(
    session: MintlifySession | None = None,
    env: Mapping[str, str] = os.environ,
    page: Path = PAGE,
    **more: Any,
) -> FastAPI:
    """Return the app. *env* has the settings that README.md lists; *more* is for the relay."""
    session = session or MintlifySession()
    secret, chats = env["RELAY_SECRET"], env.get("CHATS", "chats.sqlite")
    index, site = (page / "index.html").read_text("utf-8"), html.escape(env.get("DOCS_SITE", ""))
    index = index.replace('name="docs-site" content=""', f'name="docs-site" content="{site}"')

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with session, relay.drain_on_signal(20):  # seconds for answers that run at a deployment
            yield

    def signed(browser: str) -> str:
        mark = hmac.new(secret.encode(), f"browser {browser}".encode(), hashlib.sha256).hexdigest()
        return f"{browser}.{mark}"

    def user(request: Request) -> str:
        """Return who asks. Here every browser is a user; an app with accounts returns the account's id."""
        cookie = request.cookies.get(COOKIE, "")
        browser = cookie.partition(".")[0]
        return browser if hmac.compare_digest(cookie.encode(), signed(browser).encode()) else ""

    hooks: dict[str, Any] = {"user": user, "on_feedback": store_feedback, **more}
    relay = Relay(session, secrets=[secret], store=SQLiteConversationStore(chats), **hooks)
    app = FastAPI(lifespan=lifespan, openapi_url=None)
    app.include_router(relay.router())
    app.mount("/assets", StaticFiles(directory=page / "assets"))

    @app.get("/")
    async def start(request: Request) -> HTMLResponse:
        """Send the page, and give a new browser its id."""
        response = HTMLResponse(
            index, headers={"cache-control": "no-store", "content-security-policy": POLICY}
        )
        if not user(request):
            https, value = request.url.scheme == "https", signed(secrets.token_urlsafe(24))
            response.set_cookie(COOKIE, value, max_age=YEAR, httponly=True, secure=https, samesite="lax")
        return response

    return app
