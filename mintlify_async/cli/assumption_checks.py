"""What a run against the service shows of each assumption: held, broken, or not seen. No I/O.

The rows are those of the documentation's page "What we assume", in its order.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

from attrs import asdict, define, field

from ..errors import StreamDecodeError, StreamInterruptedError, StreamStateError, UnexpectedResponseError
from ..events import Event, UnknownEvent
from ..protocol.assumptions import Assumptions
from ..testing.recorder import Exchange

Status: TypeAlias = Literal["held", "broken", "not seen"]

NAMES = (
    *("base URL", "get-job path", "key prefixes", "thread headers"),
    *("the assistant's key stays on a server", "`fp` defaults to `anonymous`", "request id", "reset headers"),
    *("a 429 without `Retry-After`", "a domain stands for an organization", "a month is at most 31 days"),
    *("only `id` and `status` of a job are certain", "a date without a zone is UTC"),
    *("`currentPath` counts code points", "framing", "part shapes", "the v1 endpoint"),
    *("a stream is complete", "a follow-up may read the first turn's end", "a job may answer 404"),
)

NO_SETTING = "no setting mends this: record it with --record FILE and report it"
OLD_STREAM = "AI SDK 4"
"""What the error for an answer of the v1 endpoint says."""
HOURS_APART = 0.4
"""From this many hours between a job's creation and now, its date is not UTC; zones differ by half hours."""

_THREAD_ID = re.compile(r".*(thread|conversation|chat).*id")
_THREAD_KEY = re.compile(r".*(thread|conversation|chat).*(key|token|secret)")
_REQUEST_ID = re.compile(r".*(request|trace|correlation)[-_]?id")
_RESET = re.compile(r".*(reset|retry).*")
_KNOWN_RESETS = {"retry-after", "retry-after-ms", "ratelimit-reset", "x-ratelimit-reset"}


@define
class Row:
    """One assumption, and what is known of it.

    Args:
        name: Which one it is.
        status: Whether it held.
        seen: What was seen, or why nothing was.
        mend: The settings line that mends it; None if it is not broken.
    """

    name: str
    status: Status = "not seen"
    seen: str = "one run cannot show it"
    mend: str | None = None


@define
class Report:
    """What a run found.

    Args:
        rows: The assumptions.
        facts: What else was seen: of the stream, of refusals.
        trouble: What failed and says nothing about an assumption.
    """

    rows: dict[str, Row] = field(factory=lambda: {name: Row(name) for name in NAMES})
    facts: dict[str, Any] = field(factory=dict[str, Any])
    trouble: list[str] = field(factory=list[str])

    def held(self, name: str, seen: str) -> None:
        """Note that an assumption held, unless it was seen broken."""
        if self.rows[name].status != "broken":
            self.rows[name] = Row(name, "held", seen)

    def broken(self, name: str, seen: str, mend: str = NO_SETTING) -> None:
        """Note that an assumption does not hold, and what mends it."""
        self.rows[name] = Row(name, "broken", seen, mend)

    def unseen(self, name: str, why: str) -> None:
        """Note why nothing was seen, unless something was."""
        if self.rows[name].status == "not seen":
            self.rows[name] = Row(name, "not seen", why)

    @property
    def fine(self) -> bool:
        """Whether nothing is broken and nothing failed."""
        return not self.trouble and all(row.status != "broken" for row in self.rows.values())

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "assumptions": [asdict(row) for row in self.rows.values()],
            "facts": self.facts,
            "trouble": self.trouble,
        }


