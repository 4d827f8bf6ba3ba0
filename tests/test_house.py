"""The wings of the package: what may import what, and which file may do what."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import mintlify_async

PACKAGE = Path(mintlify_async.__file__).parent
PROJECT = Path(__file__).parent.parent

FLOORS = [
    {"errors", "version"},
    {"runtime", "model"},
    {"events", "messages", "storage"},
    {"protocol", "quota", "rendering"},
    {"http"},
    {"jobs", "assistant"},
    {"options", "conversation"},
    {"session"},
    {"contrib", "testing"},
    {"cli"},
    {"__main__"},
]
"""From the ground up. A wing imports only what stands on a lower floor, for the type checker, too."""

FLOOR = {wing: number for number, wings in enumerate(FLOORS) for wing in sorted(wings)}
OUTER = ("contrib", "testing", "cli")
CORE = [wing for wing in FLOOR if wing not in (*OUTER, "__main__")]

PURE = ["errors", "model", "events", "messages", "protocol", "rendering"]
"""They do no I/O: the clock and the random numbers are arguments."""
PURE_FILES = {
    "retry.py",
    "stale_guard.py",
    "history.py",
    "stream.py",
    "message_builder.py",
    "decode.py",
    "sse.py",
}
NOT_PURE = {"rendering/edits.py", "protocol/api_keys.py"}

IO_MODULES = {"aiohttp", "anyio", "asyncio", "time", "random"}

MAY_IMPORT_AIOHTTP = {"http", "testing", "contrib"}

FOREIGN_PRIVATE = {
    "_getframe",  # sys._getframe is documented; inspect.stack() reads source files
    "_loop",  # aiohttp has no public way to ask which loop a connector belongs to
    "_closed",  # nor to tell a connector of a dead loop that it is closed
    "_selector",  # asyncio has no public way to reach a loop's selector
}
"""Private names of other libraries that the package reads, each with its reason."""


class Import(NamedTuple):
    """One import in the source: where it stands, the module, and the names it takes."""

    path: Path
    line: int
    module: str  # absolute, such as mintlify_async.errors or aiohttp.web
    names: tuple[str, ...]
    for_types: bool

    @property
    def wing(self) -> str:
        return wing_of(self.path)

    @property
    def target(self) -> str | None:
        """The wing of ours that it names, or None."""
        parts = self.module.split(".")
        if parts[0] != "mintlify_async":
            return None
        if len(parts) > 1:
            return parts[1]
        return next((name for name in self.names if name in FLOOR), None)

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE)}:{self.line} imports {self.module} {', '.join(self.names)}"


def wing_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    return ".".join(["mintlify_async", *path.relative_to(PACKAGE).with_suffix("").parts])


def absolute(path: Path, node: ast.ImportFrom) -> str:
    """Return the module of a ``from … import`` with its dots resolved."""
    if not node.level:
        return node.module or ""
    package = ["mintlify_async", *path.relative_to(PACKAGE).parts[:-1]]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def read_imports(path: Path, tree: ast.AST, *, for_types: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(tree):
        typed = for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
        if isinstance(child, ast.Import):
            for name in child.names:
                yield Import(path, child.lineno, name.name, (), typed)
        elif isinstance(child, ast.ImportFrom):
            names = tuple(name.name for name in child.names)
            yield Import(path, child.lineno, absolute(path, child), names, typed)
        yield from read_imports(path, child, for_types=typed)


FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
IMPORTS = [found for path, tree in TREES.items() for found in read_imports(path, tree)]
INSIDE = [found for found in IMPORTS if found.path != PACKAGE / "__init__.py" and found.target is not None]


def in_wings(wings: list[str]) -> list[Path]:
    return [path for path in FILES if wing_of(path) in wings]


def test_every_file_has_its_wing():
    """A new wing is put on its floor on purpose."""
    assert {wing_of(path) for path in FILES} - {"__init__"} == set(FLOOR)


def test_imports_point_down():
    """A wing imports only lower floors, type-only imports counted; so there is no circle of wings."""
    wrong = [str(f) for f in INSIDE if f.target != f.wing and FLOOR[f.target] >= FLOOR[f.wing]]
    assert not wrong


def test_no_circle_of_files():
    """Files of one wing import each other in one direction, too."""
    modules = {module_of(path) for path in FILES}
    graph: dict[str, set[str]] = {}
    for found in INSIDE:
        here = module_of(found.path)
        taken = {found.module} | {f"{found.module}.{name}" for name in found.names}
        graph.setdefault(here, set()).update((taken & modules) - {here})
    TopologicalSorter(graph).prepare()  # raises CycleError


TWO_ANSWERS = {"Answer"}
"""The assistant's, and the one that the local service is told to give; both are public."""


