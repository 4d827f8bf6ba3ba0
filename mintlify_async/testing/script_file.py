"""A JSON file in; the scripted answers that it describes, queued in a service, out.

::

    {"answers": [
        {"operation": "ask", "events": [{"type": "start"}, {"type": "error", "errorText": "no"}]},
        {"operation": "create_job", "status": 429, "headers": {"Retry-After": "2"}, "times": 2},
        {"operation": "create_job", "life": {"seconds": 60, "outcome": "failed"}},
        {"operation": "ask", "fault": {"kind": "cut", "at": 200, "how": "rst"}},
        {"operation": "connect", "fault": {"kind": "reset"}}
    ]}

The names are the arguments of ``Script``'s methods; ``"times": null`` means: until the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from .faults import KINDS, Fault
from .local_jobs import JobLife
from .request_checks import as_list, as_object
from .script import Rule, Script
from .strict import read_strictly

__all__ = ["load_script", "queue_answers"]


def load_script(file: Path | str, script: Script) -> list[Rule]:
    """Queue what *file* describes in *script*; return the rules.

    Raises:
        ConfigurationError: The file is no such script; the message names the entry and the mistake.
    """
    try:
        document: Any = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"script {str(file)!r} is not readable as JSON: {error}", field="script"
        ) from None
    return queue_answers(document, script)


def queue_answers(document: object, script: Script) -> list[Rule]:
    """Queue what a file's *document* describes in *script*, all of it or nothing; return the rules.

    Raises:
        ConfigurationError: The document is no such script; the message names the entry and the mistake.
    """
    entries = as_list((as_object(document) or {}).get("answers"))
    if entries is None:
        raise ConfigurationError('script: it must be {"answers": [{"operation": …}, …]}', field="script")
    fresh = Script()
    rules = [_queue(number, as_object(entry), fresh) for number, entry in enumerate(entries)]
    script.extend(rules)
    return rules


def _queue(number: int, entry: Mapping[str, Any] | None, script: Script) -> Rule:
    """Queue one entry."""
    methods: Mapping[str, Callable[..., Rule]] = {
        "ask": script.ask,
        "create_job": script.create_job,
        "get_job": script.get_job,
        "send_message": script.send_message,
        "any": script.any,
        "connect": script.connect,
    }
    method = methods.get(str((entry or {}).get("operation")))
    if entry is None or method is None:
        raise ConfigurationError(
            f"script: answers[{number}].operation is one of {', '.join(methods)}", field="script"
        )
    try:
        return method(**_arguments(entry))
    except (TypeError, ConfigurationError) as error:
        raise ConfigurationError(f"script: answers[{number}]: {error}", field="script") from None


def _arguments(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that an entry stands for."""
    arguments = {name: value for name, value in entry.items() if name != "operation"}
    if "fault" in arguments:
        arguments["fault"] = _fault(as_object(arguments["fault"]) or {})
    if "life" in arguments:
        arguments["life"] = _life(as_object(arguments["life"]) or {})
    return arguments


def _fault(document: Mapping[str, Any]) -> Fault:
    """Return the fault that a file describes: ``{"kind": "cut", "at": 100, "how": "rst"}``."""
    kind = KINDS.get(str(document.get("kind")))
    if kind is None:
        raise ConfigurationError(f"fault.kind is one of {', '.join(KINDS)}", field="fault")
    return read_strictly({name: document[name] for name in document if name != "kind"}, kind, "fault")


def _life(document: Mapping[str, Any]) -> JobLife:
    """Return the life that a file describes; JSON's names are strings, so the moments of ``states`` are."""
    states = as_object(document.get("states", {})) or {}
    try:
        moments = {float(moment): status for moment, status in states.items()}
    except ValueError:
        raise ConfigurationError("life.states: its names are seconds", field="life") from None
    return read_strictly({**document, "states": moments}, JobLife, "life")
