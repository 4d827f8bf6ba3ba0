"""Observers: what they are told, and that their errors harm nothing."""

from __future__ import annotations

import logging
from contextlib import contextmanager

import pytest

from mintlify_async import APIConnectionError, MintlifySession, RetryPolicy
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


async def test_an_attempt_without_an_answer_has_its_error():
    """Its class alone: its text is for people."""
    watch = Watch()
    async with MintlifySession(
        domain="acme",
        assistant_key="mint_dsc_test_key",
        base_url="http://127.0.0.1:9",
        retry=RetryPolicy(attempts=1),
        observer=watch,
    ) as session:
        with pytest.raises(APIConnectionError):
            await session.ask("x")
    [(name, attempt)] = watch.events
    assert (name, attempt["error"]) == ("attempt", "APIConnectionError")
    assert isinstance(watch.error, APIConnectionError)


@pytest.mark.parametrize("method", ["start", "active", "set", "event", "end"])
async def test_an_observer_that_fails_harms_nothing(service, caplog, method):
    """D8: a job that was created must not be lost to what watches it. The error is logged."""

    def fail(*arguments):
        raise ValueError("mine")

    watch = Watch()
    setattr(watch, method, fail)
    async with service.session(observer=watch) as session:
        job = await session.create_job("x")
        answer = await session.ask("x")
    assert job.id
    assert answer.text
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert {record.getMessage() for record in failures} == {"the session's observer failed"}
    assert "mine" in caplog.text


async def test_a_block_of_an_observer_that_fails_at_its_end_harms_nothing(service):
    """The answer was there by then; and the error of a request is not replaced."""

    @contextmanager
    def block():
        try:
            yield
        finally:
            raise ValueError("mine")

    watch = Watch()
    watch.active = block
    async with service.session(observer=watch) as session:
        assert (await session.create_job("x")).id
        service.script.create_job(status=400)
        with pytest.raises(Exception, match="400"):
            await session.create_job("x")
