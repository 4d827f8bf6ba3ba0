"""JSON text: keys are masked in it, and any value becomes valid JSON."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given

from mintlify_async.model.secret import drop_keys, mask_keys, mask_text
from mintlify_async.model.strict_json import json_safe
from tests.support.json_values import JSON


@pytest.mark.parametrize(
    "text",
    [
        '{"threadKey":"secret"}',
        "{'threadKey': 'secret'}",
        '{"threadKey" : "secret',
        '{\\"threadKey\\":\\"secret\\"}',
        "threadKey=secret&x=1",
        "x secret y",
    ],
)
def test_keys_are_masked_in_text(text: str) -> None:
    """In JSON, in JSON within JSON, cut, in a query, or known: a key in text is masked."""
    assert "secret" not in mask_text(text, "secret" if text.startswith("x") else None)


def test_masking_copies_nothing_that_has_no_key() -> None:
    """What holds no key stays the same object; what does is copied, not changed."""
    plain = {"a": [{"b": 1}]}
    assert mask_keys(plain) is plain
    assert drop_keys(plain) is plain
    keyed = {"a": [{"threadKey": "k", "b": 1}]}
    assert mask_keys(keyed) == {"a": [{"threadKey": "****", "b": 1}]}
    assert drop_keys(keyed) == {"a": [{"b": 1}]}
    assert keyed["a"][0]["threadKey"] == "k"


@pytest.mark.parametrize("key", ["", 0, 7, False, True, ["k"], {"k": 1}])
def test_a_key_of_any_type_is_a_secret(key: object) -> None:
    """Whatever stands where a thread's key belongs is masked and left out, but null, which is no key."""
    assert mask_keys({"a": {"threadKey": key}}) == {"a": {"threadKey": "****"}}
    assert drop_keys({"a": {"threadKey": key}}) == {"a": {}}
    assert drop_keys({"a": {"threadKey": None}}) == {"a": {"threadKey": None}}


@given(JSON)
def test_what_is_written_is_valid_json(content: object) -> None:
    """Any value becomes JSON that a strict parser reads."""
    json.loads(json.dumps(json_safe(content), allow_nan=False))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (r'{"threadKey":"a\/b\"c\u002bd","n":1}', '{"threadKey":"****","n":1}'),
        (r'{"x":"{\"threadKey\":\"a\\/b c\",\"n\":1}"}', r'{"x":"{\"threadKey\":\"****\",\"n\":1}"}'),
        ("?threadKey=a/b&n=1", "?threadKey=****&n=1"),
        ('{"threadKey":""}', '{"threadKey":""}'),
    ],
)
def test_a_thread_key_is_masked_up_to_its_end(text: str, masked: str) -> None:
    """Over the escapes of JSON, and no further."""
    assert mask_text(text) == masked


def test_the_cost_of_masking_is_linear() -> None:
    """Runs of backslashes, percent signs and names do not multiply."""
    for piece in ("\\", "%2", "\\u00", "threadKey", 'threadKey="', "/"):
        started = time.process_time()
        mask_text(piece * (400_000 // len(piece)), "/+/a")
        assert time.process_time() - started < 3, piece


@pytest.mark.parametrize("secret", ["b" + "\\" * 6 + "a", "\\a" * 20, "/\\" * 20, r"\u005c" * 8])
def test_a_key_with_backslashes_costs_no_more(secret: str) -> None:
    """It is masked in every form, and a long text of backslashes is searched in linear time."""
    nested = json.dumps(json.dumps(f"x{secret}y"))
    assert mask_text(nested, secret) == '"\\"x****y\\""'
    for piece in ("\\", "\\a", "\\u005c", "%5c", "\\/", "\\\\a"):
        started = time.process_time()
        mask_text(piece * (20_000 // len(piece)), f"{secret}z")
        assert time.process_time() - started < 1, piece
