"""What people write who come from another client, and what to write here instead.

Sources: the OpenAI, Anthropic, httpx and requests clients, and the names of the service's own fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from ..errors import ConfigurationError
from ..model.secret import hidden

F = TypeVar("F", bound=Callable[..., Any])

SECRETS: Final = frozenset({"admin_key", "assistant_key", "proxy"})
_CUSTOMER: Final = "session.with_options(admin_key=…, assistant_key=…) makes a session with other keys"

ARGUMENTS: Final = {
    "api_key": "admin_key= for agent jobs and assistant_key= for questions are arguments of the session",
    "admin_key": _CUSTOMER,
    "assistant_key": _CUSTOMER,
    "max_retries": "retry=RetryPolicy(attempts=3) is an argument of the session and of with_options()",
    "stream": "ask() always streams: read it with `async for`, or await it for the complete answer",
    "timeout": "timeouts=Timeouts(request=30) limits each call; timeout= is an argument of the calls",
    "idempotency_key": "dedupe_key= names a creation in the session's ledger (ledger=SQLiteStore(…))",
    "thread_id": "thread=answer.thread continues a thread; Thread(id, key) makes one from stored values",
    "messages": "the messages are the first argument: ask([…])",
    "model": "the service chooses the model",
    "project": "the argument is called project_id",
    "user": "fp= of ask(), conversation() and with_options() names the user",
    "user_id": "fp= of ask(), conversation() and with_options() names the user",
    "history": "conversation() keeps the history, and begin_with(messages) gives it an earlier one",
    "http_client": "client_session= of the session takes an aiohttp.ClientSession",
    "default_headers": "the argument is called headers",
    "extra_headers": "the argument is called headers",
    "poll_interval": "poll=PollPolicy(…) is an argument of the session and of with_options()",
}
"""Arguments of other clients, with the sentence that says what to write."""


def helpful(function: F) -> F:
    """Make *function* say what to write when it gets an argument of another client."""
    habits = ARGUMENTS.keys() - inspect.signature(function).parameters.keys()
    owner, _, verb = function.__qualname__.rpartition(".")
    callee = owner if verb == "__init__" else f"{verb}()"

    def check(kwargs: dict[str, Any]) -> None:
        for name in habits.intersection(kwargs):
            kwargs.clear()  # a traceback shows the frames that have it, and there may be a key in it
            raise ConfigurationError(f"{callee} has no argument {name}=: {ARGUMENTS[name]}", field=name)
        for name in SECRETS.intersection(kwargs):
            kwargs[name] = hidden(kwargs[name])

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            check(kwargs)
        return function(*args, **kwargs)

    @wraps(function)
    async def awaited_call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            check(kwargs)
        return await function(*args, **kwargs)

    # Other code asks whether a function is a coroutine function, and awaits it if so.
    return cast("F", awaited_call if inspect.iscoroutinefunction(function) else call)


def hide_keys(options: dict[str, Any]) -> None:
    """Hide the keys in *options*, also under the names of other clients, in place: a frame has it."""
    for name in (SECRETS | ARGUMENTS.keys()).intersection(options):
        options[name] = hidden(options[name])


class AsyncOnly:
    """Makes ``for`` over an async iterable say what to write."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker finds the mistake

        def __iter__(self) -> NoReturn:
            raise TypeError(f"{type(self).__name__} is read with `async for`, in an async function")
