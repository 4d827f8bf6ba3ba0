"""A ledger in a git repository's remote: each claim is a ref that only one push can create.

The ref is named after the SHA-256 of the key and points to a commit without files,
whose message is the claim. Each step is one push that the remote refuses when the
ref has changed meanwhile, so the remote decides who holds a claim.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from os import PathLike, fspath
from typing import Any, Final, Literal, TypeVar

from attrs import asdict, evolve, frozen

from mintlify_async.errors import ConfigurationError, StateError, printable
from mintlify_async.protocol.argument_checks import check_seconds
from mintlify_async.runtime.cancellation import finish_shielded
from mintlify_async.runtime.closing import NothingToClose
from mintlify_async.storage import Claim, check_job_id, no_open_claim

__all__ = ["GitLedger", "GitLedgerError"]

T = TypeVar("T")

PATIENCE: Final = 4.0
"""How long a change goes on after the call was cancelled, in seconds. A CI service kills a cancelled
step after about 10 s; a push takes about one, and a cancelled creation makes two."""

TRIES: Final = 5
"""How often a change is tried while other processes change the same ref."""

_PREFIX = re.compile(r"refs(/[A-Za-z0-9_-]+)+/")

_AUTHOR = "mintlify-async <mintlify-async@localhost>"

_SUBJECT = "mintlify-async: a claim [skip ci]"
"""The first line of each commit; CI services start no pipeline for it, should the ref be a branch."""

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "fetch.negotiationAlgorithm=noop",  # the commits have nothing in common with the checkout's
    "fetch.recurseSubmodules=no",
    "gc.auto=0",
    "maintenance.auto=false",
    "push.followTags=false",
    "push.gpgSign=false",
    "push.recurseSubmodules=no",
)
"""Settings of git that a user may have and that would do more than move the one ref."""

Reason = Literal["permission", "refused", "raced", "unreachable", "git"]

_FAILURES: Final[tuple[tuple[Reason, re.Pattern[str]], ...]] = (
    (
        "permission",
        re.compile(
            r"error: 40[13]|permission|denied|not granted|not allowed|forbidden|unauthorized|authenticat"
            r"|could not read (?:username|password)|insufficient",
            re.IGNORECASE,
        ),
    ),
    ("raced", re.compile("stale info|cannot lock ref|failed to update ref|already exists")),
    ("refused", re.compile(r"\[(?:remote )?rejected\]")),
    (
        "git",
        re.compile("^fatal: not (?:in )?a git (?:repository|directory)|dubious ownership", re.MULTILINE),
    ),
)
"""What git prints in English when a step fails, for each reason."""


class GitLedgerError(StateError):
    """A ledger in a git remote cannot be used; nothing was claimed, so nothing is sent.

    Attributes:
        reason: ``permission`` (the token or key may not write to the repository, or not read it), ``refused``
            (the remote does not take refs under the prefix), ``raced`` (other processes kept changing the
            claim), ``unreachable``, or ``git`` (git is not installed, or the directory is not a checkout).
    """

    def __init__(self, message: str, *, reason: Reason) -> None:
        """Store the message and the reason."""
        super().__init__(message)
        self.reason = reason


@frozen
class _Held:
    """A claim, and the commit that has it."""

    commit: str
    claim: Claim


class GitLedger(NothingToClose):
    """A ledger in the remote of a git repository, for CI: no database, and only the token that CI has.

    It runs git 2.31 or newer in a checkout whose credentials may push, such as the one that
    ``actions/checkout`` makes in a job with ``permissions: contents: write``. The checkout's files,
    branches and settings are not touched. Keys, fingerprints, times and job ids can be read by everyone
    who can read the repository; prompts are not stored. Records are kept until :meth:`forget`.

    A step raises :class:`GitLedgerError` when git, or the remote, does not do it in time. A cancelled
    step ends within 4 s: git gets that long to finish a push.

    Args:
        remote: The name of a remote of the checkout, a path, or an address without a password.
        directory: A folder in the checkout.
        prefix: The beginning of the refs. For a host that takes only tags or branches:
            ``refs/tags/mintlify/`` or ``refs/heads/mintlify/``.
        timeout: Longest duration of one step, in seconds.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        remote: str = "origin",
        *,
        directory: str | PathLike[str] = ".",
        prefix: str = "refs/mintlify/",
        timeout: float = 30.0,
    ) -> None:
        """Check the arguments; git does not run yet."""
        if not isinstance(remote, str) or not remote.strip() or remote.startswith("-") or "\0" in remote:  # pyright: ignore[reportUnnecessaryIsInstance] - users may pass anything
            raise ConfigurationError("remote must be a remote's name, a path or an address", field="remote")
        if re.match(r"https?://[^/]*@", remote) or re.match(r"\w+://[^/@]*:[^/@]*@", remote):
            raise ConfigurationError(
                "remote has a password, which other users of this computer could see; "
                "use the name of a remote of the checkout, or a credential helper of git",
                field="remote",
            )
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            raise ConfigurationError("prefix must be like 'refs/mintlify/'", field="prefix")
        try:
            self._directory = fspath(directory)
        except TypeError:
            raise ConfigurationError("directory must be a path", field="directory") from None
        check_seconds(timeout, "timeout")
        self.remote, self._prefix, self._timeout = remote, prefix, timeout
        self._tree = ""

    def __repr__(self) -> str:
        """Show the remote."""
        return f"GitLedger({self.remote!r}, prefix={self._prefix!r})"

    def ref(self, key: str) -> str:
        """Return the name of the ref that the claim of *key* has in the remote."""
        return self._prefix + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()

    async def claim(self, claim: Claim) -> Claim:
        """Keep *claim* unless its key is taken; return the claim that the key has now."""
        held = await self._step(self._change(claim.key, lambda held: held or claim, None))
        return held or claim

    async def record(self, claim: Claim, job_id: str) -> None:
        """Add *job_id* to *claim*; do nothing when the key has another claim by now."""

        def rule(held: Claim | None) -> Claim | None:
            return evolve(held, job_id=job_id) if held and held.token == claim.token else held

        await self._step(self._change_own(claim, rule))

    async def release(self, claim: Claim) -> None:
        """Delete *claim* while it is open; do nothing when the key has another claim, or none."""

        def rule(held: Claim | None) -> Claim | None:
            return None if held and held.token == claim.token and held.job_id is None else held

        await self._step(self._change_own(claim, rule))

    async def find(self, key: str) -> Claim | None:
        """Return the claim of *key*, or None."""
        held = await self._limited(self._read(key))
        return None if held is None else held.claim

    async def open_claims(self) -> list[Claim]:
        """Return the claims without a job, the oldest first. It reads all claims of the remote."""
        found = [held.claim for held in await self._limited(self._fetch(self._prefix))]
        return sorted((claim for claim in found if claim.job_id is None), key=lambda claim: claim.claimed_at)

    async def resolve(self, key: str, job_id: str) -> None:
        """Close the open claim of *key*: *job_id* is the job that was created.

        Raises:
            ConfigurationError: The key has no open claim.
        """
        check_job_id(job_id)

        def rule(held: Claim | None) -> Claim:
            if held is None or held.job_id not in (None, job_id):
                raise no_open_claim(key)
            return evolve(held, job_id=job_id)

        await self._step(self._change_any(key, rule))

    async def forget(self, key: str) -> None:
        """Delete *key*; its request can be sent again."""
        await self._step(self._change_any(key, lambda held: None))

    # Changes ------------------------------------------------------------------------------------

    async def _change(
        self, key: str, rule: Callable[[Claim | None], Claim | None], held: _Held | None
    ) -> Claim | None:
        """Replace the claim of *key* by what *rule* makes of it, in one push; None deletes it.

        Args:
            key: The key.
            rule: Returns the claim that the key is to have; the one that it has means: leave it.
            held: What the key is believed to have; the push fails, and is tried again, if that is wrong.
        """
        error: GitLedgerError | None = None
        for _ in range(TRIES):
            claim = None if held is None else held.claim
            wanted = rule(claim)
            if wanted == claim:
                return wanted
            commit = "" if wanted is None else await self._commit(wanted, held)
            expected = "" if held is None else held.commit
            error = await self._push(self.ref(key), commit, expected)
            if error is None:
                return wanted
            # Its answer may be lost, or another process was first: the remote knows.
            try:
                seen = await self._read(key)
            except GitLedgerError:
                raise error from None
            if seen == held and error.reason != "raced":
                raise error
            held = seen
        raise error or AssertionError

    async def _change_own(self, claim: Claim, rule: Callable[[Claim | None], Claim | None]) -> None:
        """Change *claim* without reading it first: the same claim always has the same commit."""
        opened = evolve(claim, job_id=None)
        await self._change(claim.key, rule, _Held(await self._commit(opened, None), opened))

    async def _change_any(self, key: str, rule: Callable[[Claim | None], Claim | None]) -> None:
        await self._change(key, rule, await self._read(key))

    async def _read(self, key: str) -> _Held | None:
        return next(iter(await self._fetch(self.ref(key))), None)

    async def _step(self, step: Coroutine[Any, Any, T]) -> T:
        """Run a change. When it is cancelled, git gets some seconds to finish its push."""
        return await finish_shielded(self._limited(step), patience=PATIENCE)

    async def _limited(self, step: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await step
        except TimeoutError:
            raise self._error("unreachable", f"no answer within {self._timeout:g} s") from None

    # Git ----------------------------------------------------------------------------------------

    async def _commit(self, claim: Claim, parent: _Held | None) -> str:
        """Write the commit that has *claim*, and return its name."""
        if not self._tree:  # its name depends on the repository's hash function
            self._tree = (await self._git("hash-object", "-t", "tree", "-w", "--stdin")).strip()
        above = [] if parent is None else [f"parent {parent.commit}"]
        moment = f"{max(0, int(claim.claimed_at))} +0000"
        lines = [f"tree {self._tree}", *above, f"author {_AUTHOR} {moment}", f"committer {_AUTHOR} {moment}"]
        text = "\n".join([*lines, "", _SUBJECT, "", json.dumps(asdict(claim)), ""])
        return (await self._git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text)).strip()

    async def _push(self, ref: str, commit: str, expected: str) -> GitLedgerError | None:
        """Move *ref* from *expected* to *commit*; empty stands for a ref that is not there."""
        lease = f"--force-with-lease={ref}:{expected}"
        status, out, err = await self._run("push", "--porcelain", lease, self.remote, f"{commit}:{ref}")
        return None if status == 0 else self._failure(f"{out}\n{err}", ref)

    async def _fetch(self, beginning: str) -> list[_Held]:
        """Return the claims whose refs begin so. A pattern that matches nothing is no error of git."""
        here = f"refs/mintlify-async/{uuid.uuid4().hex}/"  # of this call alone
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--refmap=")
        await self._git("fetch", *options, self.remote, f"+{beginning}*:{here}claim*")
        listed = await self._git(
            "for-each-ref", "--format=%(objectname) %(refname) %(contents:body)%00", here
        )
        rows = [row.split(" ", 2) for row in listed.replace("\0\n", "\0").split("\0") if row]
        if rows:
            await self._run("update-ref", "--stdin", stdin="".join(f"delete {name}\n" for _, name, _ in rows))
        return [held for commit, _, body in rows if (held := _parsed(commit, body)) is not None]

    async def _git(self, *arguments: str, stdin: str = "") -> str:
        status, out, err = await self._run(*arguments, stdin=stdin)
        if status != 0:
            raise self._failure(err, None)
        return out

    async def _run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Run git without questions; return its exit status and what it printed. Cancelled, it is killed."""
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MINTLIFY_")}
        quiet = {"LC_ALL": "C", "LANGUAGE": "", "GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never"}
        starting = asyncio.create_task(asyncio.create_subprocess_exec(
            "git", *settings, *arguments,
            cwd=self._directory,
            env=kept | quiet,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # no terminal to ask on, no Ctrl-C, and a group of its own to kill
        ))  # fmt: skip
        try:
            process = await finish_shielded(starting)  # a cancelled start would kill git without its children
            out, err = await process.communicate(stdin.encode())
        except OSError as error:
            where = "is git installed?" if error.filename == "git" else self._directory
            raise self._error("git", f"{error.strerror}: {where}") from None
        except BaseException:
            if starting.exception() is None:
                with suppress(ProcessLookupError):  # with what it has started to reach the remote
                    os.killpg(starting.result().pid, signal.SIGKILL)
                await finish_shielded(starting.result().communicate())
            raise
        return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")

    def _failure(self, said: str, ref: str | None) -> GitLedgerError:
        """Return the error for what git has printed."""
        reasons: list[Reason] = [reason for reason, pattern in _FAILURES if pattern.search(said)]
        reasons.append("unreachable")
        lines = re.findall(r"^(?:(?:remote|fatal|error): +|!\t\S+\t)(.*\S)", said, re.MULTILINE)
        told = "; ".join(dict.fromkeys(lines)) or said.strip() or "it gave no reason"
        return self._error(reasons[0], re.sub(r"(\w+://)[^/@\s]+@", r"\1…@", told), ref)

    def _error(self, reason: Reason, said: str, ref: str | None = None) -> GitLedgerError:
        verb, right = ("read", "read") if ref is None else ("write to", "write")
        says = {
            "permission": f"the token or key may not {verb} the repository. Give it that right: "
            f"`permissions: contents: {right}` on GitHub, a job token that may push on GitLab",
            "refused": f"it does not take the ref {ref}. Its host may take tags or branches only: "
            "give prefix='refs/tags/mintlify/' or prefix='refs/heads/mintlify/'",
            "raced": "other processes kept changing the same claim; try again",
            "unreachable": "it was not reached",
            "git": "git does not work here; run this in a checkout with git 2.31 or newer",
        }[reason]
        where = f"the ledger in the git remote {printable(self.remote)!r} cannot be used"
        return GitLedgerError(f"{where}: {says}\n(git: {printable(said)})", reason=reason)


def _parsed(commit: str, body: str) -> _Held | None:
    """Return the claim in a commit's message; None if it has none."""
    try:
        return _Held(commit, Claim(**json.loads(body)))
    except (TypeError, ValueError):
        return None
