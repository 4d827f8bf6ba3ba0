"""``doctor --verify``: asks the service, and says which assumptions about it hold.

Where one is broken, the settings that mend it are used from then on, so that one run shows the others, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from attrs import define, evolve, field

import mintlify_async as mintlify

from ..errors import (
    APIConnectionError,
    APIStatusError,
    BadRequestError,
    JobTimeoutError,
    MintlifyError,
    NotFoundError,
    OutcomeUnknownError,
    UnexpectedResponseError,
)
from ..events import Event
from ..testing.recorder import Exchange, ExchangeRecorder, Recorder
from .assumption_checks import (
    NO_SETTING,
    OLD_STREAM,
    Report,
    check_headers,
    check_prefixes,
    check_records,
    check_stream,
    other_thread_headers,
    stream_facts,
)
from .error_advice import UsageError
from .exit_status import DONE, TROUBLE
from .settings import FOR_JOBS, FOR_QUESTIONS, recorder
from .terminal import Terminal

QUESTION = "What is this documentation about?"
FOLLOW_UP = "And in one sentence?"
PROMPT = "Say in one sentence what this documentation is about. Change no file."
OTHER_FP = "doctor-verify"
WRONG_THREAD_KEY = "doctor-verify-knows-no-key"
MISSING_JOB = "doctor-verify-no-such-job"

CREDITS_PER_ANSWER = 23
CREDITS_PER_JOB = 110
JOB_SECONDS = 1800.0
"""Longest wait for the end of a job."""

ASK_PATHS = ("/v2/assistant/{domain}/message",)
"""Where else the question may belong: interface 4.3 lists this path, too."""

GET_JOB_PATHS = (
    "/v2/agent/{project_id}/jobs/{job_id}",
    "/v2/agent/{project_id}/{job_id}",
    "/v2/agent/job/{job_id}",
    "/v2/agent/jobs/{job_id}",
    "/v1/agent/{project_id}/job/{job_id}",
)
"""Where else a job may be read. A GET costs nothing."""

LOOK_SECONDS = 5.0
NOT_FOUND_SECONDS = 120.0
"""How long a new job is looked for."""


@define(eq=False)
class Watch(ExchangeRecorder):
    """Keeps the exchanges, and hands them on to a recorder of the user's."""

    also: Recorder | None = None
    exchanges: list[Exchange] = field(factory=list[Exchange])

    def keep(self, exchange: Exchange) -> None:
        """Keep an exchange."""
        self.exchanges.append(exchange)
        if self.also is not None:
            self.also.keep(exchange)


@define(eq=False)
class Asked:
    """What came of a question."""

    events: list[Event] = field(factory=list[Event])
    error: MintlifyError | None = None
    thread: mintlify.Thread | None = None

    @property
    def status(self) -> int | None:
        """The status of the answer; None if there was none."""
        return self.error.status if isinstance(self.error, APIStatusError) else 200 if self.events else None


