"""Claims are changed by pure rules: each is tried on records alone, without a store."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import pytest
from attrs import evolve

from mintlify_async.checks import check_dedupe_key
from mintlify_async.errors import ConfigurationError, StateError
from mintlify_async.jobs import claims
from mintlify_async.jobs.claims import Claim, check_same, find
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


def test_any_order_of_steps_lets_one_call_send():
    """Random steps of three calls: none takes what another one holds, and a result stays for good."""
    for seed in range(300):
        dice, records, sending, result = random.Random(seed), Records(), None, None
        calls = [evolve(OURS, token=str(number)) for number in range(3)]
        for number in range(60):
            call, holder = dice.choice(calls), records.held
            is_holder = holder is not None and holder.token == call.token
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
                case 4 if dice.random() < 0.2:
                    recorded = records.run(claims.record, "k", f"job_{number}", call.token)
                    assert recorded is (is_holder and result is None)
                    result = f"job_{number}" if recorded else result
            if result is not None:
                assert records.held.result == result
                assert list(records.records) == ["claims/done/k"]


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
    "value", [b"", b"{}", b"[]", b"\xff", b'{"version": 2}', b'{"version": 1, "odd": 1}']
)
def test_a_damaged_record_is_an_error_that_says_so(value):
    """And nothing is sent."""
    with pytest.raises(StateError, match="cannot be read"):
        find(Snapshot(records={"claims/open/k": Record(value=value, version="v", since=0.0)}, now=0.0), "k")
