"""The testing kit: the service on your own machine, scripted responses, faults, and virtual time.

::

    with virtual_time():
        async with LocalService() as service, service.session() as session:
            done = await session.run_job("Fix the typos", timeout=900)
            assert service.requests.count("create_job") == 1

With pytest, the fixtures ``mintlify_service``, ``mintlify_session`` and ``mintlify_time`` provide the same
objects without setup. Each module is loaded on its first use. So the installed package does not slow down the
tests of projects that do not use the kit.
"""

from importlib import import_module as _import_module
from typing import Any

_NAMES_BY_MODULE = {
    "assistant_answers": ("AnswerStyle",),
    "customers": ("Customer",),
    "docs_index": ("DocsIndex",),
    "connection_faults": ("Close", "Cut", "Fault", "NoAnswer", "Raw", "Reset"),
    "http_response": ("Answer", "Pause"),
    "local_jobs": ("JobLife", "LocalJob"),
    "local_service": ("LocalService",),
    "local_threads": ("LocalThread", "ThreadStyle"),
    "virtual_clock": ("VirtualTime", "virtual_time"),
    "rate_limits": ("Limits",),
    "recorder": ("Recorder",),
    "request_log": ("RecordedRequest", "RequestLog"),
    "scripted_responses": ("Rule", "Script"),
    "store_cases": ("StoreCases", "WireCases"),
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = [*_MODULES]  # pyright: ignore[reportUnsupportedDunderAll] - checkers read the stub


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise _import_module("..wrong_names", __name__).missing_name(__name__, name)
    value = getattr(_import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value  # the next use does not call this function
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