@define(eq=False)
class Verification:
    """One run: the requests, in their order.

    Args:
        make: Makes a session that records to *watch*, with the user's settings, changed by the arguments.
        watch: What went over the wire.
        keys: The keys by kind, ``admin`` and ``assistant``; an operation without its key is left out.
        tell: Is told what is being done.
    """

    make: Callable[..., mintlify.MintlifySession]
    watch: Watch
    keys: Mapping[str, str]
    tell: Callable[[str], object]
    report: Report = field(factory=Report)
    changes: dict[str, Any] = field(factory=dict[str, Any])
    accepted: dict[str, str] = field(factory=dict[str, str])

    async def run(self, *, with_job: bool) -> Report:
        """Send everything and return what was found."""
        reached = True
        if "assistant" in self.keys:
            reached = await self._questions()
        else:
            self.report.unseen("framing", "no assistant key or no domain is set")
        if reached and "admin" in self.keys:
            await self._read_missing_job()
            if with_job:
                await self._job()
        why = "a job shows it: --job" if "admin" in self.keys else "no admin key is set"
        for name in ("get-job path", "only `id` and `status` of a job are certain", "a job may answer 404"):
            self.report.unseen(name, why)
        if reached and any(one.status is not None for one in self.watch.exchanges):
            self.report.held("base URL", "it answers")
        check_prefixes(self.report, self.accepted)
        check_headers(self.report, self.watch.exchanges)
        return self.report

    def _assume(self, **values: Any) -> str:
        """Use other assumptions from now on; return the settings line for these."""
        given: mintlify.Assumptions = self.changes.get("assumptions", mintlify.Assumptions())
        self.changes["assumptions"] = evolve(given, **values)
        return f"assumptions=Assumptions({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    # Questions

    async def _questions(self) -> bool:
        """Ask; return whether the service could be reached."""
        self.tell("asking a question")
        first = await self._first_question()
        if first is None:
            return False
        check_stream(self.report, first.events, first.error)
        if first.events:
            self.accepted["assistant"] = self.keys["assistant"]
            exchange = self.watch.exchanges[-1]
            self.report.facts["stream"] = stream_facts(exchange, first.events)
            await self._thread(first, exchange)
        self.tell("asking with a wrong key")
        wrong_key = f"{mintlify.Assumptions().assistant_key_prefix}doctor_verify_wrong"
        wrong = await self._ask("Hm?", assistant_key=wrong_key)
        self.report.facts["wrong_key_status"] = wrong.status
        return True

    async def _first_question(self) -> Asked | None:
        """Ask until no known setting helps; None if another address is needed first."""
        asked = await self._ask(QUESTION)
        if self._moved(asked.error):
            return None
        if isinstance(asked.error, BadRequestError) and "fp" in asked.error.body:
            self.changes["fp"] = OTHER_FP
            again = await self._ask(QUESTION)
            if again.events:
                seen = f'{asked.error.status} for fp="anonymous", and none for another one'
                self.report.broken("`fp` defaults to `anonymous`", seen, f"fp={OTHER_FP!r}")
                return again
            del self.changes["fp"]
        elif asked.events:
            self.report.held("`fp` defaults to `anonymous`", 'a question with fp="anonymous" was answered')
        old = isinstance(asked.error, UnexpectedResponseError) and OLD_STREAM in str(asked.error)
        if old or isinstance(asked.error, NotFoundError):
            return await self._elsewhere(asked, old=old)
        return asked

    async def _elsewhere(self, asked: Asked, *, old: bool) -> Asked:
        """Ask at the other paths; what is not there costs nothing."""
        before = dict(self.changes)
        seen = "the stream of AI SDK 4" if old else str(asked.error)
        for path in ASK_PATHS:
            line = self._assume(ask_path=path)
            again = await self._ask(QUESTION)
            if again.events:
                self.report.broken("the v1 endpoint", f"{seen}; the v2 stream comes from {path}", line)
                return again
        self.changes = before
        if old:
            self.report.broken("the v1 endpoint", seen, 'assumptions=Assumptions(ask_path="…")')
        return asked

    def _moved(self, error: MintlifyError | None) -> bool:
        """Return whether the service is at another address."""
        if isinstance(error, APIConnectionError):
            self.report.trouble.append(str(error))
            return True
        if not (isinstance(error, APIStatusError) and 300 <= error.status < 400):
            return False
        there = urlsplit(error.headers.get("location", ""))
        line = f"MINTLIFY_BASE_URL={there.scheme}://{there.netloc}" if there.netloc else "MINTLIFY_BASE_URL=…"
        seen = f"it answers {error.status} and names {there.netloc or 'another path'}"
        self.report.broken("base URL", seen, line)
        return True

    async def _ask(self, question: str, thread: mintlify.Thread | None = None, **changes: Any) -> Asked:
        asked = Asked()
        async with self.make(**{**self.changes, **changes}) as session:
            reply = session.ask(question, thread=thread)
            try:
                async with reply:
                    async for event in reply:
                        asked.events.append(event)
            except MintlifyError as error:
                asked.error = error
            asked.thread = reply.thread
        return asked

    async def _thread(self, first: Asked, exchange: Exchange) -> None:
        """Continue the thread, with its key and with a wrong one."""
        row, thread, line = "thread headers", first.thread, ""
        if thread is None or thread.key is None:
            others = other_thread_headers(exchange.headers)
            named = {name: exchange.headers[header] for name, header in others.items()}
            thread_id = thread.id if thread is not None else named.get("thread_id_header")
            if others and thread_id:
                thread = mintlify.Thread(thread_id, named.get("thread_key_header"))
                line = self._assume(**others)
                self.report.broken(row, f"they are in {', '.join(sorted(others.values()))}", line)
        if thread is None:
            self.report.broken(row, "the answer names no thread")
            return
        self.tell("asking a follow-up in its thread")
        second = await self._ask(FOLLOW_UP, thread)
        self._judge_thread(thread, second, line)
        if thread.key is not None:
            self.tell("asking with a wrong thread key")
            wrong = await self._ask("Hm?", mintlify.Thread(thread.id, WRONG_THREAD_KEY))
            self.report.facts["wrong_thread_key_status"] = wrong.status

    def _judge_thread(self, thread: mintlify.Thread, second: Asked, line: str) -> None:
        row = "thread headers"
        if isinstance(second.error, APIStatusError) and second.error.status in (400, 403, 404):
            self.report.broken(row, f"the follow-up was refused: {second.error}", line or NO_SETTING)
            return
        check_stream(self.report, second.events, second.error)
        if second.thread is not None and second.thread.id != thread.id:
            self.report.broken(row, "the follow-up was answered in another thread")
        elif second.events:
            came = "its id and key came" if thread.key else "its id came, without a key"
            self.report.held(row, f"{came}, and the follow-up with them was answered")

    # Jobs

    async def _read_missing_job(self) -> None:
        self.tell("reading a job that does not exist")
        async with self.make(**self.changes) as session:
            try:
                await session.job(MISSING_JOB).refresh()
            except NotFoundError as error:
                self.accepted["admin"] = self.keys["admin"]
                self.report.facts["unknown_job_status"] = error.status
                if "job" in error.body.lower() and "/job" not in error.body.lower():  # not: no such path
                    seen = "a job that does not exist is answered with 404, as a job"
                    self.report.held("get-job path", seen)
            except APIStatusError as error:
                self.report.facts["unknown_job_status"] = error.status
                if not self._moved(error):
                    self.report.trouble.append(str(error))
            except MintlifyError as error:
                self.report.trouble.append(str(error))

    async def _job(self) -> None:
        self.tell("creating a job")
        async with self.make(**self.changes) as session:
            try:
                handle = await session.create_job(PROMPT)
            except (APIStatusError, APIConnectionError, OutcomeUnknownError) as error:
                self.report.trouble.append(str(error))
                return
            self.tell(f"following the job {handle.ref}")
            self.accepted["admin"] = self.keys["admin"]
            check_records(self.report, self.watch.exchanges, session.clock.wall())
            found = await self._find(session, handle)
        if found:
            async with self.make(**self.changes) as session:
                await self._follow(session.job(handle.ref))

    async def _find(self, session: mintlify.MintlifySession, handle: mintlify.JobHandle) -> bool:
        """Look until the new job is found, at the other paths, too, when it takes longer than assumed."""
        began, usual, elsewhere = session.clock.now(), mintlify.PollPolicy().not_found, False
        while (passed := session.clock.now() - began) < NOT_FOUND_SECONDS:
            try:
                await handle.refresh()
            except NotFoundError:
                if passed > usual and not elsewhere:
                    elsewhere = True
                    if await self._find_elsewhere(handle):
                        return True
                await session.clock.sleep(LOOK_SECONDS)
                continue
            except MintlifyError as error:
                self.report.trouble.append(str(error))
                return False
            self.report.held("get-job path", "it shows the new job")
            if passed > usual:
                limit = f"poll=PollPolicy(not_found={round(2 * passed)})"
                self.changes["poll"] = mintlify.PollPolicy(not_found=2 * passed)
                self.report.broken("a job may answer 404", f"it did for {passed:.0f} s", limit)
            else:
                self.report.held("a job may answer 404", f"it was found after {passed:.0f} s")
            return True
        line = 'assumptions=Assumptions(get_job_path="…")'
        self.report.broken("get-job path", f"404 for {NOT_FOUND_SECONDS:g} s", line)
        return False

    async def _find_elsewhere(self, handle: mintlify.JobHandle) -> bool:
        before = dict(self.changes)
        for path in GET_JOB_PATHS:
            line = self._assume(get_job_path=path)
            async with self.make(**self.changes) as session:
                try:
                    job = await session.job(handle.ref).refresh()
                except MintlifyError:
                    continue
            if job.id == handle.ref.id:
                self.report.broken("get-job path", f"404; the job is read at {path}", line)
                return True
        self.changes = before
        return False

    async def _follow(self, handle: mintlify.JobHandle) -> None:
        row, seen = "only `id` and `status` of a job are certain", list[str]()
        try:
            async for job in handle.watch(timeout=JOB_SECONDS):
                seen += [job.status] if job.status not in seen else []
        except JobTimeoutError as error:
            if error.job is not None and error.job.status not in ("", "active"):
                line = f"async for seen in job.watch(): stop at seen.status == {error.job.status!r}"
                self.report.broken(row, f"the status {error.job.status!r} stays, and is not listed", line)
            else:
                self.report.trouble.append(str(error))
        except UnexpectedResponseError as error:
            self.report.broken(row, str(error), "job.raw.json")
        except MintlifyError as error:
            self.report.trouble.append(str(error))
        if seen:
            self.report.held(row, f"statuses: {', '.join(seen)}")
            self.report.facts["job_statuses"] = seen


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Say what it costs, ask, run, and print what was found."""
    keys = {
        str(needed[0].key): needed[0].found(options)[1]
        for needed in (FOR_QUESTIONS, FOR_JOBS)
        if all(one.found(options)[1] for one in needed)
    }
    if not keys or (options.job and "admin" not in keys):
        raise UsageError("doctor --verify needs a key and its domain or project; see: mintlify-async doctor")
    watch = Watch(also=recorder(options))

    def make(**changes: Any) -> mintlify.MintlifySession:
        given: dict[str, Any] = {"base_url": options.base_url, "check_key_kind": False, "recorder": watch}
        return mintlify.MintlifySession(**(given | changes))

    async with make() as session:
        address = session.base_url
    _confirm(options, terminal, address, questions="assistant" in keys)
    report = await Verification(make, watch, keys, terminal.note).run(with_job=options.job)
    if options.json:
        terminal.record({"service": address, **report.to_dict()})
    else:
        _show(report, terminal)
    return DONE if report.fine else TROUBLE


def _confirm(options: argparse.Namespace, terminal: Terminal, address: str, *, questions: bool) -> None:
    """Say what the run costs, and go on if the user agrees."""
    costs = [f"asks 2 questions (about {2 * CREDITS_PER_ANSWER} credits)"] * questions
    costs += [f"creates a job (about {CREDITS_PER_JOB} credits; it may open a pull request)"] * options.job
    what = " and ".join(costs) or "reads a job that does not exist, which is free,"
    terminal.note(f"this {what} at {address}")
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nothing was sent: add --yes to agree to the cost")
    terminal.note("go on? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was sent")


def _show(report: Report, terminal: Terminal) -> None:
    for row in report.rows.values():
        terminal.write(f"{row.status:8}  {row.name}: {row.seen}")
        if row.mend:
            terminal.write(f"{'':8}  mend it: {row.mend}")
    stream: dict[str, Any] = report.facts.get("stream", {})
    facts = {f"stream: {name}": fact for name, fact in stream.items()}
    facts |= {name: fact for name, fact in report.facts.items() if name != "stream"}
    for name, fact in facts.items():
        terminal.write(f"{name.replace('_', ' ')}: {fact}")
    for line in report.trouble:
        terminal.write(f"failed: {line}")
