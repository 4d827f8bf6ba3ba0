"""The ledgers of the command line: ``--ledger``, and one whose claims say which commit made them."""

from __future__ import annotations

from attrs import evolve

import mintlify_async as mintlify
from mintlify_async.contrib.git import GitLedger
from mintlify_async.storage import Claim, Ledger

PREFIX = "refs/mintlify/"


def open_ledger(text: str, *, prefix: str | None = None) -> GitLedger | mintlify.SQLiteLedger:
    """Return the ledger that ``--ledger`` names: ``git``, ``git:REMOTE``, or a SQLite file."""
    kind, _, remote = text.partition(":")
    if kind == "git":
        return GitLedger(remote or "origin", prefix=prefix or PREFIX)
    return mintlify.SQLiteLedger(text)


class TurnLedger:
    """A ledger whose claims say for which turn (for which commit, say) they were made.

    The job's key belongs to all turns, each with a prompt of its own: a claim that another turn has made
    counts as one of the same prompt, so that this turn waits for its job.

    Attributes:
        made: The keys that were claimed here.
        open: Those whose outcome is not recorded.
        recorded: What was, or should have been, recorded for a key.
    """

    def __init__(self, ledger: Ledger, turn: str) -> None:
        """Keep the ledger and the turn."""
        self._ledger = ledger
        self._turn = turn
        self._held: dict[str, Claim] = {}
        self._prints: dict[str, str] = {}
        self.made: set[str] = set()
        self.open: set[str] = set()
        self.recorded: dict[str, str] = {}

    def is_of_this_turn(self, key: str) -> bool:
        """Return whether the claim of *key*, as last seen, was made for this turn, here or elsewhere."""
        return key in self._held and self._held[key].token.partition("@")[2] == self._turn

    def forgetting(self, key: str) -> str:
        """Say how a person makes *key* free."""
        if isinstance(self._ledger, GitLedger):
            return f"run: git push {self._ledger.remote} --delete {self._ledger.ref(key)}"
        return f"forget the key {key!r} in {self._ledger!r}"

    def advice(self, key: str) -> str:
        """Say how a person settles the open claim of *key*."""
        return (
            f"the claim is open. Look at the dashboard; if nothing was done, {self.forgetting(key)}; "
            f"if it was done, record the job's id in Python: resolve({key!r}, id)"
        )

    def _signed(self, claim: Claim) -> Claim:
        return evolve(claim, token=f"{claim.token}@{self._turn}")

    def _seen(self, key: str, held: Claim) -> Claim:
        self._held[key] = held
        return held if self.is_of_this_turn(key) else evolve(held, fingerprint=self._prints[key])

    async def claim(self, claim: Claim) -> Claim:
        """Claim the key for this turn."""
        signed = self._signed(claim)
        self._prints[claim.key] = claim.fingerprint
        held = await self._ledger.claim(signed)
        if held.token != signed.token:
            return self._seen(claim.key, held)
        self._held[claim.key] = held
        self.made.add(claim.key)
        self.open.add(claim.key)
        return claim

    async def record(self, claim: Claim, job_id: str) -> None:
        """Record the outcome; it is known here even if the ledger fails."""
        self.recorded[claim.key] = job_id
        await self._ledger.record(self._signed(claim), job_id)
        self.open.discard(claim.key)

    async def release(self, claim: Claim) -> None:
        """Release the claim."""
        await self._ledger.release(self._signed(claim))
        self.open.discard(claim.key)
        self.made.discard(claim.key)

    async def find(self, key: str) -> Claim | None:
        """Return the claim of *key*, or None."""
        held = await self._ledger.find(key)
        return held if held is None or key not in self._prints else self._seen(key, held)

    async def open_claims(self) -> list[Claim]:
        """Return the open claims of all turns."""
        return await self._ledger.open_claims()

    async def resolve(self, key: str, job_id: str) -> None:
        """Close an open claim by hand."""
        await self._ledger.resolve(key, job_id)

    async def forget(self, key: str) -> None:
        """Delete a key by hand."""
        await self._ledger.forget(key)
