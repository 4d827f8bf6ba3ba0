"""The settings of a command, from flags and environment variables, and the session that uses them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import Any

from attrs import frozen

import mintlify_async as mintlify

from .error_advice import SettingsError, UsageError

SHARED_VARIABLE = "MINTLIFY_API_KEY"
"""The variable that is used for either key if the key's own variable is unset."""


@frozen
class Setting:
    """One setting.

    Args:
        argument: The argument of ``MintlifySession``.
        use: The operations that need the setting, ``jobs`` or ``questions``. Empty if none needs it.
        where: A description of the setting, and the place to find it.
    """

    argument: str
    use: str
    where: str

    @property
    def is_key(self) -> bool:
        """Whether the setting is a secret key."""
        return self.argument.endswith("_key")

    @property
    def is_secret(self) -> bool:
        """Whether the value is hidden. The URL of a proxy may contain a password."""
        return self.is_key or self.argument == "proxy"

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return "MINTLIFY_" + self.argument.replace("_key", "_api_key").upper()

    def source(self, options: argparse.Namespace) -> str:
        """Return the name of the flag if it is given, else of the variable."""
        return self.flag if self.flag_value(options) else self.variable

    @property
    def flag(self) -> str:
        """The flag that replaces the variable. Keys have no flag, because other users can see arguments."""
        return "" if self.is_key else "--" + self.argument.removesuffix("_id").replace("_", "-")

    def flag_value(self, options: argparse.Namespace | None) -> str | None:
        """Return the flag's value. None if the flag is not given, or if the command has no such flag."""
        return getattr(options, self.argument.removesuffix("_id"), None)

    def value(self, options: argparse.Namespace | None = None) -> str:
        """Return the flag's value, or else the variable's. Without both, return an empty text."""
        shared = os.environ.get(SHARED_VARIABLE, "") if self.is_key else ""
        return self.flag_value(options) or os.environ.get(self.variable, "") or shared


ADMIN_KEY = Setting("admin_key", "jobs", "the admin key (mint_…) from the dashboard's API keys page")
PROJECT = Setting("project_id", "jobs", "the project's id from the dashboard's API keys page")
ASSISTANT_KEY = Setting(
    "assistant_key", "questions", "the assistant key (mint_dsc_…) from the dashboard's API keys page"
)
DOMAIN = Setting("domain", "questions", "the site's name (the last part of the dashboard's URL)")
SITE = Setting("site", "", "the site URL, such as https://docs.acme.com, for full links")
BASE_URL = Setting("base_url", "", "another URL of the service")
PROXY = Setting("proxy", "", "the proxy's URL, or environment for that of HTTPS_PROXY")

FOR_JOBS = (ADMIN_KEY, PROJECT)
FOR_QUESTIONS = (ASSISTANT_KEY, DOMAIN)


def open_session(
    options: argparse.Namespace, needed: Iterable[Setting], **arguments: Any
) -> mintlify.MintlifySession:
    """Return a session with the flags of *options*.

    Args:
        options: The arguments of the command.
        needed: The required settings. They are checked before anything is read or sent.
        arguments: Additional arguments of ``MintlifySession``.

    Raises:
        SettingsError: Settings are missing. The message has one line for each setting.
        UsageError: ``--keep-text`` was given without ``--record``.
    """
    if missing := [setting for setting in needed if not setting.value(options)]:
        raise SettingsError("\n".join(map(_missing, missing)))
    for setting in (PROJECT, DOMAIN, SITE, BASE_URL, PROXY):
        if value := setting.flag_value(options):
            arguments[setting.argument] = value
    record, keep_text = getattr(options, "record", None), getattr(options, "keep_text", False)
    if keep_text and not record:
        raise UsageError("--keep-text needs --record FILE")
    session = mintlify.MintlifySession(**arguments)
    if record:
        from ..testing import Recorder  # loaded here, because few commands record

        Recorder(record, keep_text=keep_text).record(session)
    return session


def _missing(setting: Setting) -> str:
    flag = f", or give {setting.flag}" if setting.flag else ""
    return f"{setting.variable} is not set: set it to {setting.where}{flag}"
