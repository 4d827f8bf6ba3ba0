"""The ledger: claims on dedupe keys, as rules that change one record per key, and their list for people.

A key has no claim before the first byte of its request. Then the claim is *sending*. It becomes *done* (with
the result) or *unknown* (no result will be recorded), or it is deleted (the request started nothing). A
request that is *sending* or *unknown* may have been sent, and is never sent again. The rules::

    nothing -> sending           begin      the attempt that sends, just before the first byte
    sending -> nothing           release    the same attempt, after a refusal or if it wrote no byte
    sending -> unknown           give_up    the same attempt: it will never record a result
    sending, unknown -> done     record     the same attempt, or a person (resolve)
    any -> nothing               forget     a person

A claim is never taken over and needs no lease. A claim made before the work would be simpler, but a killed
process would leave it behind without having sent anything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from attrs import asdict, evolve, field, frozen

from ..argument_checks import check_dedupe_key, check_store
from ..errors import ConfigurationError, OutcomeUnknownError, StateError, printable
from ..model.job_ref import JobRef, is_reference, job_id_in
from ..protocol.requests import Call
from ..runtime import clock
from ..storage.store import Record, Rule, Snapshot, Store, change
from ..wrong_names import helpful

AT_ONCE: Final = 500
"""Number of records that one step reads. With ten thousand, a step could exceed a store's time limit."""


OPEN: Final = "claims/open/"
DONE: Final = "claims/done/"
"""Prefixes of the records of open and of done claims. Open claims are listed without the others."""

LIMIT_MARGIN: Final = 5.0
"""Seconds after the time limit of a request in which its attempt may still record its end."""

LONGEST_LIMIT: Final = 86_400.0
"""Longest limit of a claim, in seconds."""

SENDING_SECONDS: Final = 60.0
"""Seconds after a claim's lease, in which a claim that is *sending* may still get a result."""

FREE: Final = "claimed"
"""The state of a record that claims nothing; see :func:`release`. Before version 0.3 sent a request, it
wrote a record with this state and a lease. Version 0.3 takes over such a record if its lease is 0. For an
unknown state, it would wait for ever."""

FREE_SECONDS: Final = 3600.0
"""How long a record that claims nothing is kept, in seconds."""

State = Literal["claimed", "sending", "unknown", "done"]
Changes = Mapping[str, bytes | None]


@helpful
@frozen(kw_only=True)
class Claim:
    """A claim on a dedupe key.

    Args:
        key: The ``dedupe_key``.
        state: ``sending``: the request is being sent. ``unknown``: it was sent, and no result will be
            recorded. ``done``: it was sent, and *result* is set. A ledger never returns a record with
            the state ``claimed``, because such a record claims nothing.
        operation: ``create_job`` or ``send_message``.
        parts: A hash of each part of the request, by the part's name, such as ``prompt``.
        token: A random name of the attempt that made the claim.
        lease: Seconds after *since* at which the attempt of a *sending* claim has certainly ended.
        result: The id of the job that was created, or the reference of the follow-up. None until ``done``.
        since: When the claim entered its state, by the store's time, in seconds since 1970.
        sent: If the claim is ``unknown``, when the request was sent, in seconds since 1970.
        reason: Why the outcome is ``unknown``; see :class:`~mintlify_async.OutcomeUnknownError`.
        status: The status of the response, if the claim is ``unknown`` and there was a response.
    """

    key: str
    operation: str
    parts: Mapping[str, str] = field(repr=False)
    token: str = field(repr=False)
    lease: float
    state: State = "sending"
    result: str | None = None
    since: float = field(default=0.0, eq=False)
    sent: float | None = None
    reason: str | None = None
    status: int | None = None

    @property
    def unknown_from(self) -> float:
        """The store's time from which a claim without a result counts as ``unknown``."""
        return self.since + self.lease + SENDING_SECONDS

    def at(self, now: float) -> Claim:
        """Return the claim with its state at *now*. A claim that is *sending* for too long is *unknown*.

        A *sending* claim with a date too far in the future is also *unknown*. A wrong clock made this date.
        """
        if self.state != "sending" or 2 * self.since - self.unknown_from < now < self.unknown_from:
            return self
        return evolve(self, state="unknown", sent=self.since, reason="not_recorded")


