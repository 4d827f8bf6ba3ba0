"""Opens the answer to a page's question, unless its reader leaves or the app shuts down."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import anyio
from attrs import evolve
from starlette.requests import ClientDisconnect

from mintlify_async import ConfigurationError, MintlifyError, NotFoundError
from mintlify_async.runtime.cancellation import Deadline

from .answer import gone
from .page_events import masked
from .refusals import RelayRefusal, refusal_for
from .seal import SealError, ThreadSeal
from .side_tasks import SideTasks

if TYPE_CHECKING:
    from starlette.requests import Request

    from mintlify_async import MintlifySession, Reply, Thread

    from .question import Question
    from .shutdown import Shutdown

log = logging.getLogger("mintlify_async.relay")

MAX_RETRYING = 2.0  # seconds; a page that is told to come back in 30 s is better off than one that waits


def without_patience(session: MintlifySession) -> MintlifySession:
    """Return *session* with its own retry policy, which gives up after ``MAX_RETRYING`` at the latest."""
    retry = session.options.retry
    within = min(MAX_RETRYING, math.inf if retry.within is None else retry.within)
    return session.with_options(retry=evolve(retry, within=within))


async def ask_while_there(
    ask: Callable[..., Reply], thread: Thread | None, request: Request | None, shutdown: Shutdown
) -> Reply:
    """Return the opened reply of *ask*. If the service has lost *thread*, ask once more without it.

    Args:
        ask: Asks the question in the thread that is its argument.
        thread: The conversation's thread.
        request: The page's request; None opens the reply whether the reader leaves or not.
        shutdown: Closes the reply when the app shuts down.

    Raises:
        MintlifyError: There is no answer.
        RelayRefusal: The app shuts down.
        ClientDisconnect: The reader has left.
    """
    while True:
        reply = ask(thread=thread)
        shutdown.add(reply)
        try:
            await _open_while_there(reply, request)
        except NotFoundError:
            if thread is None:
                raise
            log.info("the service has lost a thread: the question is asked again without it")
            thread = None
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await reply.close()  # the error's traceback may keep it alive
            raise
        else:
            shutdown.check_opened(reply)
            return reply


def thread_of(question: Question, user: str, seal: ThreadSeal) -> Thread | None:
    """Return the thread that the page's token names; None when it cannot be continued."""
    if question.seal is None:
        return None
    try:
        return seal.open(question.seal, user)
    except SealError as error:  # also after another secret, or when a reader has signed in
        log.info("a page's sealed thread is %s: the question is asked without it", error.reason)
        return None


async def _open_while_there(reply: Reply, request: Request | None) -> None:
    """Open the reply, unless the reader leaves first: a silent service must not occupy the user's place.

    Without a request, open it whether the reader leaves or not.
    """
    opening = Deadline()
    async with SideTasks() as beside:
        if request is not None:
            beside.start(partial(gone, request.receive)).add_done_callback(lambda _: opening.end())
        try:
            with opening:
                await reply.__aenter__()
        except TimeoutError:
            if not opening.ended:
                raise
            with anyio.CancelScope(shield=True):
                await reply.close()
            raise ClientDisconnect from None


def logged_refusal(error: MintlifyError) -> RelayRefusal:
    """Return the refusal for an error before the answer, and log the error unless it is the page's."""
    if isinstance(error, ConfigurationError) and (error.field or "").startswith("messages"):
        # The page sent them; the app set all other fields.
        return RelayRefusal(400, "The assistant does not accept this question.")
    refusal = refusal_for(error)
    level = logging.ERROR if refusal.status_code in (500, 502) else logging.WARNING
    told = (refusal.status_code, type(error).__name__, masked(str(error)))
    log.log(level, "the assistant gave no answer (the page gets %s): %s: %s", *told)
    return refusal
