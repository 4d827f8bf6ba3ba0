"""The testing kit: the service on your own machine, scripted answers, faults, and a virtual clock.

::

    async with LocalService(clock=VirtualClock()) as service, service.session() as session:
        done = await session.run_job("Fix the typos", timeout=900)
        assert service.requests.count("create_job") == 1

With pytest, the fixtures ``mintlify_service``, ``mintlify_session`` and ``mintlify_clock`` give you the
same without any setup. Everything is loaded when it is first used, so that installing the package does
not slow the tests of projects that do not use the kit.
"""

from importlib import import_module as _import_module
from typing import Any

_MODULES = {
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

__all__ = [*_MODULES, "faults"]  # pyright: ignore[reportUnsupportedDunderAll] - checkers read the stub


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _import_module(f".{_MODULES.get(name, name)}", __name__)
    found = module if name == "faults" else getattr(module, name)
    globals()[name] = found  # the next use does not come here
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
