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
    from .faults import (
        BrokenChunking,
        BrokenGzip,
        Close,
        Cut,
        Drip,
        Endless,
        Fault,
        Garbage,
        GzipBomb,
        HalfHead,
        NoAnswer,
        Raw,
        RawWire,
        Redirect,
        Reset,
        Stall,
        TlsAlert,
        WrongLength,
    )
    from .guard import NetworkGuard
    from .job_board import JobLife, LocalJob, ProposedEdit
    from .limits import Limits
    from .process import serve
    from .recorder import RecordedRequest, RequestLog
    from .script import Rule, Script
    from .script_file import load_script
    from .service import LocalService
    from .threads import LocalThread, ThreadStyle
    from .virtual_clock import VirtualClock
    from .wire import Answer, Pause

__all__ = [
    "DEFAULT_DOCS",
    "Answer",
    "AnswerStyle",
    "BrokenChunking",
    "BrokenGzip",
    "Close",
    "Cut",
    "DocsIndex",
    "Drip",
    "Endless",
    "Fault",
    "Garbage",
    "GzipBomb",
    "HalfHead",
    "JobLife",
    "Keys",
    "Limits",
    "LocalJob",
    "LocalService",
    "LocalThread",
    "NetworkGuard",
    "NoAnswer",
    "Pause",
    "ProposedEdit",
    "Raw",
    "RawWire",
    "RecordedRequest",
    "Redirect",
    "RequestLog",
    "Reset",
    "Rule",
    "Script",
    "Stall",
    "ThreadStyle",
    "TlsAlert",
    "VirtualClock",
    "WrongLength",
    "faults",
    "load_script",
    "serve",
]

_ROOMS = {
    "Answer": "wire",
    "AnswerStyle": "answers",
    "BrokenChunking": "faults",
    "BrokenGzip": "faults",
    "Close": "faults",
    "Cut": "faults",
    "DEFAULT_DOCS": "docs_index",
    "DocsIndex": "docs_index",
    "Drip": "faults",
    "Endless": "faults",
    "Fault": "faults",
    "Garbage": "faults",
    "GzipBomb": "faults",
    "HalfHead": "faults",
    "JobLife": "job_board",
    "Keys": "desk",
    "Limits": "limits",
    "LocalJob": "job_board",
    "LocalService": "service",
    "LocalThread": "threads",
    "NetworkGuard": "guard",
    "NoAnswer": "faults",
    "Pause": "wire",
    "ProposedEdit": "job_board",
    "Raw": "faults",
    "RawWire": "faults",
    "RecordedRequest": "recorder",
    "Redirect": "faults",
    "RequestLog": "recorder",
    "Reset": "faults",
    "Rule": "script",
    "Script": "script",
    "Stall": "faults",
    "ThreadStyle": "threads",
    "TlsAlert": "faults",
    "VirtualClock": "virtual_clock",
    "WrongLength": "faults",
    "load_script": "script_file",
    "serve": "process",
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
