"""Claims are changed by pure rules: each is tried on records alone, without a store."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import pytest
from attrs import evolve

from mintlify_async.errors import ConfigurationError, OutcomeUnknownError, StateError
from mintlify_async.jobs import claims
from mintlify_async.jobs.claims import Claim, check_key, check_same, find, outcome_unknown
from mintlify_async.storage.store import Record, Snapshot


def request_parts(base_url="https://a", project_id="docs", prompt="Fix it", extra_body=None, job_id=None):
    call = SimpleNamespace(project_id=project_id, prompt=prompt, extra_body=extra_body or {}, job_id=job_id)
    return claims.request_parts(base_url, call)


PARTS = request_parts()
OURS = Claim(key="k", operation="create_job", parts=PARTS, token="ours", lease=65.0)
OTHERS = evolve(OURS, token="others")


class Records:
    """The records of one key, changed at times of a store."""

    def __init__(self):
        self.records, self.now, self.versions = {}, 1000.0, itertools.count()

    def run(self, rule, *arguments, **named):
        snapshot = Snapshot(records=dict(self.records), now=self.now)
        changes, result = rule(snapshot, *arguments, **named)
        again = rule(snapshot, *arguments, **named)
        assert again == (changes, result), "a rule has no effects"
        for name, value in changes.items():
            self.records.pop(name, None)
            if value is not None:
                self.records[name] = Record(value=value, version=str(next(self.versions)), since=self.now)
        if changes:
            unchanged, repeated = rule(
                Snapshot(records=dict(self.records), now=self.now), *arguments, **named
            )
            assert not unchanged, "a rule accepts its own result"
            assert repeated == result
        return result

    def begin(self, claim):
        return self.run(claims.begin, claim)[0]

    @property
    def held(self):
        return find(Snapshot(records=self.records, now=self.now), "k")


@pytest.fixture
def records():
    return Records()


def test_a_free_key_is_claimed(records):
    """And nobody else claims it while its lease lasts."""
    assert records.begin(OURS).token == "ours"
    records.now += 64.9
    assert records.begin(OTHERS).token == "ours"


def test_an_unused_claim_is_taken_over_when_its_lease_has_ended(records):
    """By the store's time; the former holder cannot begin to send any more."""
    records.begin(OURS)
    records.now += 65
    assert records.begin(OTHERS).token == "others"
    assert not records.run(claims.set_state, OURS, "sending")
    assert not records.run(claims.record, "k", "job_1", OURS.token)
    records.run(claims.release, OURS)
    assert records.held.token == "others"
    assert records.run(claims.set_state, OTHERS, "sending")


def test_a_claim_that_is_sending_is_never_taken_over(records):
    """However long ago that was; and its state has the time of its own writing."""
    records.begin(OURS)
    records.now += 10
    records.run(claims.set_state, OURS, "sending")
    assert records.held.since == 1010
    assert records.held.seconds_left(1010) == 65 + 60
    records.now += 1e9
    held = records.begin(OTHERS)
    assert (held.token, held.state) == ("ours", "sending")


def test_before_a_retry_it_is_claimed_again(records):
    """And then it may be taken over again, after another lease."""
    records.begin(OURS)
    records.run(claims.set_state, OURS, "sending")
    records.now += 60
    assert records.run(claims.set_state, OURS, "claimed")
    records.now += 64
    assert records.begin(OTHERS).token == "ours"
    records.now += 1
    assert records.begin(OTHERS).token == "others"


@pytest.mark.parametrize("state", ["claimed", "sending"])
def test_a_release_frees_the_key(records, state):
    """Of both states; a second release, and one of a claim that is done, change nothing."""
    records.begin(OURS)
    records.run(claims.set_state, OURS, state)
    records.run(claims.release, OURS)
    records.run(claims.release, OURS)
    assert records.records == {}
    records.begin(OTHERS)
    records.run(claims.record, "k", "job_1", OTHERS.token)
    records.run(claims.release, OTHERS)
    assert records.held.result == "job_1"


def test_a_result_is_recorded_once_and_for_all(records):
    """Later calls get it; the open record is gone."""
    records.begin(OURS)
    records.run(claims.set_state, OURS, "sending")
    assert records.run(claims.record, "k", "job_1", OURS.token)
    assert not records.run(claims.record, "k", "job_2", OURS.token)
    assert not records.run(claims.set_state, OURS, "sending")
    held = records.begin(OTHERS)
    assert (held.state, held.result) == ("done", "job_1")
    assert list(records.records) == ["claims/done/k"]


