"""Script files: scripted answers as JSON, for ``serve`` and for tests in other languages.

::

    {"answers": [
        {"operation": "ask", "events": [{"type": "start"}, {"type": "error", "errorText": "no"}]},
        {"operation": "create_job", "status": 429, "headers": {"Retry-After": "2"}, "times": 2},
        {"operation": "create_job", "life": {"seconds": 60, "outcome": "failed"}},
        {"operation": "ask", "fault": {"kind": "cut", "at": 200, "how": "rst"}},
        {"operation": "connect", "fault": {"kind": "reset"}}
    ]}

The names are those of the arguments of ``Script``'s methods; ``"times": null`` means until the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from cattrs import BaseValidationError, Converter, transform_error

from ..errors import ConfigurationError, printable
from ..model.json_text import as_object
from .faults import KINDS, Fault
from .local_jobs import JobLife
from .script import Rule, Script

T = TypeVar("T")

OPERATIONS = ("ask", "create_job", "get_job", "send_message", "any", "connect")


def load_script(file: Path | str, script: Script) -> list[Rule]:
    """Queue the answers of a script file.

    ::

        load_script("answers.json", service.script)

    Args:
        file: The JSON file.
        script: The script of a service; nothing is queued if the file has a mistake.

    Returns:
        The rules that were queued.

    Raises:
        ConfigurationError: The file cannot be read or is not a script; the message names the entry and the
            mistake.
    """
    try:
        document: Any = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"script: {str(file)!r} is not readable as JSON: {error}", field="script"
        ) from None
    return queue_answers(document, script)


def queue_answers(document: object, script: Script) -> list[Rule]:
    """Queue the answers of a script file's JSON *document*, all or none; return the rules.

    Raises:
        ConfigurationError: The document is not a script; the message names the entry and the mistake.
    """
    entries: Any = (as_object(document) or {}).get("answers")
    if not isinstance(entries, list):
        raise ConfigurationError('script must be {"answers": [{"operation": …}, …]}', field="script")
    fresh = Script()
    numbered = enumerate(cast("list[object]", entries))
    rules = [_queue_entry(number, as_object(entry), fresh) for number, entry in numbered]
    script.extend(rules)
    return rules


def _queue_entry(number: int, entry: Mapping[str, Any] | None, script: Script) -> Rule:
    operation = str((entry or {}).get("operation"))
    if entry is None or operation not in OPERATIONS:
        raise ConfigurationError(
            f"script: answers[{number}].operation must be one of {', '.join(OPERATIONS)}", field="script"
        )
    method: Callable[..., Rule] = getattr(script, operation)
    arguments = {name: value for name, value in entry.items() if name != "operation"}
    try:
        if "fault" in arguments:
            arguments["fault"] = _read_fault(as_object(arguments["fault"]) or {})
        if "life" in arguments:
            arguments["life"] = _read_life(as_object(arguments["life"]) or {})
        return method(**arguments)
    except (TypeError, ConfigurationError) as error:
        raise ConfigurationError(f"script: answers[{number}]: {error}", field="script") from None


def _read_fault(document: Mapping[str, Any]) -> Fault:
    """Read a fault such as ``{"kind": "cut", "at": 100, "how": "rst"}``."""
    kind = KINDS.get(str(document.get("kind")))
    if kind is None:
        raise ConfigurationError(f"fault.kind is one of {', '.join(KINDS)}", field="fault")
    return _read_strictly({name: document[name] for name in document if name != "kind"}, kind, "fault")


def _read_life(document: Mapping[str, Any]) -> JobLife:
    """Read a job's life. Names in JSON are strings, so the seconds of ``states`` are, too."""
    states = as_object(document.get("states", {})) or {}
    try:
        seconds = {float(moment): status for moment, status in states.items()}
    except ValueError:
        raise ConfigurationError("life.states: its names must be numbers of seconds", field="life") from None
    return _read_strictly({**document, "states": seconds}, JobLife, "life")


def _read_strictly(content: Mapping[str, Any], kind: type[T], where: str) -> T:
    """Return *content* as a *kind*; errors name the field, beginning with *where*."""
    try:
        return _CONVERTER.structure(dict(content), kind)
    except BaseValidationError as error:
        mistakes = transform_error(error, path=where, format_exception=_describe)
    raise ConfigurationError("; ".join(mistakes), field=where)


def _describe(error: BaseException, kind: type | None) -> str:
    # cattrs' own messages quote the value; these say what is wanted.
    if isinstance(error, KeyError):
        return "it is missing"
    if isinstance(error, ConfigurationError | TypeError):
        return str(error)
    return printable(str(error))


# cattrs converts by itself: null becomes "None", and "false" becomes True, which would hide a mistake
# in the file. The hooks below refuse a value of another type instead.


def _exactly(*kinds: type) -> Any:
    names = " or ".join(kind.__name__ for kind in kinds)

    def check(value: object, _: type) -> Any:
        if type(value) in kinds:
            return value
        raise TypeError(f"must be {names}, not {type(value).__name__}")

    return check


def _make_converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, prefer_attrib_converters=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _exactly(float, int))
    return converter


_CONVERTER = _make_converter()
