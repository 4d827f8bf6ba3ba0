"""What a program sees of the package's log when it configures no logging."""

from __future__ import annotations

import ast
import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import mintlify_async
from mintlify_async import (
    Limit,
    MemoryStore,
    NotFoundError,
    Quota,
    QuotaExceededError,
    RetryPolicy,
    SQLiteStore,
    StateError,
)
from mintlify_async.runtime import logs
from mintlify_async.storage import sqlite_file
from mintlify_async.testing import LocalService


def test_a_warning_reaches_stderr_by_itself():
    """The package adds no handler, so that Python's own handler of last resort shows warnings."""
    pytest.importorskip("mintlify_async.contrib.relay")
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "mintlify_async"]
    assert {"mintlify_async", "mintlify_async.relay"} <= set(names)
    for log in map(logging.getLogger, names):
        assert (log.handlers, log.level, log.propagate) == ([], logging.NOTSET, True), log.name


async def test_each_request_has_one_line_at_info(service, caplog):
    """The attempts are at DEBUG. No line has a prompt, a question, an answer, a project or a domain."""
    caplog.set_level(logging.DEBUG, logger="mintlify_async")
    service.script.ask(status=429, headers={"Retry-After": "0"})
    service.script.get_job(status=404)
    async with service.session(retry=RetryPolicy()) as session:
        job = await session.create_job("a secret plan")
        answer = await session.ask("How do I log in to the vault?")
        with pytest.raises(NotFoundError):
            await session.job("nothing").refresh()
    records = [record for record in caplog.records if record.name == "mintlify_async"]
    created, again, answered, missing = [r.getMessage() for r in records if r.levelno == logging.INFO]
    assert created.startswith(f"create_job: job {job.id} is active (")
    assert again.startswith("ask failed, attempt 1; again in")
    assert answered.startswith("ask: the answer begins (")
    assert answered.endswith("attempts: 2)")
    assert missing.startswith("get_job: 404")
    assert [record.levelno for record in records].count(logging.DEBUG) == len(service.requests) == 4
    text = "\n".join(record.getMessage() for record in records)
    for word in ("secret plan", "vault", answer.text[:30], service.project_id, service.domain):
        assert word not in text


async def test_records_have_fields_and_polls_are_at_debug(service, virtual, session, caplog):
    """Structured logs need no parsing: operation, job, request id and attempt are attributes."""
    caplog.set_level(logging.DEBUG, logger="mintlify_async")
    job = await session.run_job("a secret plan")
    records = [record for record in caplog.records if hasattr(record, "operation")]
    [created] = [record for record in records if record.levelno == logging.INFO]
    assert (created.operation, created.job_id, created.attempt) == ("create_job", job.id, 1)
    assert created.request_id
    polls = [record for record in records if record.operation == "get_job"]
    assert polls
    assert {(record.levelno, record.job_id) for record in polls} == {(logging.DEBUG, job.id)}


ABOUT_NO_REQUEST = [
    "filter: %s is sent",  # once for each name
    "the service announces",  # once for each text
    "%s$",  # a flaw of aiohttp's version; a turn that was not saved
    "the quota's store can",
    "the recording %s ends here",
    "%s: the disk is slow",
    "a request has no IP address",
    "an answer on another worker",
    "other workers cannot read an answer",
    "the stream store cannot be used",
    "the app shuts down",
    "the user hook must return",
    "a page's %s is refused",  # by the relay: nothing was asked
    "a conversation cannot be read",
    "%s; calls that wait: %d",  # about all of them
]


def lines_without_fields() -> Iterator[str]:
    """Yield the texts of the package's log lines that have no fields."""
    folder = Path(mintlify_async.__file__).parent
    levels = ("debug", "info", "warning", "error", "exception", "log")
    functions = {"logged_if_slow", *(f"log.{level}" for level in levels)}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in functions:
                continue
            if {"extra", "fields"} & {keyword.arg for keyword in node.keywords}:
                continue
            texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
            yield next((text for text in texts if isinstance(text, str)), ast.unparse(node)) + "$"


