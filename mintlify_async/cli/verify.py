"""``doctor --verify`` sends requests to the service, and shows which assumptions about it are true.

The rows are the rows of the documentation page "What we assume", in the same order.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from attrs import define, field

import mintlify_async as mintlify

from ..errors import (
    APIStatusError,
    BadRequestError,
    JobTimeoutError,
    MintlifyError,
    NotFoundError,
    StreamDecodeError,
    StreamError,
    StreamInterruptedError,
    StreamStateError,
    UnexpectedResponseError,
)
from ..events import Event, UnknownEvent
from .error_advice import UsageError, message_of, missing_thing
from .exit_status import DONE, TROUBLE
from .settings import FOR_JOBS, FOR_QUESTIONS, open_session
from .standard_input import is_closed, read_line
from .terminal import Terminal, inert

QUESTION = "What is this documentation about?"
FOLLOW_UP = "And in one sentence?"
PROMPT = "Say in one sentence what this documentation is about. Change no file."
MISSING_JOB = "doctor-verify-no-such-job"

CREDITS_PER_ANSWER = 23
CREDITS_PER_JOB = 110
JOB_SECONDS = 1800.0
"""Maximum time to wait for the end of a job, in seconds."""

NAMES = (
    *("base URL", "get-job path", "key prefixes", "thread headers"),
    *("the assistant's key stays on a server", "`fp` defaults to `anonymous`", "request id", "reset headers"),
    *("a 429 without `Retry-After`", "a domain stands for an organization", "a month is at most 31 days"),
    *("only `id` and `status` of a job are certain", "a date without a zone is UTC"),
    *("`currentPath` counts code points", "framing", "part shapes", "the v1 endpoint"),
    *("a stream has ended", "stale result", "the service may answer a poll with 404"),
)
NO_SETTING = "no setting fixes this: record it with --record FILE and report it"
OLD_STREAM = "AI SDK 4"
"""This text is in the error for an answer of the v1 endpoint."""
HOURS_APART = 0.4
"""A new job's date is not in UTC if it differs from now by more than this number of hours."""
KNOWN_RESETS = {"retry-after", "retry-after-ms", "ratelimit-reset", "x-ratelimit-reset"}
ANY_KEY: dict[str, Any] = {"assumptions": mintlify.Assumptions(admin_key_prefix="", assistant_key_prefix="")}
"""The options of a session that accepts keys with any prefix."""
ANY_KEY_LINE = 'assumptions=Assumptions(admin_key_prefix="", assistant_key_prefix="")'

MakeSession = Callable[[], mintlify.MintlifySession]


@define
class Row:
    """One assumption: ``held``, ``broken`` or ``not seen``, with the evidence and the setting to change."""

    status: str = "not seen"
    evidence: str = "one run cannot show it"
    fix: str = ""


