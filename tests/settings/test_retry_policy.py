"""The retry policy: what happened in, seconds or None out; and what a server's pause means."""

from __future__ import annotations

import math

import pytest

from mintlify_async import ConfigurationError, RetryPolicy, Timeouts
from mintlify_async.http.header_times import retry_after_seconds
from mintlify_async.settings.retry_policy import RetryBudget

WALL = 1_795_000_000.0
POSTS = ["create_job", "send_message"]
ALL = [*POSTS, "ask", "get_job"]
ANY_STATUS = [None, 200, 500, 502, 503, 504, 529]
STUBBORN = RetryPolicy(attempts=100, resend_questions=True)


@pytest.mark.parametrize(
    ("policy", "operations", "outcome", "statuses", "pause"),
    [
        (RetryPolicy(), ALL, "not_sent", [None], 0.25),
        (RetryPolicy(), ALL, "refused", [429], 1.25),
        (STUBBORN, POSTS, "unknown", ANY_STATUS, None),
        (STUBBORN, [*POSTS, "ask"], "answered", [408, 425, 404], None),
        (RetryPolicy(), ["ask"], "unknown", ANY_STATUS, None),
        (STUBBORN, ["ask"], "unknown", ANY_STATUS, 0.25),
        (RetryPolicy(), ["get_job"], "unknown", ANY_STATUS, 0.25),
        (RetryPolicy(), ["get_job"], "unknown", [501], None),
        (RetryPolicy(), ["get_job"], "answered", [408, 425], 0.25),
        (RetryPolicy(), ["get_job"], "answered", [302, 404], None),
    ],
)
def test_what_is_sent_again(policy, operations, outcome, statuses, pause):
    """An agent POST only when it had no effect, a question by choice, a GET unless the response is final."""
    for operation in operations:
        for status in statuses:
            assert policy.delay(operation, outcome, attempt=1, random=0.5, status=status) == pause


def test_the_delay_doubles_up_to_its_cap_and_the_random_number_spreads_it():
    """From nothing to the ceiling. Three attempts are two retries."""
    policy = RetryPolicy(attempts=99, base=0.5, cap=8)
    delays = [policy.delay("get_job", "unknown", attempt=n, random=1.0) for n in (*range(1, 8), 98, 99)]
    assert delays == [0.5, 1, 2, 4, 8, 8, 8, 8, None]
    assert policy.delay("get_job", "unknown", attempt=5, random=0.0) == 0
    assert RetryPolicy().delay("get_job", "unknown", attempt=2, random=1.0) == 1
    assert RetryPolicy().delay("get_job", "unknown", attempt=3, random=1.0) is None


@pytest.mark.parametrize(
    ("asked", "random", "pause"), [(2.0, 0.0, 2.0), (2.0, 1.0, 2.2), (60.0, 0.0, 60.0), (60.1, 0.0, None)]
)
def test_a_pause_that_the_service_asks_for_is_never_cut(asked, random, pause):
    """At least as long as asked for; beyond the cap there is no waiting at all."""
    delay = RetryPolicy().delay("create_job", "refused", attempt=1, random=random, retry_after=asked)
    assert delay == (pause and pytest.approx(pause))


@pytest.mark.parametrize(
    ("policy", "field", "number"),
    [
        *((RetryPolicy, "attempts", number) for number in (0, True, 1.5, "1")),
        *((RetryPolicy, field, -1) for field in ("base", "pause_after_429", "within")),
        (RetryPolicy, "cap", math.nan),
        (RetryPolicy, "budget", 0),
        (Timeouts, "connect", 0),
        (Timeouts, "idle", -1),
        (Timeouts, "total", True),
        (Timeouts, "request", math.nan),
    ],
)
def test_a_policy_checks_its_numbers(policy, field, number):
    """The error names the field."""
    with pytest.raises(ConfigurationError) as caught:
        policy(**{field: number})
    assert caught.value.field == field


def test_the_budget_ends_a_storm_and_comes_back_with_successes():
    """Ten retries can be made; each success gives a tenth of one back, so ten successes give one."""
    budget = RetryBudget(10)
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]
    for _ in range(3):
        for _ in range(9):
            budget.succeeded()
        assert not budget.take()
        budget.succeeded()
        assert budget.take()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": " 2.5 "}, 2.5),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Fri, 18 Nov 2026 10:05:00 GMT", "date": "Fri, 18 Nov 2026 10:00:00 GMT"}, 300.0),
        ({"retry-after": "Fri, 18 Nov 2026 09:00:00 GMT", "date": "Fri, 18 Nov 2026 10:00:00 GMT"}, 0.0),
        ({"ratelimit-reset": "30"}, 30.0),
        ({"x-ratelimit-reset": str(int(WALL) + 90)}, 90.0),
        ({"x-ratelimit-reset": str(int(WALL) - 90)}, 0.0),
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 99 Nov 2026 10:05:00 GMT"}, None),
        ({"retry-after": "Fri, 18 Nov 99999999999 10:05:00 GMT"}, None),
        ({"retry-after": "Fri, 18 Nov 2026 10:05:00 +99999999999999999999"}, None),
        ({"retry-after": "Wed, 18 Nov 2026 12:06:40 GMT", "date": "18 Nov 99999999999 10:00 GMT"}, 3600.0),
        ({"retry-after": "٣"}, None),
    ],
)
def test_what_the_service_asks_for_is_read_and_nonsense_is_no_answer(headers, seconds):
    """Seconds, milliseconds, dates by the server's own clock, reset headers; broken values are absent."""
    assert retry_after_seconds(headers, WALL) == seconds
