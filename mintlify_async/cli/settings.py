"""What a command needs from its environment and flags: everything missing or wrong is told at once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from ..errors import ConfigurationError
from ..protocol.api_keys import SHARED_VARIABLE, Key, KeyKind, shared_key
from ..protocol.argument_checks import check_identifier
from ..protocol.assumptions import Assumptions
from .error_advice import SettingsError, UsageError, in_command_line_words

if TYPE_CHECKING:
    from ..testing import Recorder


@frozen
class Setting:
    """One setting.

    Args:
        argument: The argument of ``MintlifySession`` that it is.
        variable: Its environment variable.
        used_for: The commands that need it.
        where: What it is, and where to find it.
        key: The kind of key that it must be; None if it is not a key.
        flag: The flag that replaces the variable; keys have none, because other users can see arguments.
    """

    argument: str
    variable: str
    used_for: str
    where: str
    key: KeyKind | None = None
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
        try:
            if self.key is None:
                check_identifier(value, self.argument)
            else:
                Key(self.key, value, Assumptions(), check_kind=True).check()
        except ConfigurationError as error:
            return in_command_line_words(str(error).removeprefix(f"{self.argument} "))
        return None


ADMIN_KEY = Setting(
    argument="admin_key",
    variable="MINTLIFY_ADMIN_API_KEY",
    used_for="jobs",
    where="the admin key (mint_…) from the dashboard's API keys page",
    key="admin",
)
PROJECT = Setting(
    argument="project_id",
    variable="MINTLIFY_PROJECT_ID",
    used_for="jobs",
    where="the project's id from the dashboard's API keys page",
    flag="--project",
)
ASSISTANT_KEY = Setting(
    argument="assistant_key",
    variable="MINTLIFY_ASSISTANT_API_KEY",
    used_for="ask and chat",
    where="the assistant key (mint_dsc_…) from the dashboard's API keys page",
    key="assistant",
)
DOMAIN = Setting(
    argument="domain",
    variable="MINTLIFY_DOMAIN",
    used_for="ask and chat",
    where="the site's name (the last part of the dashboard's address)",
    flag="--domain",
)

FOR_JOBS = (ADMIN_KEY, PROJECT)
FOR_QUESTIONS = (ASSISTANT_KEY, DOMAIN)


def recorder(options: argparse.Namespace) -> Recorder | None:
    """Return what ``--record`` and ``--keep-text`` ask for.

    Raises:
        UsageError: The second without the first.
        OSError: The file cannot be written.
    """
    if options.record:
        from ..testing import Recorder  # imported on use, because it loads the HTTP client

        return Recorder(options.record, keep_text=options.keep_text)
    if options.keep_text:
        raise UsageError("--keep-text needs --record FILE")
    return None


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
