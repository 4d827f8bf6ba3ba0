"""Fails a test in which the text of a key was logged, raised, printed or pickled.

Every key that a test makes up looks like one of :class:`Keys`, so that it is found
again. A test that shows a key on purpose says so, with its reason:
``@pytest.mark.shows_secrets("what and why")``.
"""

from __future__ import annotations

import functools
import logging
import pickle
import re
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from mintlify_async import errors

_SECRET = re.compile(r"mint_(?:dsc_|us_)?test_\w{4,}|thread_key_(?:test_)?[A-Za-z0-9]{10,}")
WATCHED_FRAMES = re.compile(
    r"mintlify_async\.(argument_checks|settings|http|protocol|session|runtime|jobs|quota|assistant|storage|conversation)\b"
)
_seen: set[str] = set()


class Keys:
    """The keys of tests. None of them may ever be in an output."""

    admin = "mint_test_a1B2c3D4e5F6g7H8"
    assistant = "mint_dsc_test_z9Y8x7W6v5U4t3S2"
    other_product = "mint_us_test_q1W2e3R4t5Y6u7I8"
    thread = "thread_key_test_k1L2m3N4o5P6q7R8"


def note(where: str, text: str) -> None:
    """Note the place *where* if there is a key in *text*."""
    if _SECRET.search(text):
        _seen.add(where)


def examine(error: BaseException) -> None:
    """Check every text that a log, a report or a worker's queue could show of *error*."""
    name = type(error).__name__
    links = [error]
    for link in links:
        note(f"{name}: repr, str or attributes of {type(link).__name__}", _texts(link))
        for frame, _ in traceback.walk_tb(link.__traceback__):
            # The frames through which keys travel. A test's own frames may contain them.
            if WATCHED_FRAMES.match(frame.f_globals.get("__name__", "")):
                note(f"{name}: locals of {frame.f_code.co_name}", reprs(frame.f_locals))
        links += [one for one in (link.__cause__, link.__context__) if one is not None and one not in links]
    note(f"{name}: traceback", "".join(traceback.format_exception(error)))
    if type(error).__module__.startswith("mintlify_async"):
        note(f"{name}: pickle", pickle.dumps(error).decode("latin-1"))


def _texts(error: BaseException) -> str:
    return f"{error!r} {error} {error.args!r} {vars(error)!r}"


def reprs(values: dict[str, Any]) -> str:
    """Return the text of a frame's variables in a debugger, Sentry or loguru."""
    return " ".join(f"{name}={_repr(value)}" for name, value in values.items())


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # an object that is not made yet, or an int of thousands of digits
        return object.__repr__(value)


class _Listener(logging.Handler):
    """Reads each record like a formatter, and its arguments and extras like a collector."""

    def emit(self, record: logging.LogRecord) -> None:
        note(f"log of {record.name}", f"{record.getMessage()} {vars(record)!r}")
        if record.exc_info and record.exc_info[1] is not None:
            examine(record.exc_info[1])


def _listen_to(cls: type[BaseException]) -> None:
    """Check each error of *cls* and its subclasses when it is made, also if no test catches it."""
    original = cls.__init__

    @functools.wraps(original)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if type(self) is cls:
            note(f"{cls.__name__}: made", _texts(self))

    cls.__init__ = made  # type: ignore[method-assign]
    for child in cls.__subclasses__():
        _listen_to(child)


def _listen_to_pytest() -> None:
    """Check the errors and the output that a test catches on purpose."""
    leave, read = pytest.RaisesExc.__exit__, pytest.CaptureFixture.readouterr

    def raises_exit(self: Any, kind: Any, value: Any, trace: Any) -> Any:
        if value is not None:
            examine(value)
        return leave(self, kind, value, trace)

    def readouterr(self: Any) -> Any:
        result = read(self)
        note("captured output", f"{result.out!r} {result.err!r}")
        return result

    pytest.RaisesExc.__exit__ = raises_exit
    pytest.CaptureFixture.readouterr = readouterr


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "shows_secrets(why): the test shows a key on purpose")


def pytest_collection_finish() -> None:
    """Listen everywhere, now that every error is defined. The root logger lets everything through."""
    root = logging.getLogger()
    root.addHandler(_Listener(level=1))
    root.setLevel(1)
    # markdown_it logs each rule that it tries, and parses only answers.
    logging.getLogger("markdown_it").setLevel(logging.WARNING)
    _listen_to(errors.MintlifyError)
    _listen_to(errors.CauseSummary)
    _listen_to_pytest()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    """If a key was seen in a passed test, turn it into a failed one."""
    report: pytest.TestReport = yield
    if report.passed:  # a failing test's own report may quote its source
        for title, text in report.sections:
            note(title, text)
    if report.when != "teardown":
        return report
    seen = sorted(_seen)
    _seen.clear()
    if report.passed and seen and not item.get_closest_marker("shows_secrets"):
        report.outcome = "failed"
        report.longrepr = "a key was shown in: " + "; ".join(seen)
    return report