def other_thread_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that seem to name the thread in other words, by the field of ``Assumptions``."""
    assumed = Assumptions()
    found: dict[str, str] = {}
    for name in headers:
        if name in (assumed.thread_id_header, assumed.thread_key_header):
            continue
        if _THREAD_KEY.fullmatch(name):
            found["thread_key_header"] = name
        elif _THREAD_ID.fullmatch(name):
            found["thread_id_header"] = name
    return found


def check_headers(report: Report, exchanges: Sequence[Exchange]) -> None:
    """Judge what the answers' headers show: the request's id, and the resets of refusals."""
    _check_request_id(report, {name for exchange in exchanges for name in exchange.headers})
    refused = [exchange for exchange in exchanges if exchange.status == 429]
    for exchange in refused:
        _check_refusal(report, exchange)
    if not refused:
        report.unseen("reset headers", "no request was refused with 429")
        report.unseen("a 429 without `Retry-After`", "no request was refused with 429")


def _check_request_id(report: Report, names: set[str]) -> None:
    if known := names.intersection(Assumptions().request_id_headers):
        report.held("request id", ", ".join(sorted(known)))
    elif others := sorted(name for name in names if _REQUEST_ID.fullmatch(name)):
        line = f"assumptions=Assumptions(request_id_headers=({others[0]!r},))"
        report.broken("request id", f"it is in {others[0]}", line)
    else:
        report.unseen("request id", "no header looks like a request's id")


def _check_refusal(report: Report, exchange: Exchange) -> None:
    named = {name: value for name, value in exchange.headers.items() if _RESET.fullmatch(name)}
    if known := sorted(_KNOWN_RESETS & named.keys()):
        report.held("reset headers", ", ".join(known))
    elif named:
        name, value = min(named.items())
        seconds = value if re.fullmatch(r"\d{1,3}(\.\d+)?", value) else "60"
        line = f"retry=RetryPolicy(pause_after_429={seconds})"
        report.broken("reset headers", f"a 429 says when in {name}: {value[:40]}", line)


def check_prefixes(report: Report, accepted: Mapping[str, str]) -> None:
    """Judge the keys that the service accepted, by the kind that each was used as."""
    wrong = [kind for kind, key in accepted.items() if Assumptions().kind_of_key(key) != kind]
    if wrong:
        seen = f"the service takes the {' and the '.join(wrong)} key, which begins otherwise"
        report.broken("key prefixes", seen, "check_key_kind=False")
    elif accepted:
        report.held("key prefixes", f"the {' and the '.join(accepted)} key begin as assumed and are taken")


def check_stream(report: Report, events: Sequence[Event], error: Exception | None) -> None:
    """Judge an answer by its events and by the error that ended it."""
    if error is not None:
        _check_error(report, error)
    if not events:
        return
    report.held("framing", f"{len(events)} server-sent events")
    report.held("part shapes", "every event of a known type has its fields, and its part was begun")
    report.held("the v1 endpoint", "the v2 endpoint sends the stream of AI SDK 5 and later")
    if error is None:
        report.held("a stream is complete", f"it ended with {events[-1].to_wire()['type']}")


def _check_error(report: Report, error: Exception) -> None:
    match error:
        case UnexpectedResponseError() if OLD_STREAM in str(error):
            pass  # the row of the v1 endpoint, which is judged where the other path is tried
        case UnexpectedResponseError():
            report.broken("framing", str(error))
        case StreamDecodeError() if "not JSON" in str(error):
            report.broken("framing", str(error))
        case StreamDecodeError() | StreamStateError():
            report.broken("part shapes", str(error))
        case StreamInterruptedError(__cause__=None):
            line = "except StreamInterruptedError as error: error.text"
            report.broken("a stream is complete", str(error), line)
        case _:  # the network's, or the service's own
            report.trouble.append(str(error))


def stream_facts(exchange: Exchange, events: Sequence[Event]) -> dict[str, Any]:
    """Return what is worth knowing of an answer: events, fields, headers, framing, times, end."""
    kinds = [str(event.to_wire()["type"]) for event in events]
    unknown = {event.type for event in events if isinstance(event, UnknownEvent)}
    fields = {f"{kind}.{name}" for kind, event in zip(kinds, events, strict=True) for name in event.extra}
    return {
        "event_types": dict(Counter(kinds)),
        "unknown_event_types": sorted(unknown),
        "unknown_fields": sorted(name for name in fields if name.partition(".")[0] not in unknown),
        "headers": sorted(exchange.headers),
        "content_type": exchange.headers.get("content-type"),
        **_framing(b"".join(data for _, data in exchange.body)),
        "reads": len(exchange.body),
        "seconds_to_headers": round(exchange.after, 3),
        "seconds_to_first_event": _first_event(exchange),
        "seconds": round(exchange.after + sum(pause for pause, _ in exchange.body) + exchange.ended_after, 3),
        "ended": exchange.how,
    }


def _framing(body: bytes) -> dict[str, Any]:
    lines = re.split(rb"\r\n|\n|\r", body)
    data = [line for line in lines if line.startswith(b"data:")]
    return {
        "line_end": "CRLF" if b"\r\n" in body else "LF" if b"\n" in body else "none",
        "done_is_last": data[-1:] in ([b"data: [DONE]"], [b"data:[DONE]"]),
        "comments": sum(line.startswith(b":") for line in lines),
        "bytes": len(body),
        "longest_line_bytes": max(map(len, lines)),
    }


def _first_event(exchange: Exchange) -> float | None:
    passed = exchange.after
    for pause, data in exchange.body:
        passed += pause
        if b"data:" in data:
            return round(passed, 3)
    return None


def check_records(report: Report, exchanges: Sequence[Exchange], wall: float) -> None:
    """Judge the records of jobs, received at about *wall* seconds since the epoch."""
    for record in _records(exchanges):
        created: object = record.get("createdAt")
        if not isinstance(created, str):
            continue
        try:
            date = datetime.fromisoformat(created)
        except ValueError:
            continue
        if date.tzinfo is not None:
            report.unseen("a date without a zone is UTC", "the dates have a zone")
            continue
        off = (datetime.fromisoformat(f"{created}+00:00").timestamp() - wall) / 3600
        if abs(off) > HOURS_APART:
            seen = f"createdAt is {off:+.1f} hours from now, read as UTC"
            report.broken("a date without a zone is UTC", seen, 'job.raw.json["createdAt"]')
        else:
            report.held("a date without a zone is UTC", "createdAt has no zone, and read as UTC it is now")


def _records(exchanges: Sequence[Exchange]) -> Iterator[dict[str, Any]]:
    for exchange in exchanges:
        if exchange.operation == "create_job" and exchange.status is not None and exchange.status < 300:
            try:
                found: Any = json.loads(b"".join(data for _, data in exchange.body))
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found
