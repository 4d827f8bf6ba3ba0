"""Versions of what is stored: data in an unknown form is refused, never guessed at."""

from __future__ import annotations

from ..errors import StateError, printable


def unknown_version(what: str, found: object, known: object, *, instead: str = "another file") -> StateError:
    """Return the error for stored data in a form that this version of the package does not read.

    Args:
        what: What has the data, with its file or key.
        found: The version that the data names; None when it names none.
        known: The version that can be read.
        instead: Another way out than the package's other version.
    """
    named = "no format version" if found is None else f"format version {printable(str(found), 20)}"
    return StateError(
        f"{what} has {named}, and this version of mintlify-async reads {known}: "
        f"use the mintlify-async that wrote it, or {instead}"
    )