@define
class Verification:
    """One run: the requests in their order, and their results.

    Args:
        make: Makes a session with the user's settings that accepts keys with any prefix.
        keys: The keys by kind, ``admin`` and ``assistant``. Operations without a key are left out.
        tell: Is called with a text about each step.
        rows: The result for each assumption.
        trouble: Failures that show nothing about an assumption.
        unknown: The unknown types and fields of events.
        foreign: The error of a response that may come from another server. It becomes the result of the row
            "base URL", if no other response shows that the base URL is right.
    """

    make: MakeSession
    keys: Mapping[str, str]
    tell: Callable[[str], object]
    rows: dict[str, Row] = field(factory=lambda: {name: Row() for name in NAMES})
    trouble: list[str] = field(factory=list[str])
    unknown: set[str] = field(factory=set[str])
    foreign: str = ""

    async def run(self, *, with_job: bool) -> None:
        """Send all requests."""
        async with self.make() as session:
            if "assistant" in self.keys and not await self._questions(session):
                return
            if "admin" in self.keys:
                self.tell("reading a job that does not exist")
                await self._read_missing_job(session)
                if with_job:
                    self.tell("creating a job")
                    await self._job(session)
        if self.foreign and self.rows["base URL"].status != "held":
            self.broken("base URL", self.foreign, "MINTLIFY_BASE_URL=…")

    def held(self, name: str, evidence: str) -> None:
        """If an assumption was not shown to be false, record that it is true."""
        if self.rows[name].status != "broken":
            self.rows[name] = Row("held", evidence)

    def broken(self, name: str, evidence: object, fix: str = NO_SETTING) -> None:
        """Record that an assumption is false, and the setting that corrects it."""
        self.rows[name] = Row("broken", str(evidence), fix)

    def _accepted(self, kind: str) -> None:
        self.held("base URL", "it answers")
        if mintlify.Assumptions().kind_of_key(self.keys[kind]) == kind:
            self.held("key prefixes", f"the {kind} key begins as assumed and is accepted")
        else:
            self.broken("key prefixes", f"an {kind} key that begins otherwise is accepted", ANY_KEY_LINE)

    def _failed(self, error: MintlifyError) -> None:
        """Record an error of any operation. A 429 shows whether the service sends the time to wait."""
        if isinstance(error, APIStatusError) and 300 <= error.status < 400:
            evidence = f"it answers {error.status} and names {error.headers.get('location')!r}"
            self.broken("base URL", evidence, "MINTLIFY_BASE_URL=…")
            return
        self.trouble.append(message_of(error))
        if isinstance(error, APIStatusError) and error.status == 429:
            resets = _matching(error.headers, r".*(reset|retry).*")
            if known := KNOWN_RESETS.intersection(resets):
                self.held("reset headers", ", ".join(known))
            elif resets:
                fix = "retry=RetryPolicy(pause_after_429=60)"
                self.broken("reset headers", f"a 429 says when in {resets[0]}", fix)

    # Questions

    async def _questions(self, session: mintlify.MintlifySession) -> bool:
        """Ask twice in one thread. Return whether the service was reached."""
        self.tell("asking a question")
        reply, events, error = await _ask(session, QUESTION)
        if error is not None and not self._reached(error):
            return False
        if not events:
            return True
        self._accepted("assistant")
        self.held("`fp` defaults to `anonymous`", 'a question with fp="anonymous" was answered')
        self._stream(events, error)
        headers: Mapping[str, str] = reply.response.headers if reply.response else dict[str, str]()
        self._request_id(headers)
        if reply.thread is None or reply.thread.key is None:
            self._other_thread_headers(headers, reply.thread)
            return True
        self.tell("asking a follow-up in its thread")
        second, events, error = await _ask(session, FOLLOW_UP, reply.thread)
        if isinstance(error, APIStatusError):
            self.broken("thread headers", f"the follow-up was refused: {error.status}")
        elif second.thread is not None and second.thread.id != reply.thread.id:
            self.broken("thread headers", "the follow-up was answered in another thread")
        else:
            self._stream(events, error)
            self.held("thread headers", "id and key came, and the follow-up with them was answered")
        return True

    def _reached(self, error: MintlifyError) -> bool:
        """Record an error of the first question. Return whether the service was reached."""
        match error:
            case BadRequestError() if "fp" in error.body:
                evidence = f'a question with fp="anonymous" was refused: {error.status}'
                self.broken("`fp` defaults to `anonymous`", evidence, 'fp="…"')
            case UnexpectedResponseError() if OLD_STREAM in str(error):
                evidence = "the service sends the stream of AI SDK 4"
                self.broken("the v1 endpoint", evidence, 'assumptions=Assumptions(ask_path="…")')
            case UnexpectedResponseError():
                self.broken("framing", error)
            case StreamError():
                pass  # _stream() records this error
            case _:
                self._failed(error)
                return isinstance(error, APIStatusError) and error.status >= 400
        return True

    def _stream(self, events: list[Event], error: MintlifyError | None) -> None:
        """Record the results of an answer: its events, and the error that ended it."""
        self.held("framing", f"{len(events)} server-sent events")
        self.held("part shapes", "every event of a known type has its fields, and its part was started")
        self.held("the v1 endpoint", "the v2 endpoint sends the stream of AI SDK 5 and later")
        for event in events:
            kind = str(event.to_wire()["type"])
            names = {kind} if isinstance(event, UnknownEvent) else {f"{kind}.{name}" for name in event.extra}
            self.unknown |= names
        match error:
            case None:
                self.held("a stream has ended", f"it ended with {events[-1].to_wire()['type']}")
            case StreamDecodeError() if "not JSON" in str(error):
                self.broken("framing", error)
            case StreamDecodeError() | StreamStateError():
                self.broken("part shapes", error)
            case StreamInterruptedError(__cause__=None):
                self.broken("a stream has ended", error, "except StreamInterruptedError: error.text")
            case _:  # an error of the network or the service
                self._failed(error)

    def _request_id(self, headers: Mapping[str, str]) -> None:
        others = _matching(headers, r".*(request|trace|correlation)[-_]?id")
        if known := set(headers).intersection(mintlify.Assumptions().request_id_headers):
            self.held("request id", ", ".join(known))
        elif others:
            fix = f"assumptions=Assumptions(request_id_headers=({others[0]!r},))"
            self.broken("request id", f"it is in {others[0]}", fix)
        else:
            self.rows["request id"].evidence = "no header looks like a request id"

    def _other_thread_headers(self, headers: Mapping[str, str], thread: mintlify.Thread | None) -> None:
        keys = _matching(headers, r".*(thread|conversation|chat).*(key|token|secret)")
        ids = _matching(headers, r".*(thread|conversation|chat).*id")
        names = {"thread_id_header": ids, "thread_key_header": keys}
        fix = ", ".join(f"{name}={matches[0]!r}" for name, matches in names.items() if matches)
        evidence = "the answer names no thread" if thread is None else "the thread came without a key"
        self.broken("thread headers", evidence, f"assumptions=Assumptions({fix})" if fix else NO_SETTING)

    # Jobs

    async def _read_missing_job(self, session: mintlify.MintlifySession) -> None:
        try:
            await session.job(MISSING_JOB).refresh()
        except NotFoundError as error:
            thing = missing_thing(error)
            if thing:
                self._accepted("admin")
            else:
                self.foreign = "a job that does not exist is answered with 404, but not as the service does"
            if thing == "job":
                self.held("get-job path", "a job that does not exist is answered with 404, as a job")
            elif thing:
                self.trouble.append(message_of(error))
        except MintlifyError as error:
            self._failed(error)

    async def _job(self, session: mintlify.MintlifySession) -> None:
        row, statuses = "only `id` and `status` of a job are certain", list[str]()
        try:
            handle = await session.create_job(PROMPT)
            self._accepted("admin")
            self.tell(f"waiting for the job {handle.ref}")
            self._date(handle.job)
            async for job in handle.watch(timeout=JOB_SECONDS):
                statuses += [job.status] if job.status not in statuses else []
        except NotFoundError:
            fix = 'assumptions=Assumptions(get_job_path="…")'
            self.broken("get-job path", "the new job is answered with 404", fix)
        except UnexpectedResponseError as error:
            self.broken(row, error, "job.raw.json")
        except MintlifyError as error:
            self._failed(error)
            if isinstance(error, JobTimeoutError) and statuses and statuses[-1] not in ("", "active"):
                evidence = f"the status {statuses[-1]!r} stays, and is not listed"
                self.broken(row, evidence, f"job.watch(): stop at {statuses[-1]!r}")
        if statuses:
            self.held("get-job path", "it shows the new job")
            self.held("the service may answer a poll with 404", "the new job was found in time")
            self.held(row, f"statuses: {', '.join(statuses)}")

    def _date(self, job: mintlify.Job | None) -> None:
        """Compare the job's creation date with the date of the response, which is in UTC."""
        name = "a date without a zone is UTC"
        if job is None or job.raw is None:
            return
        record: dict[str, Any] = job.raw.json
        try:
            date = datetime.fromisoformat(record["createdAt"])
            now = parsedate_to_datetime(job.raw.headers["date"])
        except (KeyError, TypeError, ValueError):
            return
        hours = (date.replace(tzinfo=UTC) - now).total_seconds() / 3600
        if date.tzinfo is not None:
            self.rows[name].evidence = "the dates have a zone"
        elif abs(hours) > HOURS_APART:
            self.broken(name, f"createdAt is {hours:+.1f} hours from now, read as UTC", "job.raw.json")
        else:
            self.held(name, "createdAt has no zone, and read as UTC it is now")


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    """Return the *names* that match, without the header names of the current assumptions."""
    assumed = mintlify.Assumptions()
    ours = (assumed.thread_id_header, assumed.thread_key_header)
    return sorted(name for name in names if name not in ours and re.fullmatch(pattern, name))