def test_every_line_about_a_request_has_fields():
    """A line without fields is about a store, a setting or a page, and stands in the list."""
    lines = list(lines_without_fields())
    assert [line for line in lines if not line.startswith(tuple(ABOUT_NO_REQUEST))] == []
    assert [start for start in ABOUT_NO_REQUEST if not any(line.startswith(start) for line in lines)] == []


def field_of(caplog: pytest.LogCaptureFixture, start: str, *names: str) -> tuple[object, ...]:
    """Return fields of the one record whose text begins with *start*."""
    [record] = [record for record in caplog.records if record.getMessage().startswith(start)]
    return tuple(getattr(record, name) for name in names)


async def test_lines_about_jobs_name_the_job(service, session, virtual, caplog):
    """A failed hook, a wait that was cancelled, and a create that was cancelled after it was sent."""
    handles = []

    def fail(handle):
        handles.append(handle)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await session.run_job("x", on_created=fail)
    names = ("operation", "job_id")
    assert field_of(caplog, "on_created failed", *names) == ("run_job", handles[0].id)
    waiting = asyncio.create_task(session.run_job("x"))
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.wait([waiting])
    (operation, job_id) = field_of(caplog, "run_job was cancelled", *names)
    assert (operation, job_id) == ("run_job", "job_2")
    service.script.create_job(delay=50.0)
    creating = asyncio.create_task(session.create_job("x"))
    await asyncio.sleep(1)
    creating.cancel()
    await asyncio.wait([creating])
    assert field_of(caplog, "create_job was cancelled", *names) == ("create_job", None)


async def test_lines_about_dedupe_keys_have_the_operation(service, virtual, caplog):
    """A wait for another call's request, and a result that the store does not take."""
    caplog.set_level(logging.INFO, logger="mintlify_async")
    store = MemoryStore()
    service.script.create_job(delay=2.0)
    async with service.session(ledger=store) as one, service.session(ledger=store) as two:
        first = asyncio.create_task(one.create_job("x", dedupe_key="key"))
        await asyncio.sleep(1)
        await two.create_job("x", dedupe_key="key")
        await first
        assert field_of(caplog, "waiting up to", "operation", "job_id") == ("create_job", None)
        service.script.create_job(delay=2.0)
        third = asyncio.create_task(one.create_job("x", dedupe_key="third"))
        await asyncio.sleep(1)
        store.write = refuse
        await third
        await asyncio.sleep(100)
    line = "create_job with dedupe_key 'third': job_2 is not recorded yet"
    assert field_of(caplog, line, "operation", "job_id") == ("create_job", "job_2")
    line = "create_job with dedupe_key 'third': job_2 was not recorded;"
    assert field_of(caplog, line, "operation", "job_id") == ("create_job", "job_2")


async def refuse(*_: object, **__: object) -> bool:
    raise StateError("the disk is full")


async def test_fields_of_the_programs_own_records_stay(service, session, caplog):
    """A record factory that sets ``request_id`` breaks no call."""
    caplog.set_level(logging.DEBUG, logger="mintlify_async")
    factory = logging.getLogRecordFactory()

    def own(*args, **kwargs):
        record = factory(*args, **kwargs)
        record.request_id = "mine"
        return record

    logging.setLogRecordFactory(own)
    try:
        await session.create_job("x")
    finally:
        logging.setLogRecordFactory(factory)
    assert {record.request_id for record in caplog.records if record.name == "mintlify_async"} == {"mine"}


