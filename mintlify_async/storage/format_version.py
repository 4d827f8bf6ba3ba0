"""Versions of stored data. Data in an unknown form is refused. The package never guesses the form."""

from __future__ import annotations

from ..errors import StateError, printable


def unknown_version(
    what: str, version: object, readable: object, *, instead: str = "another file"
) -> StateError:
    """Return the error for stored data in a form that this version of the package does not read.

    Args:
        what: The kind of storage, with its file or key.
        version: The version in the data, or None.
        readable: The version that can be read.
        instead: Another way out than the package's other version.
    """
    version_text = "no format version" if version is None else f"format version {printable(str(version), 20)}"
    return StateError(
        f"{what} has {version_text}, and this version of mintlify-async reads {readable}: "
        f"use the mintlify-async that wrote it, or {instead}"
    )
