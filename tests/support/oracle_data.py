"""The oracle's data, and the only place where this package differs from it on purpose."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ORACLE = Path(__file__).parents[1] / "oracle"

LENIENT = {
    "raw-finish-reason-null": "null in an optional field counts as absent",
    "raw-finish-reason-unknown": "a finish reason that is not listed is kept",
    "raw-null-optionals": "null in an optional field counts as absent",
    "raw-start-message-id-null": "null in an optional field counts as absent",
    "raw-unknown-type": "a type that is not known passes as UnknownEvent",
    "raw-unknown-type-first": "a type that is not known passes as UnknownEvent",
    "raw-empty-data-event": "an event whose data is empty is a heartbeat",
    "raw-json-proto-key": "the key __proto__ is harmless in Python",
}
"""Scenarios in which JavaScript refuses an event and this package, by design, does not."""

READER_WINS = {
    "data-before-start": "a start with another id resets the message: what came before it is gone",
    "start-twice-different-id": "a second start with another id resets the message",
    "resume-replay-from-start": "there is no resuming here: a start with the same id goes on",
}
"""Scenarios in which useChat and readUIMessageStream end with other messages: ours follows the latter."""

BIG_INTEGERS = {
    "tool-partial-json-big-numbers": "integers over 2**53 stay exact in Python, JavaScript rounds them",
}
"""Scenarios in which numbers are compared as doubles."""

NEVER_AVAILABLE = {
    "tool-partial-json-big-numbers",
    "tool-partial-json-garbage",
    "tool-partial-json-numbers-literals",
    "tool-partial-json-strings",
}
"""Scenarios whose input never becomes available: the last message has what JavaScript parsed of its text."""

_INPUT_ERROR = "an input that fits no schema is input in version 7, rawInput before"
_CLOSED = "finish-step closes the open parts in versions 5 and 6"

OLDER_QUIRKS: dict[str, dict[str, str]] = {
    "v7": {},
    "v6": {"delta-after-finish-step": _CLOSED, "tool-input-error-static": _INPUT_ERROR},
    "v5": {
        "delta-after-finish-step": _CLOSED,
        "raw-v6-only-types": "version 5 does not know the type",
        "sources-and-files": "version 5 drops a file's providerMetadata",
        "tool-input-encoding-text-complete": "version 5 does not know inputEncoding",
        "tool-input-error-fresh-dynamic": "version 5 knows no metadata of results",
        "tool-input-error-static": _INPUT_ERROR,
        "tool-output-dynamic-flag-missing": "version 5 finds a dynamic call by the flag alone",
        "tool-output-scalar-and-null": "a missing output is accepted",
        "tool-title-and-metadata": "version 5 does not copy title and toolMetadata",
        "tool-unknown-name": _INPUT_ERROR,
    },
}
"""By version: scenarios that it folds otherwise than version 7, which is followed here."""


class Scenario(NamedTuple):
    """One body, and its messages in one version of the AI SDK."""

    name: str
    version: str
    body: bytes
    chunks: list[dict[str, Any]]
    message: dict[str, Any]
    snapshots: list[dict[str, Any]] | None
    initial: dict[str, Any] | None

    @property
    def id(self) -> str:
        return f"{self.name}-{self.version}"


@cache
def scenarios(version: str) -> tuple[Scenario, ...]:
    """Return every scenario of *version*."""
    files = {path.stem: path.read_text("utf-8") for path in sorted((ORACLE / "scenarios").glob("*.json"))}
    every = {name: json.loads(text) for name, text in files.items()}
    return tuple(_scenario(name, version, data) for name, data in every.items() if version in data)


def _scenario(name: str, version: str, data: dict[str, Any]) -> Scenario:
    def get(key: str) -> Any:
        content, of = data[version].get(key), version
        while isinstance(content, dict) and set(content) == {"same_as"}:
            of = content["same_as"]
            content = data[of].get(key)
        return content

    body, final = get("body"), get("reader")["final"]
    last = (get("initial") or [None])[-1]
    message = final if name in READER_WINS and isinstance(final, dict) else get("message")
    if message["id"] == "client-gen-1":
        message = {**message, "id": ""}  # the client makes one up, because none was sent
    return Scenario(
        name=name,
        version=version,
        body=body["text"].encode() if "text" in body else base64.b64decode(body["base64"]),
        chunks=get("chunks"),
        message=message,
        snapshots=get("snapshots"),
        initial=last if last and last["role"] == "assistant" else None,
    )


def framing() -> list[tuple[str, bytes, list[str]]]:
    """Return name, body and the data of each event, for every framing case."""
    cases = []
    for path in sorted((ORACLE / "framing").glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        expected = case.get("wpt_expected_data")
        if expected is None:
            expected = [event["data"] for event in case["eventsource-parser@4.1.3"]["events"]]
        if path.stem == "bom-twice":
            expected = ["b"]  # the parser strips two byte order marks, the standard says one
        cases.append((path.stem, base64.b64decode(case["body_base64"]), expected))
    return cases


def without_streamed_inputs(ours: dict[str, Any], theirs: dict[str, Any], *, last: bool) -> dict[str, Any]:
    """Return their message without the inputs that JavaScript parses while they stream.

    Args:
        ours: Our message.
        theirs: JavaScript's message after the same event.
        last: Whether it is the last message. Between two events, only inputs that still stream are left out.
    """
    parts = list(theirs["parts"])
    for at, (our, their) in enumerate(zip(ours["parts"], parts, strict=False)):
        if "input" not in our and (last or our.get("state") == "input-streaming"):
            parts[at] = {name: content for name, content in their.items() if name != "input"}
    return {**theirs, "parts": parts}


def joined(content: Any, *, doubles: bool = False, halves: str = "surrogatepass") -> Any:
    """Return *content* with halves of characters joined, as in JSON, and with numbers as doubles.

    *halves* says how Python decodes a half that stands alone.
    """
    if isinstance(content, str):
        return content.encode("utf-16-le", "surrogatepass").decode("utf-16-le", halves)
    if isinstance(content, list):
        return [joined(item, doubles=doubles, halves=halves) for item in content]
    if isinstance(content, dict):
        return {
            joined(k, halves=halves): joined(v, doubles=doubles, halves=halves) for k, v in content.items()
        }
    if doubles and isinstance(content, int) and not isinstance(content, bool):
        return float(content)
    return content
