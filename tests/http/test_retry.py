"""The retry policy: what happened in, seconds or None out; and what a server's pause means."""

from __future__ import annotations

import pytest

from mintlify_async import ConfigurationError, RetryPolicy
from mintlify_async.http.retry import Failure, RetryBudget, retry_after_seconds

WALL = 1_795_000_000.0
KINDS = ("agent_post", "get", "ask")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outcome", "pause"), [("not_sent", 0.25), ("refused", 1.25)])
def test_what_had_no_effect_is_sent_again(kind, outcome, pause):
    """What was not sent, or was refused, is sent again, whatever its kind."""
    assert RetryPolicy().delay(Failure(kind=kind, outcome=outcome), 1, 0.5) == pause


@pytest.mark.parametrize("status", [None, 200, 500, 502, 503, 504, 529])
def test_an_agent_post_of_unknown_outcome_is_never_sent_again(status):
    """A second job costs money: no setting allows it."""
    policy = RetryPolicy(attempts=100, resend_questions=True)
    assert policy.delay(Failure(kind="agent_post", outcome="unknown", status=status), 1, 0.5) is None


def test_a_question_of_unknown_outcome_is_asked_again_only_on_request():
    """Each costs quota, so it is the user's choice."""
    lost = Failure(kind="ask", outcome="unknown")
    assert RetryPolicy().delay(lost, 1, 0.5) is None
    assert RetryPolicy(resend_questions=True).delay(lost, 1, 0.5) == 0.25


@pytest.mark.parametrize(
    ("outcome", "status", "again"),
    [
        ("unknown", None, True),
        ("unknown", 500, True),
        ("unknown", 503, True),
        ("unknown", 501, False),
        ("answered", 408, True),
        ("answered", 425, True),
        ("answered", 404, False),
        ("answered", 302, False),
    ],
)
def test_a_get_is_retried_unless_the_answer_is_final(outcome, status, again):
    """Reading twice does no harm; a 404 does not change when the request is repeated."""
    pause = RetryPolicy().delay(Failure(kind="get", outcome=outcome, status=status), 1, 0.5)
    assert (pause is not None) is again


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_error_is_permanent(kind):
    """It was not sent, and asking again cannot help."""
    assert RetryPolicy().delay(Failure(kind=kind, outcome="not_sent", permanent=True), 1, 0.5) is None


def test_the_delay_doubles_up_to_its_cap_and_the_roll_spreads_it():
    """Full jitter: anything from nothing to the ceiling."""
    policy = RetryPolicy(attempts=99, base=0.5, cap=8)
    failure = Failure(kind="get", outcome="unknown")
    assert [policy.delay(failure, n, 1.0) for n in range(1, 8)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert policy.delay(failure, 5, 0.0) == 0
    assert policy.delay(failure, 98, 1.0) == 8


def test_attempts_count_the_first_one():
    """Three attempts are two retries."""
    failure = Failure(kind="get", outcome="unknown")
    assert RetryPolicy(attempts=3).delay(failure, 2, 0.5) is not None
    assert RetryPolicy(attempts=3).delay(failure, 3, 0.5) is None


def test_a_pause_that_the_service_asks_for_is_kept_or_given_up_never_cut():
    """At least as long as asked for; beyond the cap there is no waiting at all."""
    refused = Failure(kind="agent_post", outcome="refused", retry_after=2.0)
    assert RetryPolicy().delay(refused, 1, 0.0) == 2.0
    assert RetryPolicy().delay(refused, 1, 1.0) == pytest.approx(2.2)
    assert RetryPolicy().delay(Failure(kind="get", outcome="refused", retry_after=60.1), 1, 0.0) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 1.5},
        {"base": -1},
        {"pause_after_429": -1},
        {"pause_after_429": "1"},
        {"cap": float("nan")},
        {"budget": 0},
        {"within": -1},
        {"within": True},
    ],
)
def test_a_policy_checks_its_numbers(settings):
    """The error names the field."""
    with pytest.raises(ConfigurationError) as caught:
        RetryPolicy(**settings)
    assert caught.value.field == next(iter(settings))


def test_the_budget_ends_a_storm_and_comes_back_with_successes():
    """Ten retries can be made; each success gives a tenth of one back."""
    budget = RetryBudget(10)
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]
    for _ in range(9):
        budget.succeeded()
    assert not budget.take()
    budget.succeeded()
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
