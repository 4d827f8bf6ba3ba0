"""A thread and its key: stored on purpose, shown nowhere."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from rich.pretty import pretty_repr

from mintlify_async.errors import ConfigurationError
from mintlify_async.model.thread import Thread


def test_a_thread_hides_its_key() -> None:
    """The key is in to_dict and to_json alone; a pickle does without it, a copy has it."""
    thread = Thread("t", "secret")
    assert "secret" not in repr(thread) + str(thread) + repr([thread])
    assert "secret" not in pretty_repr(thread)  # rich and others read the fields of attrs classes
    assert thread.to_dict() == {"threadId": "t", "threadKey": "secret"}
    assert Thread.from_json(thread.to_json()) == thread == Thread.from_dict(thread.to_dict())
    assert pickle.loads(pickle.dumps(thread)) == Thread("t")
    assert b"secret" not in pickle.dumps(thread)
    assert copy.copy(thread).key == copy.deepcopy([thread])[0].key == "secret"
    assert len({thread, Thread("t", "secret"), Thread("t")}) == 2
    assert Thread("t").to_dict() == {"threadId": "t"}
    with pytest.raises(AttributeError):
        thread.key = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    "stored", [None, [], {}, {"threadId": ""}, {"threadId": 5}, {"threadId": "t", "threadKey": 5}]
)
def test_what_is_no_thread(stored: object) -> None:
    """A stored thread without an id is refused, as a dict and as JSON."""
    with pytest.raises(ConfigurationError, match="thread"):
        Thread.from_dict(stored)
    with pytest.raises(ConfigurationError, match="thread"):
        Thread.from_json(json.dumps(stored))
    with pytest.raises(ConfigurationError):
        Thread.from_json("{")
