"""The rooms of the package and the one direction of their imports, read from the source."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import mintlify_async

PACKAGE = Path(mintlify_async.__file__).parent

PURE, ACTIVE = "pure", "active"
"""A pure room takes what comes in and gives what goes out; the clock and the dice are arguments."""

# Each room may import only rooms that stand above it here. A new file must be given its place.
PLACES = {
    "errors": ACTIVE,
    "version": ACTIVE,
    "timers": ACTIVE,
    "clock": ACTIVE,
    "cancellation": ACTIVE,
    "loops": ACTIVE,
    "wire": PURE,
    "models": PURE,
    "partial_json": PURE,
    "response_info": PURE,
    "job": PURE,
    "question": PURE,
    "thread": PURE,
    "parts": PURE,
    "sse": PURE,
    "events": PURE,
    "decode": PURE,
    "drafts": PURE,
    "sources": PURE,
    "message": PURE,
    "stream": PURE,
    "cutting": PURE,
    "markdown": PURE,
    "history": PURE,
    "retry": PURE,
    "sqlite": ACTIVE,
    "ledger": ACTIVE,
    "stores": ACTIVE,
    "windows": PURE,
    "store": PURE,
    "memory_store": PURE,
    "waiters": PURE,
    "quota": PURE,
    "assumptions": PURE,
    "argument_checks": PURE,
    "requests": PURE,
    "responses": PURE,
    "timeouts": PURE,
    "keys": ACTIVE,
    "refs": PURE,
    "hooks": ACTIVE,
    "polling": ACTIVE,
    "turns": PURE,
    "waiting": ACTIVE,
    "create_once": ACTIVE,
    "gate": ACTIVE,
    "record": ACTIVE,
    "failures": ACTIVE,
    "idle_watchdog": ACTIVE,
    "response_body": ACTIVE,
    "transport": ACTIVE,
    "dispatch": ACTIVE,
    "assistant_api": ACTIVE,
    "agent_api": ACTIVE,
    "jobs": ACTIVE,
    "groups": ACTIVE,
    "prepared_question": ACTIVE,
    "edits": ACTIVE,
    "assistant": ACTIVE,
    "conversation_reply": ACTIVE,
    "conversation": ACTIVE,
    "options": ACTIVE,
    "session": ACTIVE,
    "testing": ACTIVE,
    "contrib": ACTIVE,
    "cli": ACTIVE,
    "__main__": ACTIVE,
}

ROOMS = list(PLACES)
PURE_ROOMS = [room for room, kind in PLACES.items() if kind == PURE]

IMPURE_MODULES = {"aiohttp", "anyio", "asyncio", "time", "random"}

SEPARATE = {
    "retry": {"errors"},
    "windows": {"errors"},
    "store": {"clock", "windows"},
    "memory_store": {"clock", "windows"},
    "waiters": {"clock", "store", "windows"},
    "quota": {"errors", "clock", "windows", "store", "memory_store", "waiters"},
    "sse": {"errors"},
}
"""Rooms that know nothing of the wire's or the session's other rooms."""

TIME_FUNCTIONS = {
    "time",
    "monotonic",
    "perf_counter",
    "time_ns",
    "monotonic_ns",
    "sleep",
    "now",
    "utcnow",
    "today",
}


class Import(NamedTuple):
    """One import in the source: which room has it, what it is of, and the names it takes."""

    room: str
    path: Path
    line: int
    module: str  # absolute, such as mintlify_async.errors or aiohttp.web
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE)}:{self.line} imports {self.module} {', '.join(self.names)}"


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node that can run; what only a type checker reads is left out."""
    for child in ast.iter_child_nodes(tree):
        if not for_types_only(child):
            yield child
            yield from walk(child)


def absolute(path: Path, node: ast.ImportFrom) -> str:
    """Return the module of a ``from … import`` with its dots resolved."""
    if not node.level:
        return node.module or ""
    package = ["mintlify_async", *path.relative_to(PACKAGE).parts[:-1]]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def imports() -> Iterator[Import]:
    for path in files():
        for node in walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                for name in node.names:
                    yield Import(room_of(path), path, node.lineno, name.name, ())
            elif isinstance(node, ast.ImportFrom):
                names = tuple(name.name for name in node.names)
                yield Import(room_of(path), path, node.lineno, absolute(path, node), names)


ALL = list(imports())


def own_rooms(found: Import) -> set[str]:
    """Return the rooms of ours that an import names."""
    parts = found.module.split(".")
    if parts[0] != "mintlify_async":
        return set()
    if len(parts) > 1:
        return {parts[1]}
    return {name for name in found.names if name in ROOMS}


def test_every_file_has_its_place():
    """A new room is put into the order, on purpose."""
    assert {room_of(path) for path in files()} - {"__init__"} <= set(ROOMS)