def test_each_file_and_class_has_a_name_of_its_own():
    """Both are found by their names. A wing's main file may have the wing's."""
    places: dict[str, list[str]] = {}
    for path, tree in TREES.items():
        names = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for name in [*names, *([path.name] if path.name != "__init__.py" else [])]:
            places.setdefault(name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: at for name, at in places.items() if len(at) > 1 and name not in TWO_ANSWERS}


def is_pure(path: Path) -> bool:
    if str(path.relative_to(PACKAGE)) in NOT_PURE:
        return False
    return wing_of(path) in PURE or (wing_of(path) in CORE and path.name in PURE_FILES)


PURE_PATHS = [path for path in FILES if is_pure(path)]


def test_pure_files_do_no_io():
    """No loop, no socket, no clock and no random numbers: their tests need nothing."""
    assert not [str(f) for f in IMPORTS if f.path in PURE_PATHS and f.module.split(".")[0] in IO_MODULES]


def test_only_http_imports_aiohttp():
    """One wing of the core knows the HTTP client."""
    assert not [
        str(f)
        for f in IMPORTS
        if f.module.split(".")[0] == "aiohttp" and f.wing not in MAY_IMPORT_AIOHTTP and not f.for_types
    ]


TIME_FUNCTIONS = {
    "time",
    "monotonic",
    "perf_counter",
    "time_ns",
    "monotonic_ns",
    "now",
    "utcnow",
    "today",
    "sleep",
}
# The thread of a SQLite file has no loop, and virtual time waits for the kernel.
MAY_READ_TIME = {"runtime/dates.py", "storage/sqlite_file.py", "testing/loop_time.py"}


def reads_of_time(tree: ast.AST) -> Iterator[str]:
    """Yield each place that reads the computer's clock; the event loop's time is free to read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield f"{node.lineno} from time import"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            holder, name = node.func.value, node.func.attr
            if (
                isinstance(holder, ast.Name)
                and holder.id in ("time", "datetime", "date")
                and name in TIME_FUNCTIONS
            ):
                yield f"{node.lineno} {holder.id}.{name}"


def test_only_dates_reads_the_computers_clock():
    """So that the loop's time is enough to make a test's time virtual."""
    assert not [
        f"{path}:{place}"
        for path, tree in TREES.items()
        if str(path.relative_to(PACKAGE)) not in MAY_READ_TIME
        for place in reads_of_time(tree)
    ]


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def names_defined_in(tree: ast.AST) -> set[str]:
    """Return every name that the file defines: functions, classes, slots, and what is assigned to."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node.value, ast.Name) and node.value.id == "self":
                found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)  # in __slots__
    return found


def private_reads(path: Path) -> Iterator[str]:
    """Yield each private name that *path* reads of an object that another file defines."""
    own = names_defined_in(TREES[path]) | FOREIGN_PRIVATE
    for node in ast.walk(TREES[path]):
        if not isinstance(node, ast.Attribute) or not private(node.attr) or node.attr in own:
            continue
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            yield f"{path}:{node.lineno} .{node.attr}"


def test_private_names_stay_in_their_file():
    """No file imports a private name, or reads one of an object that another file defines."""
    wrong = [place for path in FILES for place in private_reads(path)]
    wrong += [str(f) for f in IMPORTS if f.target and any(map(private, f.names))]
    assert not wrong


def public_in(module: str) -> set[str]:
    """Return what a module offers: its ``__all__``."""
    return {"__version__", *getattr(importlib.import_module(module), "__all__", ())}


FRIENDS = {
    ("testing", "protocol"),
    ("cli", "testing"),
    ("cli", "contrib"),
    ("contrib", "storage"),  # the store in Redis keeps the rules of the other stores
    ("contrib", "errors"),
}
"""Outer wings that may import what another wing does not offer to users."""


def test_outer_wings_use_public_names():
    """What they are built from is what a user has; the kit knows the protocol's rules, too."""
    assert not [
        str(f)
        for f in INSIDE
        if f.wing in OUTER and f.target != f.wing and (f.wing, f.target) not in FRIENDS
        if not set(f.names) <= public_in(f.module)
    ]


def test_the_root_offers_what_it_lists():
    """Names are loaded when they are used, so only a test can compare the two."""
    shown = {name for name in dir(mintlify_async) if not name.startswith("__")}
    assert shown == set(mintlify_async.__all__) - {"__version__"}


def loaded_after(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has after *statement*."""
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.real
def test_importing_the_package_is_cheap():
    """Neither the HTTP client nor asyncio comes with the bare import."""
    heavy = {"aiohttp", "asyncio", "anyio", "attr", "cattrs", "ssl"}
    assert not loaded_after("import mintlify_async") & heavy
