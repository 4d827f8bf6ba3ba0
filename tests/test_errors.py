"""Errors: one tree, one useful line, everything kept through pickle and copy."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from mintlify_async import Job, JobRef, Message, Thread, errors
from mintlify_async.errors import APIConnectionError, CauseSummary, MintlifyError, StreamInterruptedError
from tests.support.secret_guard import Keys

HEADERS = {"a": "b"}
JOB = Job(id="job_1", status="failed")
KEPT = {"partial": Message.user("Hello", id="m1"), "thread": Thread("t1"), "events_seen": 3}
EXAMPLES = [
    errors.ConfigurationError("prompt is empty", field="prompt"),
    errors.StateError("closed"),
    errors.StoreConflictError("somebody else"),
    errors.QuotaExceededError("used up", retry_after=3.5, limit="create_job"),
    APIConnectionError("no route", sent="no", operation="ask", reason="dns", sent_at=1.0),
    errors.APITimeoutError("late", phase="connect", seconds=10, sent="no", operation="ask"),
    errors.OutcomeUnknownError("?", operation="create_job", project_id="p", status=502, headers=HEADERS),
    errors.APIStatusError("418", status=418, body="tea", headers=HEADERS, request_id="r", retry_after=1.0),
    errors.RateLimitError("429", status=429, retry_after=86400.0, operation="ask"),
    errors.UnexpectedResponseError("html", excerpt="<html>", status=200, headers=HEADERS),
    StreamInterruptedError("cut", **KEPT),
    errors.StreamDecodeError("bad", excerpt="{", index=4, **KEPT),
    errors.StreamStateError("no part", event_type="text-delta", event_id="0", **KEPT),
    errors.AssistantError("sorry", error_text="sorry", **KEPT),
    errors.JobFailedError(JOB),
    errors.JobTimeoutError("late", ref=JobRef("p", "job_1"), job=JOB, waited=12.34),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_everything_an_error_carries_survives(error):
    """Its class, its text of one line, each attribute, notes and the scrubbed cause."""
    assert 0 < len(str(error)) < 1000
    assert "\n" not in str(error)
    error.__cause__ = CauseSummary("aiohttp.ClientOSError: reset")
    error.add_note("seen by a test")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
        assert again.args == error.args
        assert str(again.__cause__) == "aiohttp.ClientOSError: reset"


CLASSES = [
    cls
    for name in sorted({*errors.__all__} - {"JobFailedError", "JobTimeoutError"})
    if (cls := getattr(errors, name)).__init__
    is not Exception.__init__  # the others have no argument of theirs
]
REQUIRED = {"phase": "idle", "seconds": 0.5, "status": 500}
UNKNOWN = {"sent": "maybe", "reason": "lost", "events_seen": 0}
EMPTY = ("text", "excerpt", "error_text", "event_type", "event_id")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_has_what_it_was_made_with(cls):
    """Each argument is an attribute. Without it, the attribute says that nothing is known."""
    arguments = {**inspect.signature(cls).parameters}
    if "kept" in arguments:
        arguments.update(inspect.signature(errors.StreamError).parameters)
    names = [name for name, each in arguments.items() if each.kind is each.KEYWORD_ONLY]
    given = {name: f"the test's {name}" for name in names}
    assert vars(cls("x", **given)).items() >= given.items()
    needed = REQUIRED | ({"operation": "ask"} if cls is errors.OutcomeUnknownError else {})
    bare = cls("x", **{name: value for name, value in needed.items() if name in names})
    unknown = UNKNOWN | dict.fromkeys(EMPTY, "")
    if issubclass(cls, errors.APITimeoutError):
        assert bare.reason == "timeout"
    elif cls is errors.OutcomeUnknownError:
        unknown |= {"reason": "connection_lost"}
    else:
        unknown |= {"headers": {}, "body": ""}
    for name in set(names) - needed.keys():
        assert getattr(bare, name) == unknown.get(name), name


def test_a_stream_error_of_a_message_alone_says_that_nothing_came():
    """So users can raise one in their own tests."""
    error = StreamInterruptedError("cut")
    assert (error.partial, error.text, error.thread, error.events_seen) == (None, "", None, 0)


def test_a_foreign_cause_is_not_carried_along():
    """Only a summary of it is: the object itself may hold a key, or not be picklable."""
    error = APIConnectionError("lost")
    error.__cause__ = OSError("private")
    assert pickle.loads(pickle.dumps(error)).__cause__ is None


def test_errors_are_the_builtin_that_users_catch():
    """``except TimeoutError`` works as in asyncio."""
    assert issubclass(errors.ConfigurationError, ValueError)
    assert issubclass(errors.StateError, RuntimeError)
    assert issubclass(errors.APITimeoutError, TimeoutError)
    assert issubclass(errors.JobTimeoutError, TimeoutError)


def test_the_error_of_the_last_poll_survives():
    """It travels with the error of the wait, as an attribute and as the cause."""
    last = errors.ServerError("down", status=503)
    error = errors.JobTimeoutError("late", ref=JobRef("p", "job_1"), job=None, waited=12.34, error=last)
    error.__cause__ = last
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert str(again) == str(error) == "late"
        assert type(again.error) is type(again.__cause__) is errors.ServerError
        assert vars(again.error) == vars(last)


def test_every_error_is_in_the_tree_and_exported():
    """The package raises nothing of its own outside MintlifyError."""
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass)]
    ours = [c for c in classes if c.__module__ == "mintlify_async.errors" and issubclass(c, BaseException)]
    assert all(issubclass(c, MintlifyError) for c in ours if c is not CauseSummary)
    assert {c.__name__ for c in ours} - {"CauseSummary"} <= set(errors.__all__)


def test_a_thread_key_does_not_travel_in_a_pickle():
    """A pickled error is a log: the thread's id is enough to find it."""
    key = Keys().thread
    error = StreamInterruptedError("cut", thread=Thread("t1", key))
    assert key.encode() not in pickle.dumps(error)
    assert copy.copy(error).thread.key == key


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb", "a\\r\\nb"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("ü", "ü"),
        ("\ud800", "\\ud800"),
        ("x" * 300, "x" * 200 + "…"),
    ],
)
def test_server_text_is_made_printable_and_short(text, shown):
    """No forged log lines, no terminal commands."""
    assert errors.printable(text) == shown
