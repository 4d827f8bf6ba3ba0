"""Claims on dedupe keys, as rules that change one record per key. No I/O.

A claim is *claimed* before anything is sent, *sending* from just before the first byte of the request, and
*done* when its result is recorded. A request whose claim is *sending* may have been sent, and is never sent
again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final, Literal

from attrs import asdict, evolve, field, frozen

from ..errors import ConfigurationError, OutcomeUnknownError, StateError, printable
from ..protocol.calls import Call
from ..storage.store import Record, Snapshot

OPEN: Final = "claims/open/"
DONE: Final = "claims/done/"
"""Where the records of open and of done claims are: open ones are listed without reading the others."""

LEASE_MARGIN: Final = 5.0
"""Seconds from the end of a request's timeout until another call may take its claim over."""

LONGEST_LEASE: Final = 86_400.0
"""Longest lease of a claim, in seconds."""

SENDING_SECONDS: Final = 60.0
"""How long after its lease (with the margin) a claim that is *sending* may still get a result, in seconds."""

State = Literal["claimed", "sending", "done"]
Changes = Mapping[str, bytes | None]


@frozen(kw_only=True)
class Claim:
    """A claim on a dedupe key.

    Args:
        key: The ``dedupe_key``.
        state: ``claimed``: nothing was sent. ``sending``: the request may have been sent. ``done``: it was
            sent, and *result* is set.
        operation: ``create_job`` or ``send_message``.
        parts: A hash of each part of the request, by its name, such as ``prompt``.
        token: A random name of the call that made the claim.
        lease: For how many seconds after *since* that call may send its request.
        result: The id of the job that was created, or the reference of the follow-up. None until ``done``.
        since: When the claim got its state, by the store's time, in seconds since 1970.
    """

    key: str
    operation: str
    parts: Mapping[str, str] = field(repr=False)
    token: str = field(repr=False)
    lease: float
    state: State = "claimed"
    result: str | None = None
    since: float = field(default=0.0, eq=False)

    def seconds_left(self, now: float) -> float:
        """Return for how many seconds other calls should wait for the result, by the store's time."""
        return self.since + self.lease + (SENDING_SECONDS if self.state == "sending" else 0.0) - now


class ClaimLostError(StateError):
    """The lease of the claim ended, so another call took it over. Nothing was sent."""


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
    """Return the keys of the two records of which one holds the claim on *key*."""
    return OPEN + key, DONE + key


# Rules for ``storage.store.change``. They return the changes and a result. Each accepts its own result.


def find(snapshot: Snapshot, key: str) -> Claim | None:
    """Return the claim on *key*, or None."""
    for name in (DONE + key, OPEN + key):
        record = snapshot.records.get(name)
        if record is not None:
            return read_claim(key, record)
    return None


def begin(snapshot: Snapshot, ours: Claim) -> tuple[Changes, tuple[Claim, float]]:
    """Claim a key that is free, or whose claim was not used within its lease.

    Return the valid claim, and for how many seconds other calls should wait for its result.
    """
    holder = find(snapshot, ours.key)
    if holder is not None:
        seconds_left = holder.seconds_left(snapshot.now)
        if holder.token == ours.token or holder.state != "claimed" or seconds_left > 0:
            return {}, (holder, max(seconds_left, 0.0))
    return {OPEN + ours.key: _written(ours)}, (ours, ours.lease)


def set_state(snapshot: Snapshot, ours: Claim, state: Literal["claimed", "sending"]) -> tuple[Changes, bool]:
    """Change the state of *ours*; return whether it still holds."""
    holder = _open_claim(snapshot, ours)
    if holder is None or holder.state == state:
        return {}, holder is not None
    return {OPEN + ours.key: _written(evolve(ours, state=state))}, True


def release(snapshot: Snapshot, ours: Claim) -> tuple[Changes, None]:
    """Delete *ours*, whose request started nothing. If the key has another claim or none, do nothing."""
    return {} if _open_claim(snapshot, ours) is None else {OPEN + ours.key: None}, None


def _open_claim(snapshot: Snapshot, ours: Claim) -> Claim | None:
    """Return the claim on the key if it is *ours* and still open."""
    holder = find(snapshot, ours.key)
    return None if holder is None or holder.token != ours.token or holder.state == "done" else holder


def record(snapshot: Snapshot, key: str, result: str, token: str | None = None) -> tuple[Changes, bool]:
    """Record the result of an open claim. Return whether the key has this result now.

    Args:
        snapshot: The records of the key.
        key: The ``dedupe_key``.
        result: The result.
        token: The call whose claim it must be. None is a person, who may close any claim.
    """
    holder = find(snapshot, key)
    if holder is None or token not in (None, holder.token):
        return {}, False
    if holder.state == "done":
        return {}, holder.result == result
    return {OPEN + key: None, DONE + key: _written(evolve(holder, state="done", result=result))}, True


def forget(snapshot: Snapshot, key: str) -> tuple[Changes, None]:
    """Delete the claim on *key* by hand."""
    return {name: None for name in claim_keys(key) if name in snapshot.records}, None


def check_same(holder: Claim, ours: Claim) -> None:
    """If *holder* is a claim for another request than *ours*, raise an error that names the difference."""
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
    """Return the error for a claim whose request may have been sent, and whose result was never recorded."""
    what, exists = "a follow-up", "it may have been accepted"
    if holder.operation == "create_job":
        what, exists = "the creation of a job", "the job may exist"
    return OutcomeUnknownError(
        f"{what} with dedupe_key {printable(holder.key, 80)!r} was sent and its outcome was never recorded: "
        f"{exists}. Look at the dashboard, then run mintlify-async ledger resolve or forget, "
        "or call Ledger(store).resolve(key, job_id) or .forget(key)",
        operation=holder.operation,
        sent_at=holder.since,
        reason="not_recorded",
    )


def read_claim(key: str, record: Record) -> Claim:
    """Return the claim that *record* holds.

    Raises:
        StateError: The record is damaged, or of another version.
    """
    try:
        fields = json.loads(record.value)
        if fields.pop("version") == 1:
            return Claim(key=key, since=record.since, **fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise StateError(f"the ledger's record of {printable(key, 80)!r} cannot be read; nothing was sent")


def _written(claim: Claim) -> bytes:
    fields = asdict(claim)
    del fields["key"], fields["since"]
    return json.dumps({"version": 1, **fields}).encode()