async def test_what_the_service_will_end_is_logged_once(service, session, caplog):
    """A ``Sunset`` or ``Deprecation`` header is a notice for the developer, not for each request."""
    service.script.create_job(times=2, headers={"Sunset": "Sat, 01 Jan 2028 00:00:00 GMT"})
    service.script.ask(headers={"Deprecation": "@1798761600"})
    for _ in range(2):
        await session.create_job("x")
    await session.ask("x")
    warnings = [record.getMessage() for record in caplog.records if "announces" in record.getMessage()]
    assert warnings == [
        "the service announces sunset: 'Sat, 01 Jan 2028 00:00:00 GMT'",
        "the service announces deprecation: '@1798761600'",
    ]


async def silent_question(service: LocalService) -> None:
    service.script.ask(delay=50.0)
    async with service.session() as session:
        await session.ask("a question")


async def turn_behind_another(service: LocalService) -> None:
    store = MemoryStore()
    async with service.session() as session:
        one, two = (session.conversation(fp="u", store=store, id="c", busy="queue") for _ in range(2))
        async with one.ask("one") as reply:
            second = asyncio.create_task(two.ask("two").run())
            await asyncio.sleep(50)
            await reply
        await second


async def call_without_a_slot(service: LocalService) -> None:
    quota = Quota(create_job=Limit(1, per=50.0), mode="wait")
    async with service.session(quota=quota) as session:
        await session.create_job("one")
        await session.create_job("two")


async def call_without_a_key(service: LocalService) -> None:
    async def key() -> str:
        await asyncio.sleep(50)
        return service.assistant_key

    async with service.session(assistant_key=key) as session:
        await session.ask("a question")


@pytest.mark.parametrize(
    ("wait", "line"),
    [
        (silent_question, "ask: no answer yet, 5 s after attempt 1 began"),
        (turn_behind_another, "a question waits for another turn of its conversation to end"),
        (call_without_a_slot, "create_job: still waiting for its key or for a slot of the quota"),
        (call_without_a_key, "ask: still waiting for its key or for a slot of the quota"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_long_wait_has_a_line_after_five_seconds(wait, line, virtual, caplog):
    """At INFO, so that nobody takes a slow service for a program that hangs."""
    caplog.set_level(logging.INFO, logger="mintlify_async")
    async with LocalService() as service:
        start, waiting = virtual.now(), asyncio.create_task(wait(service))
        await asyncio.sleep(5.1)
        assert line in [record.getMessage() for record in caplog.records]
        assert field_of(caplog, line, "operation") == (line.split(":")[0] if ":" in line else "ask",)
        await waiting
        assert virtual.now() - start >= 45


async def test_a_batch_in_a_line_has_warnings(virtual, caplog):
    """A program that waits for slots says so without a logging configuration: why, how many calls, how long.

    Once after ten seconds, and again for each wave of slots; nothing for a wait of seconds.
    """
    async with LocalService() as service, service.session(quota=Quota(mode="wait")) as session:
        caplog.set_level(logging.WARNING, logger="mintlify_async")
        batch = asyncio.gather(*(session.create_job(f"page {number}") for number in range(300)))
        lines = list[list[str]]()
        for seconds in (10.5, 3601, 3600):
            await asyncio.sleep(seconds)
            lines.append([record.getMessage() for record in caplog.records])
            caplog.clear()
        await batch
        with pytest.raises(QuotaExceededError):
            await session.create_job("one more", timeout=5)
        assert not caplog.records
    used = "quota create_job: every slot is used; calls that wait: "
    assert lines == [
        [f"{used}200; the next slot is in 3591 s"],
        [f"{used}100; the next slot is in 3591 s"],
        [],
    ]


async def test_a_locked_store_has_a_line(tmp_path, monkeypatch, caplog):
    """The line names the file that another process has locked."""
    caplog.set_level(logging.INFO, logger="mintlify_async")
    path = tmp_path / "ledger.sqlite"
    store = SQLiteStore(path)
    await store.read(["key"])
    monkeypatch.setattr(logs, "SECONDS", 0.05)
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.2)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateError, match="lock"):
            await store.read(["key"])
    line = f"{path}: the disk is slow, or another process keeps the file locked"
    assert line in [record.getMessage() for record in caplog.records]
