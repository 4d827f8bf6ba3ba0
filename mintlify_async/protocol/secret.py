"""API keys and the keys of threads are strings that must not be shown."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class Secret(str):
    """A string that ``repr`` does not show, because containers and the locals of a traceback print that.

    What is made from it is a plain string, ``"Bearer " + secret`` too: make it a Secret again.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "'****'"


def hidden(value: T) -> T | Secret:
    """Return *value* as a :class:`Secret` when it is a string."""
    return Secret(value) if isinstance(value, str) else value
