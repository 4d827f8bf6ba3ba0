"""Calls the app's own functions, which may be plain or async, without blocking the loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from anyio import to_thread


async def call(hook: Callable[..., Any], *arguments: Any) -> Any:
    """Return what *hook* returns. A plain function runs in a thread, as FastAPI runs those of an app.

    The thread sees the context variables of the request; what it sets there does not come back.
    """
    if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004 - an object whose call is async
        return await hook(*arguments)
    made = await to_thread.run_sync(hook, *arguments)
    return await made if inspect.isawaitable(made) else made