def test_imports_point_one_way():
    """A room imports only what stands before it; so there is no cycle."""
    wrong = [
        str(found)
        for found in ALL
        if found.room != "__init__"
        for target in own_rooms(found)
        if target != found.room and ROOMS.index(target) > ROOMS.index(found.room)
    ]
    assert not wrong


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_pure_rooms_do_no_io(room):
    """No loop, no socket, no clock and no dice: their tests need nothing."""
    wrong = [
        str(found) for found in ALL if found.room == room and found.module.split(".")[0] in IMPURE_MODULES
    ]
    assert not wrong


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_pure_rooms_import_pure_rooms(room):
    """What a pure room stands on is pure, too; a clock is only an argument's type."""
    allowed = {*PURE_ROOMS, "errors", "clock"}
    wrong = [str(found) for found in ALL if found.room == room and not own_rooms(found) <= allowed]
    assert not wrong


@pytest.mark.parametrize("room", SEPARATE)
def test_separate_rooms_know_little(room):
    """The policies and the framing can be lifted out as they are."""
    wrong = [str(f) for f in ALL if f.room == room and not own_rooms(f) <= {*SEPARATE[room], room}]
    assert not wrong


def test_errors_and_clock_import_nothing_of_ours():
    """Everything else may stand on them; the clock's own timers are below it."""
    low = [found for found in ALL if found.room in ("errors", "timers", "clock")]
    assert not [str(found) for found in low if own_rooms(found) - {"timers"}]


def test_only_transport_imports_aiohttp():
    """Three files know the HTTP client; the local service is aiohttp's own server; the relay is another."""
    allowed = {"failures", "response_body", "transport", "testing", "contrib"}
    wrong = [
        str(found) for found in ALL if found.module.split(".")[0] == "aiohttp" and found.room not in allowed
    ]
    assert not wrong


def reads_of_time(path: Path) -> Iterator[str]:
    """Yield each place that reads the time or sleeps by itself."""
    for node in walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("time", "datetime", "date") and node.attr in TIME_FUNCTIONS:
                yield f"{where} {node.value.id}.{node.attr}"
            if (node.value.id, node.attr) in (("asyncio", "sleep"), ("anyio", "sleep")):
                yield f"{where} {node.value.id}.{node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield f"{where} from time import"


WITHOUT_CLOCK = [
    path for path in files() if path.name not in ("clock.py", "timers.py") and room_of(path) != "testing"
]
"""All but the clock and its timers, and the kit that replaces it."""


@pytest.mark.parametrize("path", WITHOUT_CLOCK, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_clock_reads_time(path):
    """So that a virtual clock is enough; ``asyncio.sleep(0)`` gives way and reads nothing."""
    source = path.read_text(encoding="utf-8").splitlines()
    found = [
        place
        for place in reads_of_time(path)
        if "sleep(0)" not in source[int(place.split(":")[1].split()[0]) - 1]
    ]
    assert not found


def public_in(module: str) -> set[str]:
    """Return what a room, or the package, offers: its ``__all__``."""
    return {"__version__", *getattr(importlib.import_module(module), "__all__", ())}


@pytest.mark.parametrize("room", ["cli", "testing", "contrib"])
def test_outer_rooms_use_public_names(room):
    """What they are built from is what a user has; the kit knows the protocol's rules, too."""
    wrong = []
    for found in ALL:
        targets = own_rooms(found) - {room}
        if found.room != room or not targets:
            continue
        if room == "testing" and targets <= {"argument_checks", "assumptions"}:
            continue
        if room == "cli" and targets <= {"testing", "contrib"}:
            continue
        if not set(found.names) <= public_in(found.module):
            wrong.append(str(found))
    assert not wrong


def test_nobody_imports_the_outer_rooms():
    """Only the command line has the kit and the extras; it is imported by nobody."""
    outer = {"testing", "contrib", "cli", "__main__"}
    wrong = [
        str(found)
        for found in ALL
        if found.room not in {"cli", "__main__"} and (own_rooms(found) & outer) - {found.room}
    ]
    assert not wrong


def loaded_after(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has after *statement*."""
    program = (
        f"import sys\n{statement}\nprint('\\n'.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_is_cheap():
    """Neither the HTTP client nor asyncio comes with the bare import."""
    assert not loaded_after("import mintlify_async") & {
        "aiohttp",
        "asyncio",
        "anyio",
        "attr",
        "cattrs",
        "ssl",
    }


@pytest.mark.parametrize("room", ["errors", *PURE_ROOMS])
def test_pure_rooms_load_without_the_client(room):
    """What is pure is so at run time, through everything that it imports."""
    if not (PACKAGE / f"{room}.py").exists():
        pytest.skip("this room is not built yet")
    assert not loaded_after(f"import mintlify_async.{room}") & {"aiohttp", "anyio"}
