"""Observers: what they are told, and that their errors harm nothing."""

from __future__ import annotations

import logging
from contextlib import contextmanager

import pytest

from mintlify_async import APIConnectionError, RetryPolicy
from mintlify_async.errors import BadRequestError
from tests.support.observer_watch import Watch


async def test_an_observer_sees_each_attempt(service):
    """Answers and retries, with ids, status, attempt and duration."""
    watch = Watch()
    service.script.create_job(status=429, headers={"Retry-After": "0", "X-Request-Id": "r1"})
    async with service.session(observer=watch) as session:
        await session.create_job("x")
    (first, refused), (second, retry), (third, answer) = watch.events
    assert (first, second, third) == ("attempt", "retry", "attempt")
    assert (refused["attempt"], refused["status"], refused["request_id"]) == (1, 429, "r1")
    assert refused["seconds"] >= 0
    assert retry == {"attempt": 1, "delay": 0}
    assert (answer["attempt"], answer["status"]) == (2, 201)
    assert (watch.operation, watch.error) == ("create_job", None)


async def test_an_observer_gets_the_facts_of_an_answer(service):
    """The ids by which the service knows it, how it ended, and its text."""
    watch = Watch()
    service.script.ask(text="Use it.", headers={"X-Request-Id": "r2"})
    async with service.session(observer=watch) as session:
        reply = await session.ask("x")
    facts = {name: watch.facts[name] for name in ("conversation_id", "finish_reason", "message_id", "output")}
    assert facts == {
        "conversation_id": reply.thread_id,
        "finish_reason": "stop",
        "message_id": reply.message.id,
        "output": reply.text,
    }
    assert watch.facts["request_id"] == "r2"


async def test_a_failed_attempt_reports_the_class_of_its_error(service):
    """The event has the error's class, not its text."""
    watch, once = Watch(), RetryPolicy(attempts=1)
    async with service.refusing(), service.session(retry=once, observer=watch) as session:
        with pytest.raises(APIConnectionError):
            await session.ask("x")
    [(name, attempt)] = watch.events
    assert (name, attempt["error"]) == ("attempt", "APIConnectionError")
    assert isinstance(watch.error, APIConnectionError)


def fail(*arguments):
    raise ValueError("mine")


@contextmanager
def failing_at_its_end():
    try:
        yield
    finally:
        fail()


METHODS = dict.fromkeys(("start", "active", "set", "event", "end"), fail)


@pytest.mark.parametrize(
    ("method", "fails"), [*METHODS.items(), ("active", failing_at_its_end)], ids=[*METHODS, "a block's end"]
)
async def test_an_observer_that_fails_harms_nothing(service, caplog, method, fails):
    """No job and no answer is lost, and no error is replaced. The observer's error is logged."""
    watch = Watch()
    setattr(watch, method, fails)
    async with service.session(observer=watch) as session:
        assert (await session.create_job("x")).id
        assert (await session.ask("x")).text
        service.script.create_job(status=400)
        with pytest.raises(BadRequestError):
            await session.create_job("x")
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert {record.getMessage() for record in failures} == {"the session's observer failed"}
    assert {record.operation for record in failures} <= {"create_job", "ask"}
    assert "mine" in caplog.text


class Leave(BaseException):
    """An error that is no ``Exception``, such as those of ``pytest.fail`` and of extensions in Rust."""


def leave(*arguments):
    raise Leave


def leave_at_the_id(name, value):
    if name == "conversation_id":
        raise Leave


@contextmanager
def leaving_at_its_end():
    yield
    raise Leave


LEAVING = {"event": leave, "set": leave_at_the_id, "end": leave, "active": leaving_at_its_end}


@pytest.mark.parametrize("post", ["create_job", "send_message"])
@pytest.mark.parametrize("method", LEAVING)
async def test_the_id_of_a_paid_job_is_in_the_log_whatever_an_observer_raises(service, caplog, method, post):
    """The response was read, so the job exists although the call ends with the observer's error."""
    watch = Watch()
    async with service.session() as session:
        job = await session.create_job("x")
        with_observer = session.with_options(observer=watch)
        setattr(watch, method, LEAVING[method])
        caplog.clear()
        with pytest.raises(Leave):
            await (
                with_observer.create_job("x")
                if post == "create_job"
                else with_observer.job(job.ref).send("x")
            )
    job_ids = [job.id, *(id for id in service.jobs if id != job.id)]
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"was answered with job {job_ids[post == 'create_job']}, but the call ended with Leave" in line
