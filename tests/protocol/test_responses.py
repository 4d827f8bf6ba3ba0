"""What an error answer says, on one line and without a key."""

from __future__ import annotations

import json

import pytest

from mintlify_async import (
    APIStatusError,
    Assumptions,
    MintlifyError,
    OutcomeUnknownError,
)
from mintlify_async.protocol.failure_words import server_words
from mintlify_async.protocol.responses import response_info


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"message": "no"}', "no"),
        ('{"error": "bad", "details": [{"message": "fp is required"}]}', "bad; fp is required"),
        ('{"error": {"message": "no"}}', "no"),
        ("<html><body>Bad gateway</body></html>", ""),
        ("line\nbreak\x1b[31m", "line\\nbreak\\x1b[31m"),
        ("", ""),
        ("[1]", "[1]"),
        ("{}", ""),
        ("null", ""),
        ('"no"', "no"),
        ('["no", "never"]', "no; never"),
        ('{"detail": "no"}', "no"),
        ('{"detail": [{"loc": ["body", "fp"], "msg": "no", "type": "missing", "input": "How do I?"}]}', "no"),
        ('{"type": "about:blank", "status": 400, "detail": "no", "title": "Bad"}', "Bad; no"),
        ('{"errors": ["no", "never"]}', "no; never"),
        ('{"errors": [{"code": 1, "message": "no"}, {"title": "never"}]}', "no; never"),
        ('{"errors": {"fp": ["required"]}}', "fp: required"),
        (
            '{"success": false, "error": {"name": "ZodError", "issues": [{"code": "big", "message": "no"}]}}',
            "no",
        ),
        ('{"statusCode": 400, "error": "Bad Request", "message": ["no"]}', "Bad Request; no"),
        ('{"Message": "no"}', "no"),
        ('{"error": "invalid", "advice": "make it shorter"}', "invalid; make it shorter"),
        ('{"error": "no", "message": "no"}', "no"),
        ('{"error": {"code": 17}}', '{"error": {"code": 17}}'),
        ('{"code": "too_long"}', '{"code": "too_long"}'),
        ('{"code": "%s"}' % ("x" * 300), '{"code": "' + "x" * 190 + "\u2026"),
        ("\n" * 100 + "<!-- edge --> <!DOCTYPE html><title>No</title>", ""),
        ("<?xml version='1.0'?><Error><Message>no</Message></Error>",) * 2,
        ("<no text>", "<no text>"),
        ("[" * 100_000, "[" * 200 + "…"),
    ],
)
def test_what_an_error_body_says_is_one_printable_line(body, words):
    """JSON errors and plain text become one printable line; HTML becomes nothing."""
    assert server_words(body) == words


@pytest.mark.parametrize("size", [3, 5_000_000])
async def test_the_headers_of_an_unreadable_answer_show_no_secret(service, session, size):
    """Too large or no job: cookies and a thread's key are masked."""
    secrets = {"Set-Cookie": "id=secret", "X-Thread-Key": "secret"}
    service.script.create_job(status=201, body="x" * size, headers=secrets)
    with pytest.raises(OutcomeUnknownError) as caught:
        await session.create_job("x")
    assert caught.value.headers["set-cookie"] == caught.value.headers["x-thread-key"] == "****"


PAGE = "<!doctype html>\n<html><head><title>Blocked</title></head></html>"


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 429, 500, 503])
@pytest.mark.parametrize(
    "body", [PAGE, PAGE.upper(), f"\ufeff\n<!-- x -->{PAGE}"], ids=["page", "upper", "comment"]
)
async def test_a_web_page_is_named_before_any_hint(service, session, status, body):
    """A firewall's page is no refusal of the service, so nobody should make a new key because of it."""
    headers = {"Content-Type": "text/html"}
    service.script.ask(status=status, body=body, headers=headers, times=None)
    with pytest.raises(APIStatusError) as caught:
        await session.with_options(retry=None).ask("x")
    words = str(caught.value)
    assert words.startswith(f"ask: {status} (a web page answered, not the API: a proxy or a firewall?")
    assert words.find("a web page") < words.find("key") or "key" not in words
    assert "Blocked" not in words


@pytest.mark.parametrize("operation", ["ask", "create_job", "send_message", "get_job"])
@pytest.mark.parametrize("status", [400, 413, 422, 429, 500])
async def test_no_words_of_a_refusal_are_lost(service, session, operation, status):
    """Of every operation, also those of a 5xx."""
    job = await session.create_job("x")
    body = {"detail": [{"msg": "messages[3] is too long"}]}
    getattr(service.script, operation)(status=status, body=body, times=None)
    calls = {
        "ask": lambda: session.ask("x"),
        "create_job": lambda: session.create_job("x"),
        "send_message": lambda: job.send("x"),
        "get_job": lambda: job.refresh(),
    }
    with pytest.raises(MintlifyError, match=r"messages\[3\] is too long"):
        await calls[operation]()


async def test_half_a_character_in_a_job_can_be_written(service, session):
    """It is U+FFFD, as in an answer."""
    record = {"id": "job_1", "status": "active", "model": "cut \ud83d", "source": {"repository": "a\ude00"}}
    service.script.create_job(status=201, body=json.dumps(record))
    job = await session.create_job("x")
    json.dumps(job.job.to_wire(), ensure_ascii=False).encode()
    assert job.job.model == "cut \ufffd"


def test_a_header_that_is_not_utf8_can_be_written():
    """Its bytes come from aiohttp as halves of surrogate pairs."""
    info = response_info(Assumptions(), 200, {"x-request-id": "req_\udcff", "x-other": "\udcff"})
    json.dumps(info.to_wire(), ensure_ascii=False).encode()
    assert info.request_id == "req_\ufffd"
