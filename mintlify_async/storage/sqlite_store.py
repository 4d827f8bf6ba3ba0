"""A store in a SQLite file."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from ..argument_checks import check_path
from ..errors import ConfigurationError
from ..runtime import clock
from .sql_store import SQLStore

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")

IN_MEMORY: Final = "; in memory, use MemoryStore()"


class SQLiteStore(SQLStore):
    """A store in a SQLite file, shared by all threads, event loops and processes of one computer.

    A step is on the disk when it returns. It raises :class:`~mintlify_async.errors.StateError` if the file
    cannot be used, if another process locks it for 10 s, or if it has another format version. The
    store uses this computer's clock. While the clock is ahead, records with *keep* disappear and slots become
    free too early. The records reappear when the clock is corrected, because expired records are deleted only
    after 30 days. After the correction, a slot, block or claim that was written while the clock was ahead has
    a date in the future. The first step that reads it sets its date to the present.

    Do not fork a process while a step runs, because the file then stays locked for the child. Start
    worker processes with the start method ``spawn``, or before the first call.

    Only the owner of a new file can read it, because conversations contain the keys of threads.

    Args:
        path: The file. If it does not exist, it is created. Its folder must exist. A relative path is made
            absolute immediately, and a ``~`` at its start is expanded. Do not use a network drive, because
            its locks are not reliable.
        keep: Seconds for which finished records are kept. None keeps them without limit.

    Raises:
        ConfigurationError: *path* is no path, starts with ``$`` or with an unknown home folder, or names a
            database in memory. Or *keep* is not a finite number of 0 or more.
    """

    _delete_after: ClassVar[float] = 30 * 86_400.0  # a clock that was ahead must not delete new records

    def __init__(self, path: str | PathLike[str], *, keep: float | None = None) -> None:
        """Store the path. The file is not opened yet."""
        name = check_path(path, "path", hint=IN_MEMORY)
        if name == ":memory:" or name.startswith("file:"):
            raise ConfigurationError(f"path must name a file{IN_MEMORY}", field="path")
        from .sqlite_file import SQLiteFile  # loaded here, because few programs need it

        super().__init__(keep=keep)
        self._file = SQLiteFile.at(str(Path(name).absolute()))

    def __repr__(self) -> str:
        """Show the path."""
        return f"SQLiteStore({self._file.path!r})"

    async def _run(self, step: Callable[[Connection, float], T]) -> T:
        return await self._file.run(lambda db: step(db, clock.now()))
