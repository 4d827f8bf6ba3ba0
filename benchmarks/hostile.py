"""The row about hostile pages, with the time a body blocks the relay's loop, and the memory of slow ones."""

import json
import socket
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from .held import resident
from .measuring import CONTROL, OURS, Effort, Row, Samples, rounds, row_of
from .relay import PASS_THROUGH, WATCHED, Served
from .server import running

FULL = 4 * 1024 * 1024 - 1000  # bytes, about the most that a page may send
TEXT, BLANKS = {"type": "text", "text": "q"}, {"type": "source-url", "sourceId": "s", "url": " " * 2_000}
HEADERS = {"content-type": "application/json", "x-user": "u"}
SLOW = b"POST /burst HTTP/1.0\r\nx-user: u\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
SILENT = "connections that send nothing"


def page(*answers: list[Any], ignored: str = "") -> bytes:
    """Return a question after answers of these parts, with a list in a field that the relay ignores."""
    told = [{"id": f"a{number}", "role": "assistant", "parts": each} for number, each in enumerate(answers)]
    messages = json.dumps([*told, {"id": "q", "role": "user", "parts": [TEXT]}])
    return f'{{"messages":{messages},"ignored":[{ignored}0]}}'.encode()


def bodies() -> dict[str, tuple[int, bytes]]:
    """Return each body with its status. Some are ordinary, some far too large, some the largest that pass."""
    from mintlify_async.contrib.relay.page_question import MOST_ESCAPES, MOST_PARTS, MOST_VALUES

    most, parts, deep = MOST_VALUES - 100, MOST_PARTS, "[" * 60 + "]" * 60 + ","
    found = {"path": "/p", "metadata": {"title": "T"}, "content": 'word "x"\n' * 900}
    search = {"type": "tool-search", "toolCallId": "c", "output": {"results": [found] * 12}}
    keys, keys_full = (json.dumps(dict.fromkeys(range(n), 0)) + "," for n in (most // 2, FULL // 14))
    return {
        "a question": (200, page()),
        "12 turns of results, 1.2 MB": (200, page(*[[search, TEXT]] * 12)),
        "empty lists": (200, page(ignored="[]," * (most // 2))),
        "empty lists, 4 MiB": (413, page(ignored="[]," * (FULL // 3))),
        "nested lists": (200, page(ignored=deep * (most // 61))),
        "brackets": (400, page(ignored="[" * most)),
        "distinct keys": (200, page(ignored=keys)),
        "distinct keys, 4 MiB": (413, page(ignored=keys_full)),
        "long numbers": (200, page(ignored=("9" * 25 + ",") * most)),
        "parts": (200, page([TEXT] * (parts - 1))),
        "100,000 parts": (413, page([TEXT] * 100_000)),
        "blanks as addresses": (413, page([BLANKS] * 2_000)),
        "halves of characters": (200, page([{"type": "text", "text": "\ud800" * 390_000}])),
        "escapes": (200, page(ignored='"' + r"aaa\n" * (MOST_ESCAPES - 1_000) + '",')),
        "a string of 4 MiB": (200, page(ignored='"' + "é" * (FULL // 2) + '",')),
    }


def ask(served: Served, body: bytes, status: int = 200) -> None:
    with closing(HTTPConnection(served[0].removeprefix("http://"))) as connection:
        with suppress(ConnectionError):  # a refused body is not read to its end
            connection.request("POST", "/burst", body, HEADERS)
        answer = connection.getresponse()
        assert (answer.status, answer.read() == b"") == (status, False)


def trickle(kind: str, connections: int) -> float:
    """Return the KiB of each of *connections* whose body comes byte by byte, and does not end."""
    # The connections end after the servers, which would complain.
    with ExitStack() as stack, running() as (up, _), running("benchmarks.relay", kind, up) as served:
        ask(served, page())
        before, slow = resident(served[1]), []
        for number in range(connections):  # from separate IP addresses, as one may have 100
            place = ("127.0.0.1", int(served[0].rpartition(":")[2]))
            own = (f"127.1.{number // 250}.{number % 250 + 1}", 0)
            slow.append(stack.enter_context(socket.create_connection(place, source_address=own)))
        for number in range(10):
            [each.sendall(b" " if number else SLOW) for each in slow if kind != SILENT]
            ask(served, page())  # answered when the relay has read all earlier bytes
        assert len([*Path(f"/proc/{served[1]}/fd").iterdir()]) > connections  # none was ended
        return max(1e-6, (resident(served[1]) - before) / 1024 / connections)


def hostile(effort: Effort) -> Iterator[Row]:
    every = bodies()
    turns: Samples = {name: [] for name in every}
    with running() as (upstream, _), running("benchmarks.relay", WATCHED, upstream) as served:
        for name in rounds(every, effort):
            urlopen(f"{served[0]}/turn").close()  # from now on
            ask(served, every[name][1], every[name][0])
            turns[name].append(float(urlopen(f"{served[0]}/turn").read()))
    turns = {"worst": max(turns.values(), key=statistics.median), **turns}
    yield row_of("hostile-turn", "longest turn of the relay's loop by a body, CPU", "ms", turns, ratios=False)
    kinds, count = (OURS, SILENT, PASS_THROUGH, CONTROL), 20 if effort.small else 1_000
    slow: Samples = {kind: [] for kind in kinds}
    for kind in rounds(kinds, effort):
        slow[kind].append(trickle(kind, count))
    title = f"memory of each of {count:,} connections whose bodies come byte by byte"
    yield row_of("hostile-memory", title, "KiB", slow)
