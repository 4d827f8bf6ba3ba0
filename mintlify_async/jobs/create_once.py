"""Creating a job at most once per ``dedupe_key``.

A claim is recorded before the request is sent, and the job's id after it was
answered. A request whose claim has no job id may have been sent, and is never
sent again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ..errors import (
    APIConnectionError,
    APIStatusError,
    ConfigurationError,
    OutcomeUnknownError,
    QuotaExceededError,
    printable,
)
from ..model.job import Job
from ..runtime.cancellation import finish_shielded, is_unsent
from ..runtime.clock import Clock
from ..storage.ledger import Claim, Ledger, check_name

_log = logging.getLogger("mintlify_async")

KEY_MAX_CHARACTERS: Final = 512
"""Longest key. Every database takes a primary key of this length; a whole prompt is not meant to be one."""

FIRST_PAUSE: Final = 0.05
"""Seconds until the outcome of another call's claim is first read again; a creation takes about 0.2 s.
The pause doubles each time."""

LONGEST_PAUSE: Final = 1.0
"""Longest pause between two such reads, in seconds."""


LONGEST_LEASE: Final = 86_400.0
"""Longest time that other calls wait for the outcome of a claim, in seconds."""

PATIENCE: Final = 0.25
"""How long a ledger's step goes on after the call was cancelled, in seconds."""


