"""The wings of the package: what may import what, and which file may do what."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

import pytest

import mintlify_async

PACKAGE = Path(mintlify_async.__file__).parent

FLOORS = [
    {"errors", "version"},
    {"argument_checks", "wrong_names"},
    {"runtime", "model"},
    {"events", "messages", "storage"},
    {"quota", "rendering"},
    {"settings"},
    {"protocol"},
    {"http"},
    {"jobs", "assistant"},
    {"conversation"},
    {"session"},
    {"contrib", "testing"},
    {"cli"},
    {"__main__"},
]
"""From the ground up. A wing imports only what stands on a lower floor, for the type checker, too."""

MAY_LOOK_UP_FOR_TYPES = {"errors.py"}
"""Every wing imports it, so at run time it imports none. But an error keeps a thread, a job or an answer, and
the type checkers of users must know their classes."""

FLOOR = {wing: number for number, wings in enumerate(FLOORS) for wing in wings}
OUTER = {"contrib", "testing", "cli"}

PURE = {"errors", "argument_checks", "model", "events", "messages", "protocol", "rendering"}
PURE_FILES = {
    "settings/retry_policy.py",
    "settings/poll_policy.py",
    "settings/options.py",
    "http/header_times.py",
    "jobs/stale_guard.py",
    "conversation/history.py",
}
PURE_FILES |= {f"assistant/{name}.py" for name in ("event_stream", "message_builder", "sse", "thread_finder")}
"""They do no I/O: the clock and the random numbers are arguments."""
NOT_PURE = {"rendering/edits.py"}
IO_MODULES = {"aiohttp", "anyio", "asyncio", "time", "random"}

MAY_IMPORT_AIOHTTP = {"http", "testing", "contrib"}

# The thread of a SQLite file has no loop, and virtual time waits for the kernel.
MAY_READ_TIME = {"runtime/clock.py", "storage/sqlite_file.py", "testing/virtual_clock.py"}
TIME_FUNCTIONS = {"time", "monotonic", "perf_counter", "now", "utcnow", "today", "sleep"}

FOREIGN_PRIVATE = {
    "_getframe",  # sys._getframe is documented; inspect.stack() reads source files
    "_loop",  # aiohttp has no public way to ask which loop a connector belongs to
    "_get",  # nor to refuse a connection of its pool: connect(), which is public, opens one too many instead
    "_closed",  # nor to tell a connector of a dead loop that it is closed
    "_selector",  # asyncio has no public way to reach a loop's selector
}
"""Private names of other libraries that the package reads, each with its reason."""

FRIENDS = {
    ("testing", "protocol"),
    ("testing", "argument_checks"),
    ("testing", "storage"),  # the cases of a store call the functions that the package calls
    ("cli", "testing"),
    ("cli", "contrib"),
    ("cli", "argument_checks"),  # one rule for every path of a file
    ("cli", "rendering"),  # the terminal reads lines of Markdown as the other views do
    ("contrib", "storage"),  # the stores in Redis and Postgres keep the rules of the other stores
    ("contrib", "errors"),
    ("contrib", "argument_checks"),
    ("contrib", "settings"),  # the protocol of an observer
    ("contrib", "wrong_names"),  # one table for the old names of all wings
    ("testing", "wrong_names"),
}
"""Outer wings that may import what another wing does not offer to users."""

TWO_ANSWERS = {"Answer"}
"""The assistant's, and the one that the local service is told to give; both are public."""

TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}


def wing_of(file: str) -> str:
    return file.partition("/")[0].removesuffix(".py")


def module_of(file: str) -> str:
    return f"mintlify_async/{file}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Import(NamedTuple):
    """One import in the source: its place, the module with its dots resolved, and the imported names."""

    file: str
    line: int
    module: str
    names: tuple[str, ...]
    for_types: bool

    @property
    def library(self) -> str:
        return self.module.partition(".")[0]

    @property
    def target(self) -> str:
        """The imported wing of this package, or nothing."""
        if self.library != "mintlify_async":
            return ""
        wings = [*self.module.split(".")[1:2], *self.names]
        return next((wing for wing in wings if wing in FLOOR), "")


def imports_in(file: str, tree: ast.AST, for_types: bool = False) -> Iterator[Import]:
    package = module_of(file) if file.endswith("__init__.py") else module_of(file).rpartition(".")[0]
    for node in ast.iter_child_nodes(tree):
        typed = for_types or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, name.name, (), typed) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            yield Import(file, node.lineno, module, tuple(name.name for name in node.names), typed)
        yield from imports_in(file, node, typed)


IMPORTS = [one for file, tree in TREES.items() for one in imports_in(file, tree)]
INSIDE = [
    one
    for one in IMPORTS
    if one.file != "__init__.py" and one.target and not (one.for_types and one.file in MAY_LOOK_UP_FOR_TYPES)
]


