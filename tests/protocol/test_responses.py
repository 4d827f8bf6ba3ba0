"""What an error answer says, on one line and without a key."""

from __future__ import annotations

import pytest

from mintlify_async import AuthenticationError, OutcomeUnknownError
from mintlify_async.protocol.responses import server_words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"message": "no"}', "no"),
        ('{"error": "bad", "details": [{"message": "fp is required"}]}', "bad; fp is required"),
        ('{"error": {"message": "no"}}', "no"),
        ("<html><body>Bad gateway</body></html>", ""),
        ("line\nbreak\x1b[31m", "line\\nbreak\\x1b[31m"),
        ("", ""),
        ("[1]", ""),
        ("[" * 100_000, "[" * 200 + "…"),
    ],
)
def test_what_an_error_body_says_is_one_printable_line(body, words):
    """JSON errors and plain text become one printable line; HTML becomes nothing."""
    assert server_words(body) == words


async def test_an_error_answer_is_a_typed_error_that_shows_no_key(service, session):
    """An error answer that repeats the key becomes a typed error without it."""
    key = service.admin_key
    headers = {"X-Request-Id": "req_1", "X-Echo": key}
    service.script.create_job(status=401, body={"error": f"bad key {key}"}, headers=headers)
    with pytest.raises(AuthenticationError) as caught:
        await session.create_job("x")
    assert caught.value.request_id == "req_1"
    assert caught.value.body == '{"error": "bad key ****"}'
    assert caught.value.headers["x-echo"] == "****"


@pytest.mark.parametrize("size", [3, 5_000_000])
async def test_the_headers_of_an_unreadable_answer_show_no_secret(service, session, size):
    """Too large or no job: cookies and a thread's key are masked."""
    secrets = {"Set-Cookie": "id=secret", "X-Thread-Key": "secret"}
    service.script.create_job(status=201, body="x" * size, headers=secrets)
    with pytest.raises(OutcomeUnknownError) as caught:
        await session.create_job("x")
    assert caught.value.headers["set-cookie"] == caught.value.headers["x-thread-key"] == "***"
