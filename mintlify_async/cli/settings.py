"""What a command needs from its environment and flags: everything missing or wrong is told at once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence

from attrs import frozen

from ..protocol.api_keys import SHARED_VARIABLE, shared_key
from ..protocol.assumptions import Assumptions
from .error_advice import SettingsError

KINDS = {
    "admin": "an admin key",
    "assistant": "an assistant key",
    "foreign": "a key of another product",
    "unknown": "not a key of this service, judging by its prefix",
}
"""What a key is, by the kinds of ``Assumptions.kind_of_key``."""


@frozen
class Setting:
    """One setting.

    Args:
        variable: Its environment variable.
        used_for: The commands that need it.
        where: What it is, and where to find it.
        key: The kind of key that it must be; None if it is not a key.
        flag: The flag that replaces the variable; keys have none, because other users can see arguments.
    """

    variable: str
    used_for: str
    where: str
    key: str | None = None
    flag: str | None = None

    def found(self, options: argparse.Namespace | None = None) -> tuple[str, str]:
        """Return the flag or variable that counts, and its value, which is empty if nothing is set."""
        given = getattr(options, self.flag.strip("-"), None) if self.flag else None
        if self.flag and given:
            return self.flag, given
        shared, kind, _ = shared_key(Assumptions())
        if self.key == kind and not os.environ.get(self.variable):
            return SHARED_VARIABLE, shared
        return self.variable, os.environ.get(self.variable, "")

    @property
    def hint(self) -> str:
        """What else to say when it is not set."""
        return shared_key(Assumptions())[2] if self.key else ""

    def mistake(self, value: str) -> str | None:
        """Say what is wrong with *value*, as far as its text tells. It shows no part of a key."""
        kind = Assumptions().kind_of_key(value) if self.key else None
        if value != value.strip():
            return "begins or ends with blanks; remove them"
        if value[:1] in "'\"":
            return "has quotes around it; remove them"
        if kind not in (self.key, "unknown"):
            return f"is {KINDS[str(kind)]}; it must be {KINDS[str(self.key)]}"
        if kind is None and "/" in value:
            return f"is an address; give only {self.where}"
        return None


ADMIN_KEY = Setting(
    variable="MINTLIFY_ADMIN_API_KEY",
    used_for="jobs",
    where="the admin key (mint_…) from the dashboard's API keys page",
    key="admin",
)
PROJECT = Setting(
    variable="MINTLIFY_PROJECT_ID",
    used_for="jobs",
    where="the project's id from the dashboard's API keys page",
    flag="--project",
)
ASSISTANT_KEY = Setting(
    variable="MINTLIFY_ASSISTANT_API_KEY",
    used_for="ask and chat",
    where="the assistant key (mint_dsc_…) from the dashboard's API keys page",
    key="assistant",
)
DOMAIN = Setting(
    variable="MINTLIFY_DOMAIN",
    used_for="ask and chat",
    where="the site's name (the last part of the dashboard's address)",
    flag="--domain",
)

FOR_JOBS = (ADMIN_KEY, PROJECT)
FOR_QUESTIONS = (ASSISTANT_KEY, DOMAIN)


def check_settings(options: argparse.Namespace, needed: Sequence[Setting]) -> None:
    """Check the settings that a command needs, before anything is read or sent.

    Raises:
        SettingsError: Some are missing or wrong; it has a line for each.
    """
    if problems := list(_problems(options, needed)):
        raise SettingsError("\n".join(problems))


def _problems(options: argparse.Namespace, needed: Sequence[Setting]) -> Iterator[str]:
    for setting in needed:
        source, value = setting.found(options)
        flag = f", or give {setting.flag}" if setting.flag else ""
        if not value:
            yield f"{setting.variable} is not set: set it to {setting.where}{flag}{setting.hint}"
        elif mistake := setting.mistake(value):
            yield f"{source} {mistake}"