def test_imports_point_down():
    """Every file has its wing. A wing imports only lower floors, so there is no circle of wings."""
    assert {wing_of(file) for file in TREES} - {"__init__"} == set(FLOOR)
    inside = [(one, wing_of(one.file)) for one in INSIDE]
    assert not [one for one, wing in inside if one.target != wing and FLOOR[one.target] >= FLOOR[wing]]


def test_no_circle_of_files():
    """Files of one wing import each other in one direction, too."""
    modules = {module_of(file) for file in TREES}
    graph: dict[str, set[str]] = defaultdict(set)
    for one in INSIDE:
        imported = {one.module, *(f"{one.module}.{name}" for name in one.names)}
        graph[module_of(one.file)] |= (imported & modules) - {module_of(one.file)}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_each_class_has_a_name_of_its_own():
    """A class is found by its name. Files of different wings may share theirs."""
    places: dict[str, list[str]] = defaultdict(list)
    for file, tree in TREES.items():
        for name in {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)} - TWO_ANSWERS:
            places[name].append(file)
    assert not {name: files for name, files in places.items() if len(files) > 1}


def test_pure_files_do_no_io():
    """No loop, no socket, no clock and no random numbers: their tests need nothing."""
    assert set(TREES) >= PURE_FILES | NOT_PURE
    pure = {file for file in TREES if wing_of(file) in PURE} - NOT_PURE | PURE_FILES
    assert not [one for one in IMPORTS if one.file in pure and one.library in IO_MODULES]


def test_only_http_imports_aiohttp():
    """One wing of the core knows the HTTP client."""
    users = [one for one in IMPORTS if one.library == "aiohttp" and not one.for_types]
    assert not [one for one in users if wing_of(one.file) not in MAY_IMPORT_AIOHTTP]


def holder_of(node: ast.Attribute) -> str:
    """Return the name before the dot, if it is only a name."""
    return node.value.id if isinstance(node.value, ast.Name) else ""


def test_only_dates_reads_the_computers_clock():
    """So that the loop's time is enough to make a test's time virtual."""
    readers = {one.file for one in IMPORTS if one.module == "time" and one.names}
    for file, tree in TREES.items():
        used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        names = {node.attr for node in used if holder_of(node) in ("time", "datetime", "date")}
        readers |= {file} if names & TIME_FUNCTIONS else set()
    assert readers <= MAY_READ_TIME


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


OWN_NAME = re.compile(r"(?:def |class |self\.|^\s*|\")(_\w+)", re.MULTILINE)
"""A name that a file defines, assigns to an object of its own or to a variable, or lists in its slots."""


def test_private_names_stay_in_their_wing():
    """No file imports a private name of another wing, or reads one of an object that another wing defines."""
    own: dict[str, set[str]] = defaultdict(lambda: {*FOREIGN_PRIVATE})
    for file in TREES:
        own[wing_of(file)] |= {*OWN_NAME.findall((PACKAGE / file).read_text(encoding="utf-8"))}
    for file, tree in TREES.items():
        reads = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and private(node.attr)]
        foreign = [node for node in reads if holder_of(node) not in ("self", "cls")]
        assert not [(file, node.lineno, node.attr) for node in foreign if node.attr not in own[wing_of(file)]]
    other_wings = [one for one in IMPORTS if one.target not in ("", wing_of(one.file))]
    assert not [one for one in other_wings if any(map(private, one.names))]


def test_a_function_that_answers_never_raises():
    """``is_…`` only returns whether. What raises is named ``check_…``."""
    for file, tree in TREES.items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            if function.name.lstrip("_").startswith("is_"):
                inside = [*ast.walk(function)]
                calls = {ast.unparse(node.func) for node in inside if isinstance(node, ast.Call)}
                assert not [name for name in calls if name.startswith("check_")], file
                assert not [node for node in inside if isinstance(node, ast.Raise)], file


def test_outer_wings_use_public_names():
    """What they are built from is what a user has; the kit knows the protocol's rules, too."""
    for one in INSIDE:
        wing = wing_of(one.file)
        if wing in OUTER and one.target != wing and (wing, one.target) not in FRIENDS:
            offered = getattr(importlib.import_module(one.module), "__all__", ())
            assert set(one.names) <= {"__version__", *offered}, one


def test_the_root_offers_what_it_lists():
    """Names are loaded when they are used, so only a test can compare the two."""
    shown = {name for name in dir(mintlify_async) if not name.startswith("__")}
    assert shown == set(mintlify_async.__all__) - {"__version__"}


@pytest.mark.real
def test_importing_the_package_is_cheap():
    """Neither the HTTP client nor asyncio comes with the bare import."""
    program = "import sys, mintlify_async; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"aiohttp", "asyncio", "anyio", "attr", "cattrs", "ssl"}
    assert not {name.partition(".")[0] for name in done.stdout.split()} & heavy
