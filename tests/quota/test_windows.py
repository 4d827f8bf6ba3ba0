"""The arithmetic of limits: never more than the limit in any window, whatever the pattern of calls."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async.errors import ConfigurationError
from mintlify_async.quota.windows import (
    BUCKETS,
    BucketCounter,
    Limit,
    QuotaWindow,
    ServerLimits,
    SlidingLog,
    read_rate_headers,
)

WALL = 1_767_225_600.0


def window(amount: int = 10, seconds: float = 100.0, *, exact: bool = True) -> QuotaWindow:
    return QuotaWindow(name="create_job", key="k", amount=amount, seconds=seconds, exact=exact)


def most_in_any_window(times: list[float], seconds: float) -> int:
    """Count the fullest half-open window of *seconds*."""
    return max((sum(start <= t < start + seconds for t in times) for start in times), default=0)


@pytest.mark.parametrize("exact", [True, False])
@given(gaps=st.lists(st.floats(0, 60, allow_nan=False), max_size=150))
def test_no_window_ever_holds_more_than_the_limit(gaps: list[float], exact: bool):
    """Calls arrive in any pattern; in no window of 100 s do more than 10 get through."""
    win, log, now, granted = window(exact=exact), SlidingLog() if exact else BucketCounter(), 0.0, []
    for gap in gaps:
        now += gap
        if log.opens_in(win, now, 0) == 0:
            log.take(win, now)
            granted.append(now)
    assert most_in_any_window(granted, 100.0 - 1e-9) <= 10


@pytest.mark.parametrize("exact", [True, False])
@given(gaps=st.lists(st.integers(0, 30_000).map(lambda ms: ms / 1000), max_size=60))
def test_the_wait_that_is_told_is_enough_and_not_much_more(gaps: list[float], exact: bool):
    """After the wait there is a slot; just before there is none."""
    win, log, now = window(amount=3, exact=exact), SlidingLog() if exact else BucketCounter(), 0.0
    for gap in gaps:
        now += gap
        wait = log.opens_in(win, now, 0)
        assert wait <= 100.0 + (0 if exact else win.bucket_seconds) + 1e-6
        if wait > 1e-6:
            assert log.opens_in(win, now + wait - 1e-6, 0) > 0
            now += wait + 1e-9
        assert log.opens_in(win, now, 0) == 0
        log.take(win, now)


def test_an_exact_slot_is_free_again_after_exactly_the_window():
    """A slot taken at 5 counts until 105 and not at 105."""
    win, log = window(amount=1), SlidingLog()
    log.take(win, 5.0)
    assert log.opens_in(win, 104.0, 0) == pytest.approx(1.0)
    assert log.opens_in(win, 105.0, 0) == 0


def test_a_counted_slot_is_free_after_the_window_and_at_most_a_sixtieth():
    """A counted slot leaves with its sixtieth of the window."""
    win, log = window(amount=1, seconds=60.0, exact=False), BucketCounter()
    log.take(win, 5.5)
    assert log.opens_in(win, 6.0, 0) == pytest.approx(60.0)
    assert log.opens_in(win, 65.9, 0) > 0
    assert log.opens_in(win, 66.0, 0) == 0


@pytest.mark.parametrize(
    ("ahead", "wait"), [(0, 90.0), (1, 95.0), (2, 100.0), (3, 190.0), (5, 200.0), (6, 290.0)]
)
def test_those_ahead_are_counted_in_the_wait(ahead: int, wait: float):
    """Three slots, taken at 0, 5 and 10: who comes behind n others waits for the slot after theirs."""
    win, log = window(amount=3), SlidingLog()
    log.take(win, 0.0)
    log.take(win, 5.0)
    log.take(win, 10.0)
    assert log.opens_in(win, 10.0, ahead) == pytest.approx(wait)


def test_those_ahead_may_be_more_than_a_window_holds():
    """No slot is taken yet, but seven calls wait before it: they take two whole windows of three."""
    assert SlidingLog().opens_in(window(amount=3), 0.0, 7) == pytest.approx(200.0)


@pytest.mark.parametrize("log", [SlidingLog(), BucketCounter()])
def test_a_share_of_nothing_never_opens(log: SlidingLog | BucketCounter):
    """A limit divided among more sharers than it has slots is 0: no wait is long enough."""
    assert log.opens_in(window(amount=0, exact=isinstance(log, SlidingLog)), 0.0, 0) == math.inf


@pytest.mark.parametrize("exact", [True, False])
def test_a_refund_frees_one_slot_and_only_one_that_counts(exact: bool):
    """A refund takes back its own slot; for a slot that has left the window it does nothing."""
    win, log = window(amount=2, exact=exact), SlidingLog() if exact else BucketCounter()
    log.take(win, 0.0)
    log.take(win, 50.0)
    log.refund(win, 0.0)
    assert len(log) == 1
    log.refund(win, 0.0)
    assert len(log) == 1
    log.refund(win, 50.0)
    log.refund(win, 50.0)
    assert len(log) == 0


def test_a_counted_window_stays_small():
    """Ten thousand slots over a window are at most sixty-one numbers."""
    win, log = window(amount=10_000, seconds=3600.0, exact=False), BucketCounter()
    for second in range(3600 * 3):
        if log.opens_in(win, float(second), 0) == 0:
            log.take(win, float(second))
    assert len(log._counts) <= BUCKETS + 1


# ------------------------------------------------------------------ what the service says


def test_a_block_without_a_time_doubles_while_refusals_follow_each_other():
    """60, 120, 240 ... up to an hour; after a quiet time it begins with 60 again."""
    keeper, now, pauses = ServerLimits(), 0.0, []
    for _ in range(9):
        keeper.block(None, now)
        pauses.append(keeper.opens_in(now, 0))
        now += pauses[-1]
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    keeper.block(None, now + 4 * 3600)
    assert keeper.opens_in(now + 4 * 3600, 0) == 60


def test_many_refusals_at_once_are_one():
    """Ten answers to ten requests that were under way double nothing."""
    keeper = ServerLimits()
    for second in range(10):
        keeper.block(None, float(second))
    assert keeper.opens_in(10.0, 0) == 50.0


def test_a_shorter_block_never_shortens_a_longer_one():
    """The longest of what the service asked for counts."""
    keeper = ServerLimits()
    keeper.block(300.0, 0.0)
    keeper.block(5.0, 0.0)
    assert keeper.opens_in(0.0, 0) == 300.0


def test_answers_that_overtake_each_other_keep_the_smaller_allowance():
    """The 3 that was sent before the 5 arrived still counts; the next period brings its own number."""
    keeper = ServerLimits()
    keeper.learn(3, 100.0, 0.0)
    keeper.learn(5, 99.0, 0.5)
    assert (keeper.allowance, keeper.opens_in(1.0, 2), keeper.opens_in(1.0, 3)) == (
        3,
        0.0,
        pytest.approx(98.5),
    )
    keeper.learn(50, 3600.0, 200.0)
    assert keeper.allowance == 50


def test_another_period_replaces_what_was_known():
    """A service that tells now of its minute, now of its hour: the last word counts."""
    keeper = ServerLimits()
    keeper.learn(2, 10.0, 0.0)
    keeper.learn(90, 3600.0, 1.0)
    assert keeper.opens_in(1.0, 2) == 0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, (None, None)),
        ({"RateLimit-Remaining": "7", "RateLimit-Reset": "30"}, (7, 30.0)),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "12.5"}, (0, 12.5)),
        ({"x-ratelimit-remaining": "3", "x-ratelimit-reset": str(int(WALL) + 90)}, (3, 90.0)),
        ({"x-ratelimit-remaining": "3", "x-ratelimit-reset": f"{int(WALL) + 90}000"}, (3, 90.0)),
        ({"x-ratelimit-remaining": "3", "x-ratelimit-reset": str(int(WALL) - 90)}, (3, 0.0)),
        ({"ratelimit": "limit=100, remaining=42, reset=10"}, (42, 10.0)),
        ({"ratelimit": '"default";r=42;t=10'}, (42, 10.0)),
        ({"ratelimit-remaining": "many", "ratelimit-reset": "-5"}, (None, None)),
        ({"ratelimit-remaining": "nan", "ratelimit-reset": "inf"}, (None, None)),
        ({"ratelimit-remaining": "", "ratelimit-reset": "9" * 400}, (None, None)),
    ],
)
def test_reset_headers_are_read_in_every_spelling(headers: dict[str, str], expected: tuple[object, object]):
    """The interface names no header: the common ones are read, whatever is broken is nothing."""
    assert read_rate_headers(headers, wall=WALL) == expected


def test_a_reset_that_is_a_time_of_day_is_measured_on_the_services_clock():
    """A computer that is a day off reads the same 90 seconds, because the answer has a date."""
    headers = {
        "Date": "Thu, 01 Jan 2026 00:00:00 GMT",
        "X-RateLimit-Remaining": "1",
        "X-RateLimit-Reset": str(int(WALL) + 90),
    }
    assert read_rate_headers(headers, wall=WALL + 86_400) == (1, 90.0)


def test_a_hostile_header_costs_no_time():
    """A megabyte of digits or spaces is read in no time to speak of."""
    began = time.process_time()
    for text in ("9" * 10**6, " " * 10**6, "r=" * 10**5, "remaining" * 10**5):
        read_rate_headers(
            {"ratelimit": text, "ratelimit-remaining": text, "ratelimit-reset": text}, wall=WALL
        )
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("amount", "per", "field"),
    [(0, 1, "amount"), (-1, 1, "amount"), (1.5, 1, "amount"), (True, 1, "amount"), ("9", 1, "amount"),
     (1, 0, "per"), (1, math.inf, "per"), (1, math.nan, "per")],
)  # fmt: skip
def test_a_senseless_limit_is_refused(amount: object, per: object, field: str):
    """What cannot be meant is refused with the argument's name."""
    with pytest.raises(ConfigurationError) as error:
        Limit(amount, per=per)  # type: ignore[arg-type]
    assert error.value.field == field
