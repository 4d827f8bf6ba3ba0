"""The wings of the package: what may import what, how large a file may be, and who may touch what."""

from __future__ import annotations

import ast
import importlib
import io
import subprocess
import sys
import tokenize
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

PURE = ["errors", "model", "events", "messages", "protocol", "rendering", "quota"]
"""They do no I/O: the clock and the random numbers are arguments."""
PURE_FILES = {
    "retry.py",
    "stale_guard.py",
    "history.py",
    "stream.py",
    "message_builder.py",
    "part_builders.py",
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
    modules = {
        ".".join(["mintlify_async", *path.relative_to(PACKAGE).with_suffix("").parts]) for path in FILES
    }
    graph: dict[str, set[str]] = {}
    for found in INSIDE:
        here = ".".join(["mintlify_async", *found.path.relative_to(PACKAGE).with_suffix("").parts])
        taken = {found.module} | {f"{found.module}.{name}" for name in found.names}
        graph.setdefault(here, set()).update((taken & modules) - {here})
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("wing", [w for w in CORE if (PACKAGE / w).is_dir()])
def test_a_wing_is_small(wing):
    """At most eight files, and an ``__init__`` that says the wing's rule (and names, where it is public)."""
    names = [path.name for path in (PACKAGE / wing).glob("*.py") if path.name != "__init__.py"]
    assert len(names) <= 8
    assert ast.get_docstring(TREES[PACKAGE / wing / "__init__.py"])


def test_each_basename_is_used_once_in_the_core():
    """A file is found by its name; a wing's main file may have the wing's."""
    names = [path.name for path in in_wings(CORE) if path.name != "__init__.py"]
    assert len(names) == len(set(names))


def is_pure(path: Path) -> bool:
    if str(path.relative_to(PACKAGE)) in NOT_PURE:
        return False
    return wing_of(path) in PURE or (wing_of(path) in CORE and path.name in PURE_FILES)


PURE_PATHS = [path for path in FILES if is_pure(path)]


@pytest.mark.parametrize("path", PURE_PATHS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pure_files_do_no_io(path):
    """No loop, no socket, no clock and no random numbers: their tests need nothing."""
    wrong = [str(f) for f in IMPORTS if f.path == path and f.module.split(".")[0] in IO_MODULES]
    assert not wrong


def test_only_http_imports_aiohttp():
    """One wing of the core knows the HTTP client."""
    assert not [
        str(f)
        for f in IMPORTS
        if f.module.split(".")[0] == "aiohttp" and f.wing not in MAY_IMPORT_AIOHTTP and not f.for_types
    ]


TIME_FUNCTIONS = {"time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "now", "utcnow", "today"}


def is_zero(arguments: list[ast.expr]) -> bool:
    return [ast.unparse(argument) for argument in arguments] == ["0"]


def reads_of_time(path: Path) -> Iterator[str]:
    """Yield each place that reads the time or sleeps by itself; ``asyncio.sleep(0)`` reads nothing."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield f"{path}:{node.lineno} from time import"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            holder, name = node.func.value, node.func.attr
            if not isinstance(holder, ast.Name):
                continue
            reads = holder.id in ("time", "datetime", "date") and name in {*TIME_FUNCTIONS, "sleep"}
            sleeps = holder.id in ("asyncio", "anyio") and name == "sleep" and not is_zero(node.args)
            if reads or sleeps:
                yield f"{path}:{node.lineno} {holder.id}.{name}"


OF_TIME = {"runtime/clock.py", "runtime/timers.py"}


TIMELESS = [p for p in FILES if str(p.relative_to(PACKAGE)) not in OF_TIME and wing_of(p) != "testing"]


@pytest.mark.parametrize("path", TIMELESS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_clock_reads_time(path):
    """So that a virtual clock is enough."""
    assert not list(reads_of_time(path))


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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_private_names_stay_in_their_file(path):
    """No file imports a private name, or reads one of an object that another file defines."""
    own = names_defined_in(TREES[path])
    wrong = [
        f"{node.lineno} .{node.attr}"
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.Attribute)
        and private(node.attr)
        and node.attr not in own
        and node.attr not in FOREIGN_PRIVATE
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]
    wrong += [str(f) for f in IMPORTS if f.path == path and f.target and any(map(private, f.names))]
    assert not wrong


def is_docstring(node: ast.AST) -> bool:
    """Tell whether it is a string that stands alone; the ``...`` of a Protocol's method is code."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def code_lines(path: Path) -> int:
    """Count the lines that are no docstring, no comment and not blank."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type not in skipped and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(TREES[path]):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else []:
            if is_docstring(child):
                lines.difference_update(range(child.lineno, (child.end_lineno or child.lineno) + 1))
    return len(lines)


def lines_of(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


CORE_LINES = 10_815
PACKAGE_LINES = 31_700
BENCHMARK_LINES = 1300
FILE_LINES = 600
ROOT_NAMES = 64
COMPLEXITY = 12


def test_the_core_stays_small():
    """Lines are a cost: a new feature first looks for what it can replace."""
    core = [path for path in FILES if wing_of(path) not in OUTER]
    assert sum(map(code_lines, core)) <= CORE_LINES


def test_the_package_stays_small():
    """Docstrings and comments counted; the documentation's pages are no code."""
    assert lines_of(FILES) <= PACKAGE_LINES


def test_the_benchmarks_stay_small():
    """A measuring framework is not the product."""
    assert lines_of(sorted((PROJECT / "benchmarks").rglob("*.py"))) <= BENCHMARK_LINES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_is_long(path):
    """What is longer has a seam."""
    assert lines_of([path]) <= FILE_LINES


def branches(node: ast.AST) -> int:
    """Return how many ways the node adds, as radon counts: conditions, loops and comprehensions, too."""
    match node:
        case ast.If() | ast.IfExp() | ast.Assert():
            return 1
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.For() | ast.AsyncFor() | ast.While():
            return 1 + bool(node.orelse)
        case ast.Try() | ast.TryStar():
            return len(node.handlers) + bool(node.orelse)
        case ast.comprehension():
            return 1 + len(node.ifs)
        case ast.Match():
            return sum(ast.unparse(case.pattern) != "_" for case in node.cases)
    return 0


def complexity(nodes: list[ast.stmt]) -> int:
    """Return the cyclomatic complexity of a function's body; a function in it has its own."""
    total, todo = 1, list[ast.AST](nodes)
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            total += branches(node)
            todo.extend(ast.iter_child_nodes(node))
    return total


def test_no_function_is_complex():
    """As radon counts. Ruff's C901 counts no ``and`` and ``or``, no ``x if y else z``, no comprehension."""
    measured = [*FILES, *sorted((PROJECT / "benchmarks").rglob("*.py"))]
    over = [
        f"{path}:{node.lineno} {node.name} {found}"
        for path in measured
        for node in ast.walk(TREES.get(path) or ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (found := complexity(node.body)) > COMPLEXITY
    ]
    assert not over


def test_the_root_has_few_names():
    """The names people type; the rest have public paths of their own."""
    shown = [name for name in dir(mintlify_async) if not name.startswith("__")]
    assert len(shown) <= ROOT_NAMES
    assert set(shown) == set(mintlify_async.__all__) - {"__version__"}


def public_in(module: str) -> set[str]:
    """Return what a module offers: its ``__all__``."""
    return {"__version__", *getattr(importlib.import_module(module), "__all__", ())}


@pytest.mark.parametrize("wing", ["cli", "testing", "contrib"])
def test_outer_wings_use_public_names(wing):
    """What they are built from is what a user has; the kit knows the protocol's rules, too."""
    wrong = []
    for found in INSIDE:
        if found.wing != wing or found.target == wing:
            continue
        if wing == "testing" and found.target == "protocol":
            continue
        if wing == "cli" and found.target in ("testing", "contrib"):
            continue
        if not set(found.names) <= public_in(found.module):
            wrong.append(str(found))
    assert not wrong


def loaded_after(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has after *statement*."""
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_the_package_is_cheap():
    """Neither the HTTP client nor asyncio comes with the bare import."""
    heavy = {"aiohttp", "asyncio", "anyio", "attr", "cattrs", "ssl"}
    assert not loaded_after("import mintlify_async") & heavy


@pytest.mark.parametrize("path", PURE_PATHS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pure_files_load_without_the_client(path):
    """What is pure is so at run time, through everything that it imports."""
    module = ".".join(["mintlify_async", *path.relative_to(PACKAGE).with_suffix("").parts])
    assert not loaded_after(f"import {module.removesuffix('.__init__')}") & {"aiohttp", "anyio"}
