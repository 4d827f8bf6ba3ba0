"""The testing kit: the service on your own machine, scripted answers, faults, and a virtual clock.

::

    async with LocalService(clock=VirtualClock()) as service, service.session() as session:
        done = await session.run_job("Fix the typos", timeout=900)
        assert service.requests.count("create_job") == 1

With pytest, the fixtures ``mintlify_service``, ``mintlify_session`` and ``mintlify_clock`` give you the
same without any setup. Everything is loaded when it is first used, so that installing the package does
not slow the tests of projects that do not use the kit.
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

_FILE_OF = {
    "AnswerStyle": "assistant_answers",
    "DEFAULT_DOCS": "docs_search",
    "DocsIndex": "docs_search",
    "Answer": "http_answer",
    "Pause": "http_answer",
    "JobLife": "local_jobs",
    "LocalJob": "local_jobs",
    "ProposedEdit": "local_jobs",
    "LocalService": "local_service",
    "LocalThread": "local_threads",
    "ThreadStyle": "local_threads",
    "NetworkGuard": "network_guard",
    "Keys": "operations",
    "Limits": "rate_limits",
    "RecordedRequest": "request_log",
    "RequestLog": "request_log",
    "Rule": "script",
    "Script": "script",
    "load_script": "script_file",
    "serve": "service_process",
    "VirtualClock": "virtual_clock",
}
"""Where each name is defined; every other name of ``__all__`` is in ``faults``."""


def __getattr__(name: str) -> Any:
    """Load the file that defines *name*."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_FILE_OF.get(name, 'faults')}", __name__)
    value = module if name == "faults" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
