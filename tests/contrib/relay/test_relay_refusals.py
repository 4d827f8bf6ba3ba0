"""Failures of the service: the page gets the right status or error event, and no secret."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("fastapi")

from mintlify_async import RetryPolicy, Timeouts
from mintlify_async.testing import faults
from mintlify_async.testing.loop_time import virtual_time
from tests.support.relay_desk import HEAD, desk
from tests.support.relay_kit import events, user_message


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (400, 400),
        (401, 502),
        (402, 502),
        (403, 502),
        (404, 502),
        (409, 409),
        (413, 413),
        (418, 502),
        (422, 400),
        (429, 429),
        (500, 502),
        (503, 503),
        (504, 504),
        (302, 502),
    ],
)
async def test_a_refusal_of_the_service_is_told(status, told):
    """The page gets the right status and a sentence of ours, which says nothing about the key."""
    async with desk(session={"retry": None}) as here:
        here.service.script.ask(
            status=status, json={"message": f"bad key {here.service.assistant_key}"}, times=None
        )
        got, text, headers = await here.page.post()
        assert got == told
        assert b"bad key" not in text
        assert b"key" not in text
        assert headers["content-type"].startswith("text/plain")


async def test_429_says_when():
    """Retry-After has the service's own figure, in whole seconds."""
    async with desk(session={"retry": None}) as here:
        here.service.script.ask(status=429, headers={"Retry-After": "90.5"})
        status, text, headers = await here.page.post()
        assert (status, headers["retry-after"]) == (429, "91")
        assert text == b"Too many questions. Please wait a moment and try again."


@pytest.mark.parametrize(
    ("headers", "sent", "told"),
    [({"Retry-After": "30"}, 1, "30"), ({"Retry-After": "1"}, 2, "1"), ({}, 2, None)],
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


async def test_no_answer_is_502():
    """A service that refuses connections is a 502."""
    async with desk() as here, here.service.refusing():
        status, text, _ = await here.page.post()
        assert (status, text) == (502, b"The assistant is not available at the moment.")


async def test_silence_is_504():
    """A service that accepts the question and does not answer is a 504."""
    async with desk(session={"timeouts": Timeouts(first_event=0.1)}) as here:
        here.service.script.ask(fault=faults.NoAnswer(), times=None)
        status, text, _ = await here.page.post()
        assert (status, text) == (504, b"The assistant did not answer in time. Please try again.")


async def test_a_closed_session_is_503():
    """A session that the app has closed is a 503."""
    async with desk() as here:
        await here.session.close()
        status, _, _ = await here.page.post()
        assert status == 503


async def test_a_missing_key_is_500(monkeypatch):
    """A missing key is a 500 whose text does not mention it."""
    monkeypatch.delenv("MINTLIFY_ASSISTANT_API_KEY", raising=False)
    async with desk(session={"assistant_key": None}) as here:
        status, text, _ = await here.page.post()
        assert (status, text) == (500, b"The assistant is not available at the moment.")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ({"fault": faults.Cut(-120)}, "The answer was interrupted. Please try again."),
        ({"fault": faults.Cut(-120, "rst")}, "The answer was interrupted. Please try again."),
        (
            {"events": [*HEAD, {"type": "error", "errorText": "no credits on key mint_dsc_0123456789"}]},
            "The assistant could not finish this answer. Please try again.",
        ),
        ({"events": HEAD, "done": False}, "The answer was interrupted. Please try again."),
        (
            {"body": b'data: {"type":"start"}\n\ndata: {"type":"text-delta","id":"9","delta":"x"}\n\n'},
            "The assistant could not finish this answer. Please try again.",
        ),
        ({"body": "<html>busy</html>"}, "The assistant could not finish this answer. Please try again."),
        ({"status": 204}, "The answer was interrupted. Please try again."),
        ({"body": b"data: {bad\n\n"}, "The assistant could not finish this answer. Please try again."),
    ],
)
async def test_an_answer_that_breaks_off_says_so(script, told):
    """An answer that breaks off ends with an error event and ``[DONE]``; what had arrived stays."""
    async with desk() as here:
        here.service.script.ask(**script)
        shown = events(await here.page.ask(user_message("q")))
        assert shown[-1] == {"type": "error", "errorText": told}
        assert [event["type"] for event in shown].count("error") == 1


async def test_a_session_that_closes_breaks_answers_off():
    """Closing the session ends a running answer with an error event."""
    async with desk() as here:
        here.service.script.ask(events=[*HEAD, 60.0])
        async with here.page.request() as response:
            seen = b""
            while b"Hello" not in seen:
                seen += await response.content.readany()
            await here.session.close()
            seen += await response.read()
        assert events(seen)[-1]["type"] == "error"


async def test_what_an_apps_own_key_function_raises_is_the_apps():
    """An error of the app's key function reaches the framework unchanged."""

    def key() -> str:
        raise LookupError("the vault is sealed")

    async with desk(session={"assistant_key": key}) as here:
        assert (await here.page.post())[0] == 500
        assert here.service.requests == []
