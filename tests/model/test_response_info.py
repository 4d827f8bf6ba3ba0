"""Response headers: found in any case, masked where they hold a secret."""

from __future__ import annotations

import json
import pickle

import pytest
from multidict import CIMultiDict

from mintlify_async.model.response_info import ResponseInfo
from mintlify_async.protocol.responses import response_info
from mintlify_async.settings.paths_and_headers import Assumptions


def test_headers_are_masked_and_read_only() -> None:
    """Headers are found in any case; secrets among them are masked where they are kept."""
    info = ResponseInfo(status=200, headers={"X-Thread-Key": "secret", "Set-Cookie": "secret", "X-A": "1"})
    assert info.headers["X-a"] == "1"
    assert "secret" not in repr(info) + repr(dict(info.headers)) + json.dumps(info.to_wire())
    assert len(info.headers) == 3
    assert pickle.loads(pickle.dumps(info)) == info
    with pytest.raises(TypeError):
        info.headers["x-a"] = "2"  # type: ignore[index]


def test_of_a_repeated_header_the_first_is_kept() -> None:
    """Of a repeated header the first is kept in any case of letters; the thread's key is masked."""
    given = CIMultiDict([("X-A", "1"), ("x-a", "2"), ("X-Key", "secret")])
    info = response_info(Assumptions(thread_key_header="x-key"), 200, given)
    assert dict(info.headers) == {"x-a": "1", "x-key": "****"}
