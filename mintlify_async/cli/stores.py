"""Opens the ledger from a flag or a variable. A ledger is a SQLite file or a URL."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import mintlify_async as mintlify

from ..argument_checks import check_path
from ..contrib.store_urls import SCHEMES, open_store
from ..storage import Store
from .error_advice import UsageError

LEDGER_VARIABLE: Final = "MINTLIFY_LEDGER"
"""The variable for the ledger of a command without ``--ledger``.

Other users of the computer can see a flag, but not a variable. So only the URL in this variable may contain a
password.
"""


@asynccontextmanager
async def open_ledger(options: argparse.Namespace, *, create: bool) -> AsyncGenerator[Store]:
    """Open the ledger from ``--ledger`` or the variable, for the length of a block.

    Args:
        options: The arguments of the command.
        create: Whether to make a missing file, with its folder. The empty cache of a CI service has no file.

    Raises:
        UsageError: The ledger does not exist.
        ConfigurationError: The name of the file is invalid.
    """
    name = options.ledger or os.environ.get(LEDGER_VARIABLE, "")
    if not name:
        raise UsageError(
            f"name the ledger with --ledger or {LEDGER_VARIABLE}: a SQLite file, redis://… or postgresql://…"
        )
    if options.ledger and re.search(r"://.*:.*@|[?&]password=", name):
        raise UsageError(
            f"--ledger has a password, which other users can see; set {LEDGER_VARIABLE} to this URL instead"
        )
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", name)
    if scheme and "://" in name and scheme[1].lower() in SCHEMES:
        async with _on_server(name, create=create) as store:
            yield store
    elif scheme and ("://" in name or scheme[1].lower() in SCHEMES):
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise UsageError(f"the ledger {scheme[1]}:… is no SQLite file, and no URL that starts with {known}")
    elif name == "git" or name.startswith("git:"):  # a ledger of 0.2; a new file has none of its keys
        raise UsageError(f"--ledger {name}: git ledgers no longer exist; name a FILE that the next run keeps")
    else:
        yield _file_store(check_path(name, "ledger"), create=create)


@asynccontextmanager
async def _on_server(url: str, *, create: bool) -> AsyncGenerator[Store]:
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(open_store(url, setup=create))
        except ModuleNotFoundError as error:
            raise UsageError(str(error)) from None
        yield store


def _file_store(name: str, *, create: bool) -> mintlify.SQLiteStore:
    store = mintlify.SQLiteStore(name)
    if Path(name).is_dir():
        raise UsageError(f"the ledger {name} is a folder: name a SQLite file in it")
    if Path(name).is_file() and not _may_be_database(name):
        raise UsageError(f"the ledger {name} is no SQLite file: name another file")
    if create:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
    elif not Path(name).is_file():
        raise UsageError(f"there is no ledger {name}")
    return store


def _may_be_database(name: str) -> bool:
    with Path(name).open("rb") as file:
        return file.read(16) in (b"", b"SQLite format 3\0")  # a new SQLite file is empty
