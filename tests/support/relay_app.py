"""A complete app to start from: a page, FastAPI and the assistant; every secret stays on the server.

Build the page once, then run the app and open http://127.0.0.1:8000::

    cd tests/relay_page && npm install && npm run build && cd ../..
    export MINTLIFY_ASSISTANT_API_KEY=… MINTLIFY_DOMAIN=… RELAY_SECRET=…   # 32 random characters or more
    uvicorn --factory tests.relay_app:create_app
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from mintlify_async import MintlifySession
from mintlify_async.contrib.relay import relay_router

PAGE = Path(__file__).parent / "relay_page" / "dist"
COOKIE = "browser"
YEAR = 365 * 24 * 3600


def browser_id(request: Request) -> str:
    """Return who asks. Here everybody's browser is a user; an app with accounts returns the account's id."""
    return request.cookies.get(COOKIE, "")


def create_app(
    session: MintlifySession | None = None,
    *,
    secret: str | None = None,
    page: Path = PAGE,
    **relay: Any,
) -> FastAPI:
    """Return the app.

    Args:
        session: Asks the assistant; by default one that the environment describes.
        secret: Seals threads for the page; by default RELAY_SECRET of the environment.
        page: The built page.
        relay: Further settings of the relay.
    """
    session = session or MintlifySession()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with session:
            yield

    app = FastAPI(lifespan=lifespan, openapi_url=None)
    app.include_router(
        relay_router(session, secrets=[secret or os.environ["RELAY_SECRET"]], user=browser_id, **relay)
    )

    @app.get("/")
    async def index(request: Request) -> FileResponse:
        """Send the page, and give a new browser its id."""
        response = FileResponse(page / "index.html", headers={"cache-control": "no-store"})
        if not browser_id(request):
            https = request.url.scheme == "https"
            response.set_cookie(
                COOKIE, secrets.token_urlsafe(24), max_age=YEAR, httponly=True, secure=https, samesite="lax"
            )
        return response

    app.mount("/assets", StaticFiles(directory=page / "assets", check_dir=False))
    return app
