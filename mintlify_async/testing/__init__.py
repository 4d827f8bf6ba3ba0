"""The testing kit: the service on your own machine, scripts, faults, and a clock that does not make you wait.

::

    async with LocalService(clock=VirtualClock()) as service, service.session() as session:
        done = await session.run_job("Fix the typos", timeout=900)
        assert service.requests.count("create_job") == 1

The names load when they are first used, so that the pytest plugin costs nothing
in a project that does not use it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import faults
    from .answers import AnswerStyle
    from .desk import Keys
    from .docs_index import DEFAULT_DOCS, DocsIndex
    from .job_board import JobLife, LocalJob, ProposedEdit
    from .limits import Limits
    from .recorder import RecordedRequest, RequestLog
    from .script import Rule, Script
    from .service import LocalService
    from .threads import LocalThread, ThreadStyle
    from .virtual_clock import VirtualClock
    from .wire import Answer, Pause

__all__ = [
    "DEFAULT_DOCS",
    "Answer",
    "AnswerStyle",
    "DocsIndex",
    "JobLife",
    "Keys",
    "Limits",
    "LocalJob",
    "LocalService",
    "LocalThread",
    "Pause",
    "ProposedEdit",
    "RecordedRequest",
    "RequestLog",
    "Rule",
    "Script",
    "ThreadStyle",
    "VirtualClock",
    "faults",
]

_ROOMS = {
    "Answer": "wire",
    "AnswerStyle": "answers",
    "DEFAULT_DOCS": "docs_index",
    "DocsIndex": "docs_index",
    "JobLife": "job_board",
    "Keys": "desk",
    "Limits": "limits",
    "LocalJob": "job_board",
    "LocalService": "service",
    "LocalThread": "threads",
    "Pause": "wire",
    "ProposedEdit": "job_board",
    "RecordedRequest": "recorder",
    "RequestLog": "recorder",
    "Rule": "script",
    "Script": "script",
    "ThreadStyle": "threads",
    "VirtualClock": "virtual_clock",
}


def __getattr__(name: str) -> Any:
    """Load the room that holds *name*."""
    if name == "faults":
        return import_module(".faults", __name__)
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{room}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
