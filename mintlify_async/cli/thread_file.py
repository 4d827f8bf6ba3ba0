"""Thread files: ``--save`` writes one, ``--thread`` reads it. It has the thread's key, so it is private."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import mintlify_async as mintlify

from ..errors import ConfigurationError
from .error_advice import UsageError


def load_thread(name: str) -> mintlify.Thread:
    """Read a thread file.

    Raises:
        UsageError: It does not exist, cannot be read, or holds something else.
    """
    path = Path(name)
    if not path.exists():
        raise UsageError(f"there is no file {name}: ask a first question with --save {name}")
    try:
        return mintlify.Thread.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--thread {name} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, ConfigurationError):
        raise UsageError(f"--thread {name} is not a file that --save wrote") from None


@contextmanager
def thread_saved(name: str) -> Generator[Callable[[mintlify.Thread], None]]:
    """Open the file of ``--save`` before the question is paid for, since it may not be writable.

    What the file holds stays until a thread is written; a file that was made for nothing is removed.

    Yields:
        A function that writes a thread.

    Raises:
        UsageError: The file cannot be written, or made private.
    """
    path = Path(name)
    made = not path.exists()
    if not made and not path.is_file():
        raise UsageError(f"--save {name} is not a file")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(f"--save {name} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:

        def write(thread: mintlify.Thread) -> None:
            nonlocal made
            file.write(thread.to_json() + "\n")
            file.truncate()
            made = False

        try:
            os.fchmod(descriptor, 0o600)  # a file that existed may be readable by others
        except PermissionError:
            raise UsageError(f"--save {name} cannot be made private: it belongs to another user") from None
        try:
            yield write
        finally:
            if made:
                path.unlink(missing_ok=True)