async def _ask(
    session: mintlify.MintlifySession, question: str, thread: mintlify.Thread | None = None
) -> tuple[mintlify.Reply, list[Event], MintlifyError | None]:
    reply, events = session.ask(question, thread=thread), list[Event]()
    try:
        async with reply:
            async for event in reply:
                events.append(event)
    except MintlifyError as error:
        return reply, events, error
    return reply, events, None


def _agreed(terminal: Terminal) -> bool:
    """Ask the user to agree. Without a terminal, return False."""
    if is_closed() or not sys.stdin.isatty():
        return False
    terminal.note("continue? [y/N]")
    return (read_line() or "").strip().lower() in ("y", "yes")


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the cost, ask, and print each row."""
    keys = {
        kind: needed[0].value(options)
        for kind, needed in (("assistant", FOR_QUESTIONS), ("admin", FOR_JOBS))
        if all(setting.value(options) for setting in needed)
    }
    if not keys or (options.job and "admin" not in keys):
        raise UsageError("doctor --verify needs a key and its domain or project; see: mintlify-async doctor")
    verification = Verification(lambda: open_session(options, (), **ANY_KEY), keys, terminal.note)
    async with verification.make() as session:
        url = session.base_url
    costs = [f"asks 2 questions (about {2 * CREDITS_PER_ANSWER} credits)"] * ("assistant" in keys)
    costs += [f"creates a job (about {CREDITS_PER_JOB} credits; it may open a pull request)"] * options.job
    what = " and ".join(costs) or "reads a job that does not exist, which is free,"
    terminal.note(f"this {what} at {url}")
    if not (options.yes or _agreed(terminal)):
        raise UsageError("nothing was sent: answer y, or add --yes, to agree to the cost")
    await verification.run(with_job=options.job)
    for name, row in verification.rows.items():
        terminal.write(f"{row.status:8}  {name}: {inert(row.evidence)}")
        if row.fix:
            terminal.write(f"{'':8}  fix it: {row.fix}")
    if verification.unknown:
        terminal.write(f"unknown to this version: {', '.join(sorted(verification.unknown))}")
    for line in verification.trouble:
        terminal.write(f"failed: {inert(line)}")
    fine = not verification.trouble and all(row.status != "broken" for row in verification.rows.values())
    return DONE if fine else TROUBLE