def test_people_resolve_and_forget(records):
    """An open claim gets a result by hand, once; a forgotten key is free."""
    assert not records.run(claims.record, "k", "job_1")
    records.begin(OURS)
    assert records.run(claims.record, "k", "job_1")
    assert records.run(claims.record, "k", "job_1")
    assert not records.run(claims.record, "k", "job_2")
    records.run(claims.forget, "k")
    assert records.records == {}
    assert not records.run(claims.record, "k", "job_1", OURS.token)


def test_any_order_of_steps_lets_one_call_send():
    """Random steps of three calls: never two send without a release or a person between."""
    for seed in range(300):
        dice, records, sending = random.Random(seed), Records(), None
        calls = [evolve(OURS, token=str(number)) for number in range(3)]
        for _ in range(60):
            call = dice.choice(calls)
            match dice.randrange(6):
                case 0:
                    records.begin(call)
                case 1:
                    if records.run(claims.set_state, call, "sending"):
                        assert sending in (None, call.token)
                        sending = call.token
                case 2:
                    if sending != call.token or dice.random() < 0.1:
                        records.run(claims.release, call)
                        sending = None if sending == call.token else sending
                case 3:
                    records.now += dice.choice([0, 1, 64, 70, 500])
                case 4 if sending == call.token and dice.random() < 0.2:
                    assert records.run(claims.record, "k", "job", call.token)
                case _:
                    pass


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"prompt": "Fix that"}, ["prompt"]),
        ({"project_id": "other", "prompt": "x"}, ["project", "prompt"]),
        ({"base_url": "https://b"}, ["base_url"]),
        ({"extra_body": {"model": "x"}}, ["extra_body"]),
    ],
)
def test_another_request_is_told_what_differs(changes, named):
    """And never to use another key: that is how a job is created twice."""
    with pytest.raises(ConfigurationError) as caught:
        check_same(OURS, evolve(OTHERS, parts=request_parts(**changes)))
    text = str(caught.value)
    assert [
        part for part in ("base_url", "project", "prompt", "extra_body") if f"another {part}" in text
    ] == sorted(named, key=["base_url", "project", "prompt", "extra_body"].index)
    assert "another key" not in text
    assert caught.value.field == "dedupe_key"
    check_same(OURS, evolve(OTHERS, parts=request_parts()))


def test_a_creation_is_no_follow_up():
    """Nor is a follow-up of another job the same."""
    follow_up = evolve(OURS, operation="send_message", parts={**PARTS, "job": "1"})
    with pytest.raises(ConfigurationError, match="belongs to a follow-up"):
        check_same(follow_up, OURS)
    with pytest.raises(ConfigurationError, match="another job"):
        check_same(follow_up, evolve(follow_up, parts={**PARTS, "job": "2"}))


def test_no_part_can_be_read():
    """A hash of each; a lone surrogate in a prompt is a part like any other."""
    assert "Fix it" not in repr(PARTS)
    assert request_parts(prompt="\ud800") != PARTS
    assert "Fix it" not in repr(OURS)
    assert "ours" not in repr(OURS)


@pytest.mark.parametrize("key", ["", " ", None, 7, "k" * 513, "a\0b", "\ud800"])
def test_a_key_is_checked(key):
    """Every store must be able to keep it."""
    with pytest.raises(ConfigurationError) as caught:
        check_key(key)
    assert caught.value.field == "dedupe_key"
    assert check_key("issue 7/é") == "issue 7/é"


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]", b"\xff", b'{"version": 2}', b'{"version": 1, "odd": 1}']
)
def test_a_damaged_record_is_an_error_that_says_so(value):
    """And nothing is sent."""
    with pytest.raises(StateError, match="cannot be read"):
        find(Snapshot(records={"claims/open/k": Record(value=value, version="v", since=0.0)}, now=0.0), "k")


@pytest.mark.parametrize("operation", ["create_job", "send_message"])
def test_an_unknown_outcome_says_what_to_do(operation):
    """With the operation, and since when."""
    error = outcome_unknown(evolve(OURS, operation=operation, since=5.0))
    assert isinstance(error, OutcomeUnknownError)
    assert (error.operation, error.sent_at, error.reason) == (operation, 5.0, "not_recorded")
    assert "resolve" in str(error)