def fingerprint(
    project_id: str, prompt: str, *, base_url: str = "", extra_body: Mapping[str, Any] | None = None
) -> str:
    """Return a hash that identifies what is created, and where, without containing it."""
    text = json.dumps([base_url, project_id, prompt, extra_body or {}], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def had_no_effect(error: BaseException) -> bool:
    """Return whether *error* proves that a POST started nothing: it was not sent, or was refused."""
    if is_unsent(error):
        return True
    if isinstance(error, APIConnectionError):
        return error.sent == "no"
    if isinstance(error, APIStatusError):
        return 400 <= error.status < 500  # a 303 would mean that it was done; a 5xx proves nothing
    return isinstance(error, QuotaExceededError | ConfigurationError)


async def create_once(
    ledger: Ledger,
    key: str,
    fingerprint: str,
    lease: float,
    send: Callable[[], Awaitable[Job]],
    clock: Clock,
    unless_closed: Callable[[Awaitable[None]], Awaitable[None]] | None = None,
) -> str | Job:
    """Create a job unless *key* already has one; never send its request twice.

    Args:
        ledger: Where the claims are kept.
        key: Names this creation, for good and for every process that shares the ledger.
        fingerprint: What :func:`fingerprint` returns for the project and the prompt.
        lease: How long other calls wait for the outcome, in seconds: the request's
            timeout and a little more.
        send: Sends the one POST.
        clock: The session's clock.
        unless_closed: Ends a pause when the session is closed.

    Returns:
        The new job; or the id of the job that the key already has.

    Raises:
        ConfigurationError: The key is invalid, or was used for another prompt or project.
        OutcomeUnknownError: Another call claimed the key, and its outcome is not known.
        MintlifyError: What *send* or the ledger raises. The key becomes free again only
            when the error proves that nothing was started.
    """
    check_key(key)
    lease = min(lease, LONGEST_LEASE)
    while True:
        now = clock.wall()
        ours = Claim(
            key=key, fingerprint=fingerprint, token=uuid.uuid4().hex, claimed_at=now, lease_until=now + lease
        )
        held = await _claim(ledger, ours)
        if held.token == ours.token:
            return await _send(ledger, ours, send)
        job_id = await _outcome_of(ledger, held, ours, clock, unless_closed)
        if job_id is not None:
            return job_id


def check_key(key: object) -> str:
    """Return *key* when it can be a ``dedupe_key``."""
    return check_name(key, "dedupe_key", max_characters=KEY_MAX_CHARACTERS)


async def send_once(
    ledger: Ledger,
    key: str,
    fingerprint: str,
    lease: float,
    send: Callable[[], Awaitable[str]],
    clock: Clock,
    unless_closed: Callable[[Awaitable[None]], Awaitable[None]] | None = None,
) -> str:
    """Send a follow-up unless *key* already has one; return its turn's reference.

    As for :func:`create_once`; *send* returns the reference, and the ledger keeps it in the place of
    the job's id, so that every caller with this key waits for the same turn.
    """

    async def post() -> Job:
        return Job(id=await send(), status="active")  # the ledger keeps the id

    try:
        turn = await create_once(ledger, key, fingerprint, lease, post, clock, unless_closed)
    except OutcomeUnknownError as error:
        if error.operation == "create_job":  # another call's claim: the text is about creations
            error.operation = "send_message"
            error.args = (
                f"a follow-up with dedupe_key {printable(key)!r} was begun and its outcome was never "
                "recorded: it may have been accepted. Look at the dashboard, then call the ledger's "
                "resolve(key, job_id) or forget(key)",
            )
        raise
    return turn if isinstance(turn, str) else turn.id


async def _claim(ledger: Ledger, ours: Claim) -> Claim:
    """Claim the key. When the call is cancelled meanwhile, release the claim: nothing was sent yet."""
    try:
        held = await finish_shielded(ledger.claim(ours), patience=PATIENCE)
        await asyncio.sleep(0)  # the last point at which a cancellation is certain to have sent nothing
    except asyncio.CancelledError:
        await _release(ledger, ours, hurry=True)
        raise
    return held


async def _send(ledger: Ledger, ours: Claim, send: Callable[[], Awaitable[Job]]) -> Job:
    """Send the request and record its job. An outcome that is not certain leaves the claim open."""
    try:
        job = await send()
    except BaseException as error:
        if had_no_effect(error):
            await _release(ledger, ours, hurry=isinstance(error, asyncio.CancelledError))
        raise
    try:
        await finish_shielded(ledger.record(ours, job.id), patience=PATIENCE)
    except Exception:  # the job exists and is paid for: a broken ledger must not lose it
        _log.exception("job %s was created, but the ledger did not record it", printable(job.id))
    return job


async def _release(ledger: Ledger, ours: Claim, *, hurry: bool) -> None:
    """Release the claim. When the ledger fails, the claim stays open and the first error is raised."""
    try:
        await finish_shielded(ledger.release(ours), patience=PATIENCE, hurry=hurry)
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and not hurry:
            raise
        _log.exception("the ledger did not release a claim whose request was not sent; see open_claims()")


async def _outcome_of(
    ledger: Ledger,
    held: Claim,
    ours: Claim,
    clock: Clock,
    unless_closed: Callable[[Awaitable[None]], Awaitable[None]] | None,
) -> str | None:
    """Wait for the outcome of another call's claim; return its job id, or None when it was released."""
    pause = FIRST_PAUSE
    found: Claim | None = held
    token, ends = "", 0.0
    while found is not None:
        if found.fingerprint != ours.fingerprint:
            raise ConfigurationError(
                f"dedupe_key {printable(ours.key)!r} was used for another prompt or project; use another key",
                field="dedupe_key",
            )
        if found.job_id is not None:
            return found.job_id
        left = found.lease_until - clock.wall()
        if found.token != token:  # not by the wall clock alone: one that is stepped back prolongs a lease
            lease = min(found.lease_until - found.claimed_at, LONGEST_LEASE)
            token, ends = found.token, clock.now() + min(lease, left)
        left = min(left, ends - clock.now())
        if left <= 0:
            raise _unknown(found)
        nap = clock.sleep(min(pause, left))
        await (nap if unless_closed is None else unless_closed(nap))
        pause = min(LONGEST_PAUSE, pause * 2)
        found = await ledger.find(ours.key)
    return None


def _unknown(claim: Claim) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"a creation with dedupe_key {printable(claim.key)!r} was begun and its outcome was never "
        "recorded: the job may exist. Look at the dashboard, then call the ledger's "
        "resolve(key, job_id) or forget(key)",
        operation="create_job",
        sent_at=claim.claimed_at,
        reason="not_recorded",
    )
