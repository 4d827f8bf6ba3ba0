"""Lists requests with a ``dedupe_key`` whose outcome is unknown. ``ledger_records`` has the records."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from ..argument_checks import check_dedupe_key, check_store
from ..errors import ConfigurationError, printable
from ..model.job_ref import JobRef, is_reference, job_id_in
from ..storage.store import Record, Store, change
from . import ledger_records as claims
from .ledger_records import Claim, claim_keys

AT_ONCE: Final = 500
"""Number of records that one step reads. With ten thousand, a step could exceed a store's time limit."""


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
        names = await self._store.keys(claims.OPEN)
        if not names:
            return []
        snapshot = await self._store.read(names)
        holders = (claims.find(snapshot, name.removeprefix(claims.OPEN)) for name in snapshot.records)
        open_claims = [holder.at(snapshot.now) for holder in holders if holder is not None]
        return sorted(open_claims, key=lambda claim: claim.since)

    async def jobs(self) -> list[RecordedJob]:
        """Return the recorded jobs, the oldest first. If the store has ``keep=``, older jobs are left out.

        The service has no list of jobs. This list contains the jobs that a request with a ``dedupe_key``
        created or sent a follow-up to.

        Raises:
            StateError: The store cannot be used.
        """
        names, jobs = await self._store.keys(claims.DONE), list[RecordedJob]()
        for start in range(0, len(names), AT_ONCE):
            records = (await self._store.read(names[start : start + AT_ONCE])).records
            jobs += [_recorded_job(name.removeprefix(claims.DONE), one) for name, one in records.items()]
        return sorted(jobs, key=lambda job: job.since)

    async def find(self, key: str) -> Claim | None:
        """Return the claim on *key*, or None.

        Raises:
            StateError: The store cannot be used.
        """
        return claims.find(await self._store.read(claim_keys(check_dedupe_key(key))), key)

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
        keys, keep = claim_keys(check_dedupe_key(key)), self._store.keep
        if not await change(
            self._store, keys, lambda records: claims.record(records, key, job_id), keep=keep
        ):
            raise ConfigurationError(
                f"the ledger has no open claim {printable(key, 80)!r}; see open_claims()", field="key"
            )

    async def forget(self, key: str) -> None:
        """Delete the claim on *key*, so that its request can be sent again.

        Raises:
            StateError: The store cannot be used.
        """
        await change(
            self._store, claim_keys(check_dedupe_key(key)), lambda records: claims.forget(records, key)
        )


def _recorded_job(key: str, record: Record) -> RecordedJob:
    claim = claims.read_claim(key, record)
    result = claim.result or ""
    job_id = JobRef.parse(result).id if is_reference(result) else result  # of a follow-up
    return RecordedJob(key=key, operation=claim.operation, job_id=job_id, since=claim.since)
