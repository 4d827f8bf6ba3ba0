"""Failures of the service: the page gets the right status or error event, and no secret."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

pytest.importorskip("fastapi")

from mintlify_async import RetryPolicy, Timeouts
from mintlify_async.contrib.relay.refusal_texts import CUT_TEXT, FAILED_TEXT, SLOW_TEXT
from mintlify_async.testing import Cut, NoAnswer
from mintlify_async.testing.virtual_clock import virtual_time
from tests.support.relay_desk import HEAD, desk
from tests.support.relay_kit import events, user_message


@pytest.mark.parametrize(
    ("status", "told"),
    [
        *((status, status) for status in (400, 409, 413, 429, 503, 504)),
        *((status, 502) for status in (302, 401, 402, 403, 404, 418, 500)),
        (422, 400),
    ],
)
async def test_a_refusal_of_the_service_is_told(status, told):
    """The page gets the right status and a sentence of ours, which says nothing about the key."""
    async with desk(session={"retry": None}) as here:
        here.service.script.ask(
            status=status, body={"message": f"bad key {here.service.assistant_key}"}, times=None
        )
        got, text, headers = await here.page.post()
        assert got == told
        assert b"bad key" not in text
        assert b"key" not in text
        assert headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("headers", "sent", "told"),
    [({"Retry-After": "29.5"}, 1, "30"), ({"Retry-After": "1"}, 2, "1"), ({}, 2, None)],
    ids=str,
)
async def test_a_page_is_told_within_two_seconds(headers, sent, told):
    """A service that refuses is asked again for 2 s at most, whatever the session's own policy says."""
    with virtual_time():
        async with desk(session={"retry": RetryPolicy(attempts=9)}) as here:
            here.service.script.ask(status=429, body="slow down", headers=headers, times=None)
            began = asyncio.get_running_loop().time()
            status, _, got = await here.page.post()
            assert asyncio.get_running_loop().time() - began <= 2.1
            assert (status, got.get("retry-after")) == (429, told)
            assert here.service.requests.count("ask") == sent


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        ("refused", (502, b"The assistant is not available at the moment.")),
        ("silent", (504, b"The assistant did not answer in time. Please try again.")),
        ("closed", (503, b"The assistant is not available at the moment.")),
        ("no key", (500, b"The assistant is not available at the moment.")),
    ],
)
async def test_no_answer(why, expected, monkeypatch, caplog):
    """No connection, silence, a closed session or a missing key: a status, and a line in the log."""
    monkeypatch.delenv("MINTLIFY_ASSISTANT_API_KEY", raising=False)
    session = {"assistant_key": None} if why == "no key" else {"timeouts": Timeouts(first_event=0.1)}
    async with desk(session=session) as here:
        here.service.script.ask(fault=NoAnswer(), times=None)
        if why == "closed":
            await here.session.close()
        async with here.service.refusing() if why == "refused" else nullcontext():
            status, text, _ = await here.page.post()
        assert (status, text) == expected
    (level,) = [record.levelname for record in caplog.records if "gave no answer" in record.message]
    assert level == ("ERROR" if expected[0] in (500, 502) else "WARNING")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ({"fault": Cut(-120, "rst")}, CUT_TEXT),
        ({"status": 204}, CUT_TEXT),
        ({"events": [HEAD[0], {"type": "text-delta", "id": "9", "delta": "x"}]}, FAILED_TEXT),
        ({"body": "<html>busy</html>"}, FAILED_TEXT),
        ({"body": b"data: {bad\n\n"}, FAILED_TEXT),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_an_answer_that_breaks_off_says_so(here, script, told):
    """An answer that breaks off ends with an error event and ``[DONE]``; what had arrived stays."""
    here.service.script.ask(**script)
    shown = events(await here.page.ask(user_message("q")))
    assert shown[-1] == {"type": "error", "errorText": told}
    assert [event["type"] for event in shown].count("error") == 1


async def test_an_answer_that_begins_without_an_event_was_too_slow():
    """Its headers have come, and nothing else within the limit."""
    async with desk(session={"timeouts": Timeouts(first_event=0.1)}) as here:
        here.service.script.ask(events=[60.0, *HEAD])
        shown = events(await here.page.ask(user_message("q")))
    assert shown == [{"type": "error", "errorText": SLOW_TEXT}]


async def test_a_session_that_closes_breaks_answers_off(here):
    """Closing the session ends a running answer with an error event."""
    here.service.script.ask(events=[*HEAD, 60.0])
    async with here.page.request() as response:
        seen = await response.content.readuntil(b"Hello ")
        await here.session.close()
        seen += await response.read()
    assert events(seen)[-1]["type"] == "error"


async def test_a_key_function_that_fails_is_a_service_that_cannot_be_reached():
    """The page gets a sentence without details, and nothing is sent."""

    def key() -> str:
        raise LookupError("the vault is sealed")

    async with desk(session={"assistant_key": key}) as here:
        status, text = (await here.page.post())[:2]
        assert status == 502
        assert "vault" not in str(text)
        assert here.service.requests == []
