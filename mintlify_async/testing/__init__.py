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
    from .assistant_answers import AnswerStyle
    from .docs_search import DEFAULT_DOCS, DocsIndex
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
    from .http_answer import Answer, Pause
    from .local_jobs import JobLife, LocalJob, ProposedEdit
    from .local_service import LocalService
    from .local_threads import LocalThread, ThreadStyle
    from .network_guard import NetworkGuard
    from .operations import Keys
    from .rate_limits import Limits
    from .request_log import RecordedRequest, RequestLog
    from .script import Rule, Script
    from .script_file import load_script
    from .service_process import serve
    from .virtual_clock import VirtualClock

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
    "Answer": "http_answer",
    "AnswerStyle": "assistant_answers",
    "BrokenChunking": "faults",
    "BrokenGzip": "faults",
    "Close": "faults",
    "Cut": "faults",
    "DEFAULT_DOCS": "docs_search",
    "DocsIndex": "docs_search",
    "Drip": "faults",
    "Endless": "faults",
    "Fault": "faults",
    "Garbage": "faults",
    "GzipBomb": "faults",
    "HalfHead": "faults",
    "JobLife": "local_jobs",
    "Keys": "operations",
    "Limits": "rate_limits",
    "LocalJob": "local_jobs",
    "LocalService": "local_service",
    "LocalThread": "local_threads",
    "NetworkGuard": "network_guard",
    "NoAnswer": "faults",
    "Pause": "http_answer",
    "ProposedEdit": "local_jobs",
    "Raw": "faults",
    "RawWire": "faults",
    "RecordedRequest": "request_log",
    "Redirect": "faults",
    "RequestLog": "request_log",
    "Reset": "faults",
    "Rule": "script",
    "Script": "script",
    "Stall": "faults",
    "ThreadStyle": "local_threads",
    "TlsAlert": "faults",
    "VirtualClock": "virtual_clock",
    "WrongLength": "faults",
    "load_script": "script_file",
    "serve": "service_process",
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
