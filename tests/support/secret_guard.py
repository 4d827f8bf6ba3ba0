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
from dataclasses import dataclass
from typing import Any

import pytest

from mintlify_async import errors

_SECRET = re.compile(r"mint_(?:dsc_|us_)?test_\w{4,}|thread_key_(?:test_)?[A-Za-z0-9]{10,}")
WATCHED_FRAMES = re.compile(
    r"mintlify_async\.(http|protocol|session|options|runtime|jobs|quota|assistant|storage|conversation)\b"
)
_seen: list[tuple[str, str]] = []


@dataclass(frozen=True)
class Keys:
    """The keys of tests. None of them may ever be in an output."""

    admin: str = "mint_test_a1B2c3D4e5F6g7H8"
    assistant: str = "mint_dsc_test_z9Y8x7W6v5U4t3S2"
    other_product: str = "mint_us_test_q1W2e3R4t5Y6u7I8"
    thread: str = "thread_key_test_k1L2m3N4o5P6q7R8"


def note(where: str, text: str) -> None:
    """Store each key found in *text*, with its place *where*."""
    _seen.extend((where, found) for found in _SECRET.findall(text))


def examine(error: BaseException) -> None:
    """Check every text that a log, a report or a worker's queue could show of *error*."""
    name = type(error).__name__
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        link = todo.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        note(f"{name}: repr, str or attributes of {type(link).__name__}", f"{link!r} {link} {link.args!r}")
        note(f"{name}: attributes of {type(link).__name__}", repr(vars(link)))
        for frame, _ in traceback.walk_tb(link.__traceback__):
            # The frames through which keys travel. A test's own frames may contain them.
            if WATCHED_FRAMES.match(frame.f_globals.get("__name__", "")):
                note(f"{name}: locals of {frame.f_code.co_name}", reprs(frame.f_locals))
        todo += [link.__cause__, link.__context__]
    note(f"{name}: traceback", "".join(traceback.format_exception(error)))
    if type(error).__module__.startswith("mintlify_async"):
        note(f"{name}: pickle", pickle.dumps(error).decode("latin-1"))


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


def _tree(cls: type[BaseException]) -> Iterator[type[BaseException]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _tree(child)


def _listen_to_errors(patch: pytest.MonkeyPatch) -> None:
    """Check each of our errors when it is made, caught by a test or not."""
    for cls in {*_tree(errors.MintlifyError), errors.CauseSummary}:
        original = cls.__init__

        @functools.wraps(original)
        def made(self: Any, *args: Any, _cls: type = cls, _original: Any = original, **kwargs: Any) -> None:
            _original(self, *args, **kwargs)
            if type(self) is _cls:
                note(f"{_cls.__name__}: made", f"{self!r} {self} {vars(self)!r}")

        patch.setattr(cls, "__init__", made)


def _listen_to_pytest(patch: pytest.MonkeyPatch) -> None:
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

    patch.setattr(pytest.RaisesExc, "__exit__", raises_exit)
    patch.setattr(pytest.CaptureFixture, "readouterr", readouterr)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "shows_secrets(why): the test shows a key on purpose")


@pytest.fixture(scope="session", autouse=True)
def secret_listeners() -> Iterator[None]:
    """Listen everywhere, for the complete run. The root logger lets everything through."""
    listener = _Listener(level=1)
    root = logging.getLogger()
    level = root.level
    root.addHandler(listener)
    root.setLevel(1)
    logging.getLogger("markdown_it").setLevel(
        logging.WARNING
    )  # a line for each rule it tries, although it gets only answers
    with pytest.MonkeyPatch.context() as patch:
        _listen_to_errors(patch)
        _listen_to_pytest(patch)
        yield
    root.setLevel(level)
    root.removeHandler(listener)


@pytest.fixture(scope="session")
def keys() -> Keys:
    """Keys of the guard."""
    return Keys()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    """If a key was seen in a passed test, turn it into a failed one."""
    report: pytest.TestReport = yield
    if report.passed:  # a failing test's own report may quote its source
        for title, text in report.sections:
            note(title, text)
    if report.when != "teardown":
        return report
    seen, _seen[:] = dict(_seen), []
    if report.passed and seen and not item.get_closest_marker("shows_secrets"):
        report.outcome = "failed"
        report.longrepr = "a key was shown in: " + "; ".join(sorted(seen))
    return report