class KeyHeldError(StateError):
    """Another attempt has claimed the key. This attempt has sent nothing."""


def request_parts(base_url: str, call: Call) -> dict[str, str]:
    """Return a hash of each part that identifies the request of *call*, by the part's name."""
    parts: dict[str, object] = {
        "base_url": base_url,
        "project": call.project_id or "",
        "job": call.job_id,
        "prompt": call.prompt,
        "extra_body": call.extra_body,
    }
    return {name: _hash(part) for name, part in parts.items() if part is not None}


def _hash(part: object) -> str:
    text = json.dumps(part, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def claim_keys(key: str) -> tuple[str, str]:
    """Return the keys of the two records for *key*. One of the two contains the claim."""
    return OPEN + key, DONE + key


# Rules for ``storage.store.change``. Each rule returns the changes and a result, and can be applied twice.


def find(snapshot: Snapshot, key: str) -> Claim | None:
    """Return the claim on *key*, or None."""
    for name in (DONE + key, OPEN + key):
        record = snapshot.records.get(name)
        if record is not None and (claim := read_claim(key, record)).state != FREE:
            return claim
    return None


def begin(snapshot: Snapshot, ours: Claim) -> tuple[Changes, bool]:
    """Claim the key for the attempt *ours*. Return whether *ours* has the claim."""
    if find(snapshot, ours.key) is None:
        return {OPEN + ours.key: _written(ours)}, True
    return {}, _held_by(snapshot, ours) is not None


def release(snapshot: Snapshot, ours: Claim, *, may_come: bool) -> tuple[Changes, None]:
    """End the claim of *ours*, whose request started nothing. A claim of another attempt is not changed.

    Args:
        snapshot: The records of the key.
        ours: The attempt.
        may_come: Whether the store may still write the claim late, because its step was cancelled or has
            failed. Then a record that claims nothing replaces the expected one, so that the late write fails.
    """
    free = evolve(ours, state=FREE, lease=0.0)
    record = snapshot.records.get(OPEN + ours.key)
    if _held_by(snapshot, ours) is not None:
        return {OPEN + ours.key: _written(free) if may_come else None}, None
    is_free = find(snapshot, ours.key) is None
    is_done = record is not None and record.value == _written(free)
    return ({OPEN + ours.key: _written(free)} if may_come and is_free and not is_done else {}), None


def give_up(
    snapshot: Snapshot, ours: Claim, *, reason: str, status: int | None, unclaimed: bool = False
) -> tuple[Changes, None]:
    """Record that *ours* will have no result.

    Args:
        snapshot: The records of the key.
        ours: The attempt.
        reason: Why the outcome is unknown.
        status: The status of the response, or None.
        unclaimed: Whether *ours* has no claim, because a substitute for aiohttp's session never read the
            request's body.
    """
    holder = _held_by(snapshot, ours, unclaimed=unclaimed)
    if holder is None:
        return {}, None
    unknown = evolve(holder, state="unknown", sent=holder.since, reason=reason, status=status)
    return {OPEN + ours.key: _written(unknown)}, None


def record(
    snapshot: Snapshot, key: str, result: str, ours: Claim | None = None, *, unclaimed: bool = False
) -> tuple[Changes, bool]:
    """Record the result of an open claim. Return whether the key has this result now.

    Args:
        snapshot: The records of the key.
        key: The ``dedupe_key``.
        result: The result.
        ours: The attempt that must have the claim. None means a person, who may close any claim.
        unclaimed: As for :func:`give_up`.
    """
    holder = find(snapshot, key)
    if holder is not None and holder.state == "done":
        return {}, holder.result == result
    if ours is not None:
        holder = _held_by(snapshot, ours, unclaimed=unclaimed)
    if holder is None:
        return {}, False
    done = evolve(holder, state="done", result=result, sent=None, reason=None, status=None)
    return {OPEN + key: None, DONE + key: _written(done)}, True


def forget(snapshot: Snapshot, key: str) -> tuple[Changes, None]:
    """Delete the claim on *key*, as a person asks for."""
    return {name: None for name in claim_keys(key) if name in snapshot.records}, None


def _held_by(snapshot: Snapshot, ours: Claim, *, unclaimed: bool = False) -> Claim | None:
    """Return the stored claim if its token is that of *ours* and its state is ``sending``, or None.

    With *unclaimed*, if there is no claim on the key, return *ours*.
    """
    holder = find(snapshot, ours.key)
    if holder is None and unclaimed:
        return evolve(ours, since=snapshot.now)
    is_ours = holder is not None and (holder.token, holder.state) == (ours.token, "sending")
    return holder if is_ours else None


def check_same(holder: Claim, ours: Claim) -> None:
    """If *holder* is a claim for a different request, raise an error that names the difference to *ours*."""
    if holder.operation != ours.operation:
        differs = "a follow-up" if holder.operation == "send_message" else "the creation of a job"
    else:
        names = [name for name in ours.parts if holder.parts.get(name) != ours.parts[name]]
        differs = "a request with another " + " and another ".join(names) if names else ""
    if differs:
        job = f" Its result: {printable(holder.result, 80)}." if holder.result is not None else ""
        raise ConfigurationError(
            f"dedupe_key {printable(ours.key, 80)!r} belongs to {differs}; nothing was sent.{job}",
            field="dedupe_key",
        )


def outcome_unknown(holder: Claim) -> OutcomeUnknownError:
    """Return the error for a claim that is *unknown*."""
    what, exists = "a follow-up", "it may have been accepted"
    if holder.operation == "create_job":
        what, exists = "the creation of a job", "the job may exist"
    why = f"{holder.reason}, status {holder.status}" if holder.status is not None else holder.reason
    key, sent_at = printable(holder.key, 80), clock.as_text(holder.sent)
    return OutcomeUnknownError(
        f"{what} with dedupe_key {key!r} was sent at {sent_at} and its outcome is unknown ({why}): "
        f"{exists}. Look at the dashboard, then run mintlify-async ledger resolve or forget, or call "
        "Ledger(store).resolve(key, job_id) or .forget(key)",
        operation=holder.operation,
        dedupe_key=holder.key,
        sent_at=holder.sent,
        status=holder.status,
        reason=holder.reason or "not_recorded",
    )


def read_claim(key: str, record: Record) -> Claim:
    """Return the claim in *record*.

    Raises:
        StateError: The record is damaged, or of another version.
    """
    try:
        fields = json.loads(record.value)
        if fields.pop("version") in (1, 2) and _is_whole(fields):
            return Claim(key=key, since=record.since, **fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise StateError(f"the ledger's record of {printable(key, 80)!r} cannot be read; nothing was sent")


def _is_whole(fields: Mapping[str, Any]) -> bool:
    """Return whether *fields* has the fields that its state needs. An unknown state would never end."""
    state, numbers = fields["state"], (int, float)
    return (
        state in (FREE, "sending", "unknown", "done")
        and isinstance(fields["operation"], str)
        and isinstance(fields["parts"], dict)
        and isinstance(fields["lease"], numbers)
        and isinstance(fields["result"], str) == (state == "done")
        and isinstance(fields.get("sent"), numbers) == (state == "unknown")
    )


def _written(claim: Claim) -> bytes:
    """Return the record of *claim*. Version 0.3 reads record version 1 and refuses version 2."""
    fields = asdict(claim)
    del fields["key"], fields["since"]
    if claim.state == "unknown":
        return json.dumps({"version": 2, **fields}).encode()
    del fields["sent"], fields["reason"], fields["status"]
    return json.dumps({"version": 1, **fields}).encode()


async def write_result(store: Store, key: str, rule: Rule[bool]) -> bool:
    """Change the claim on *key* to *done* with *rule*. The store's ``keep`` says how long it is kept."""
    return await change(store, claim_keys(key), rule, keep=store.keep)


@frozen(kw_only=True)
class RecordedJob:
    """A dedupe key whose request was sent, and its job.

    Args:
        key: The ``dedupe_key``.
        operation: ``create_job`` or ``send_message``.
        job_id: The job that was created, or that got the follow-up.
        since: When the result was recorded, by the store's time, in seconds since 1970.
    """

    key: str
    operation: str
    job_id: str
    since: float


class Ledger:
    """The claims on dedupe keys in a store. A session uses the same store as its ``ledger=``.

    Example::

        ledger = Ledger(SQLiteStore("jobs.db"))
        for claim in await ledger.open_claims():
            print(claim.key, claim.state, claim.since)
        await ledger.resolve("issue-7", "job_123")

    Args:
        store: The store.

    Raises:
        ConfigurationError: *store* is no store.
    """

    def __init__(self, store: Store) -> None:
        check_store(store, "store", none=False)
        self._store = store

    async def open_claims(self) -> list[Claim]:
        """Return the claims without a result, the oldest first. They include running requests.

        The claim of a killed process counts as ``unknown`` from the time :attr:`Claim.unknown_from`.

        Raises:
            StateError: The store cannot be used.
        """
        names = await self._store.keys(OPEN)
        if not names:
            return []
        snapshot = await self._store.read(names)
        holders = (find(snapshot, name.removeprefix(OPEN)) for name in snapshot.records)
        open_claims = [holder.at(snapshot.now) for holder in holders if holder is not None]
        return sorted(open_claims, key=lambda claim: claim.since)

    async def jobs(self) -> list[RecordedJob]:
        """Return the recorded jobs, the oldest first. If the store has ``keep=``, older jobs are left out.

        The service has no list of jobs. This list contains the jobs that a request with a ``dedupe_key``
        created or sent a follow-up to.

        Raises:
            StateError: The store cannot be used.
        """
        names, jobs = await self._store.keys(DONE), list[RecordedJob]()
        for start in range(0, len(names), AT_ONCE):
            records = (await self._store.read(names[start : start + AT_ONCE])).records
            jobs += [_recorded_job(name.removeprefix(DONE), one) for name, one in records.items()]
        return sorted(jobs, key=lambda job: job.since)

    async def find(self, key: str) -> Claim | None:
        """Return the claim on *key*, or None.

        Raises:
            StateError: The store cannot be used.
        """
        return find(await self._store.read(claim_keys(check_dedupe_key(key))), key)

    async def resolve(self, key: str, job_id: str) -> None:
        """Close the open claim on *key*. Later calls with *key* then get the job *job_id*.

        Args:
            key: The ``dedupe_key``.
            job_id: The id, or the reference as text, of the created job or of the job that got the follow-up.

        Raises:
            ConfigurationError: *key* has no open claim, or *job_id* is empty or is a reference that was cut
                or is of another version.
            StateError: The store cannot be used.
        """
        job_id = job_id_in(job_id, "job_id")
        check_dedupe_key(key)
        if not await write_result(self._store, key, lambda records: record(records, key, job_id)):
            raise ConfigurationError(
                f"the ledger has no open claim {printable(key, 80)!r}; see open_claims()", field="key"
            )

    async def forget(self, key: str) -> None:
        """Delete the claim on *key*, so that its request can be sent again.

        Raises:
            StateError: The store cannot be used.
        """
        await change(self._store, claim_keys(check_dedupe_key(key)), lambda records: forget(records, key))


def _recorded_job(key: str, record: Record) -> RecordedJob:
    claim = read_claim(key, record)
    result = claim.result or ""
    job_id = JobRef.parse(result).id if is_reference(result) else result  # a follow-up's is a reference
    return RecordedJob(key=key, operation=claim.operation, job_id=job_id, since=claim.since)
