"""Claims are changed by pure rules: each is tried on records alone, without a store."""

from __future__ import annotations

import itertools
import json
import random
from types import SimpleNamespace

import pytest
from attrs import evolve

from mintlify_async.argument_checks import check_dedupe_key
from mintlify_async.errors import ConfigurationError, StateError
from mintlify_async.jobs import ledger as claims
from mintlify_async.jobs.ledger import Claim, check_same, find
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
        return self.run(claims.begin, claim)

    @property
    def held(self):
        return find(Snapshot(records=self.records, now=self.now), "k")


def test_any_order_of_steps_lets_one_attempt_send():
    """Random steps of attempts, late writes among them: none sends beside another, and a result stays."""
    for seed in range(500):
        dice, records, sending, result = random.Random(seed), Records(), None, None
        begun: list[str] = []
        for number in range(60):
            call = evolve(OURS, token=str(dice.randrange(9)))
            match dice.randrange(6):
                case 0 if call.token not in begun:  # each attempt has a token of its own
                    begun.append(call.token)
                    if records.begin(call):
                        assert sending is None, "while another one is sending, or was and nobody knows"
                        sending = call.token
                case 1:
                    records.run(claims.release, call, may_come=dice.random() < 0.5)
                    sending = None if sending == call.token else sending
                case 2:
                    records.run(claims.give_up, call, reason="timeout", status=None)
                    sending = "nobody" if sending == call.token else sending
                case 3:
                    records.now += dice.choice([0, 1, 64, 70, 500])
                case 4 if dice.random() < 0.2:
                    recorded = records.run(claims.record, "k", f"job_{number}", call)
                    assert recorded is (sending == call.token and result is None)
                    result = f"job_{number}" if recorded else result
            if result is not None:
                assert records.held.result == result
                assert list(records.records) == ["claims/done/k"]


def test_a_late_write_of_a_released_attempt_fails():
    """What it expects is no longer there: a record that claims nothing took its place."""
    for is_written in (False, True):
        records = Records()
        if is_written:
            records.begin(OURS)
        before = dict(records.records)
        records.run(claims.release, OURS, may_come=True)
        assert records.held is None
        assert records.records != before
        assert records.begin(OTHERS)
        records.run(claims.release, OURS, may_come=True)
        assert records.held.token == "others", "a release that is late frees no other attempt"


@pytest.mark.parametrize(
    ("passed", "state"),
    [(0, "sending"), (124, "sending"), (125, "unknown"), (-124, "sending"), (-125, "unknown")],
)
def test_a_claim_that_is_sending_for_too_long_is_unknown(passed, state):
    """Its limit with the margin, and a minute; a date that is further ahead than that cannot be."""
    records = Records()
    records.begin(OURS)
    counts = records.held.at(records.now + passed)
    assert counts.state == state
    assert counts.sent == (records.now if state == "unknown" else None)


def test_an_unknown_outcome_keeps_what_is_known():
    """The time of sending, the reason and the status; a person's result takes its place."""
    records = Records()
    records.begin(OURS)
    records.now += 30
    records.run(claims.give_up, OURS, reason="server_error", status=503)
    error = claims.outcome_unknown(records.held)
    assert (error.sent_at, error.reason, error.status, error.dedupe_key) == (1000.0, "server_error", 503, "k")
    assert json.loads(records.records["claims/open/k"].value)["version"] == 2
    assert records.run(claims.record, "k", "job_1")
    assert json.loads(records.records["claims/done/k"].value)["version"] == 1


@pytest.mark.parametrize("rule", ["record", "give_up"])
def test_a_body_that_was_never_asked_for_has_claimed_nothing(rule):
    """A stand-in for aiohttp's session: its result, or that there is none, is noted all the same."""
    records = Records()
    if rule == "record":
        assert not records.run(claims.record, "k", "job_1", OURS)
        assert records.run(claims.record, "k", "job_1", OURS, unclaimed=True)
    else:
        records.run(claims.give_up, OURS, reason="timeout", status=None, unclaimed=True)
    assert records.held.state == ("done" if rule == "record" else "unknown")
    records.begin(OTHERS)
    assert records.held.token == "ours"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"prompt": "Fix that"}, "another prompt;"),
        ({"project_id": "other", "prompt": "x"}, "another project and another prompt;"),
        ({"base_url": "https://b"}, "another base_url;"),
        ({"extra_body": {"model": "x"}}, "another extra_body;"),
        ({"job_id": "2"}, "another job;"),
    ],
)
def test_another_request_is_told_what_differs(changes, named):
    """Each part by its name; the same request passes."""
    with pytest.raises(ConfigurationError, match=named) as caught:
        check_same(OTHERS, evolve(OURS, parts=request_parts(**changes)))
    assert caught.value.field == "dedupe_key"
    check_same(OTHERS, evolve(OURS, parts=request_parts()))


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
        check_dedupe_key(key)
    assert caught.value.field == "dedupe_key"
    assert check_dedupe_key("issue 7/é") == "issue 7/é"


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]", b"\xff", b'{"version": 3}', b'{"version": 1, "odd": 1}']
)
def test_a_damaged_record_is_an_error_that_says_so(value):
    """And nothing is sent."""
    with pytest.raises(StateError, match="cannot be read"):
        find(Snapshot(records={"claims/open/k": Record(value=value, version="v", since=0.0)}, now=0.0), "k")
