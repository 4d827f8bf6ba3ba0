"""What is shipped: the public names, their documentation, the wheel and the source archive."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.metadata
import itertools
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import mintlify_async
from mintlify_async import testing

ROOT = Path(__file__).parents[2]
PACKAGE = Path(mintlify_async.__file__).parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]

PIN = r'#.*|[a-z0-9-]+==[\w.]+(; python_version (<|>=) "3\.\d+")?'
"""A line of constraints.txt."""

WHEEL_LIMIT_BYTES = 1_000_000
"""Installing the package must stay fast; growth beyond this was added by mistake."""


@pytest.mark.parametrize("package", [mintlify_async, testing], ids=["package", "testing"])
def test_type_checkers_see_the_same_names(package):
    """The stub takes each public name from the module that has it, and no other name."""
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    named = ["__version__"] if package is mintlify_async else []
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(f".{node.module or ''}", package.__name__)
            for alias in node.names:
                assert getattr(package, alias.asname) is getattr(module, alias.name)
                named.append(alias.asname)
    assert sorted(named) == sorted(package.__all__) == dir(package)


def test_a_name_that_is_not_there():
    """The error is Python's own, so that hasattr works."""
    with pytest.raises(AttributeError, match="no_such_name"):
        mintlify_async.no_such_name  # noqa: B018 - the access is what is tested


def modules_with_examples() -> list[str]:
    """Return the modules whose docstrings show what an expression gives."""
    found = [path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8")]
    names = [path.relative_to(PACKAGE.parent).with_suffix("") for path in found]
    return sorted(".".join(name.parts).removesuffix(".__init__") for name in names)


def test_examples_in_docstrings_are_true():
    """Each ``>>>`` gives what stands below it."""
    results = {name: doctest.testmod(importlib.import_module(name)) for name in modules_with_examples()}
    assert results
    assert not [name for name, result in results.items() if result.failed or not result.attempted]


def name_of(requirement: str) -> str:
    """Return a requirement's bare name, in the normalized spelling."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=; ]", requirement)[0]).lower()


def pins(path: Path) -> dict[str, str]:
    """Return the versions that a constraints file pins. The last one counts: that of the newest Python."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split(";")[0].split("==") for line in lines if line and not line.startswith("#"))


def test_the_lowest_versions_are_those_of_the_project():
    """``tox -e lowest`` runs on each lower bound of pyproject.toml, with today's test tools."""
    extras = itertools.chain.from_iterable(PROJECT["optional-dependencies"].values())
    needed = [line for line in (*PROJECT["dependencies"], *extras) if name_of(line) != PROJECT["name"]]
    bounds = {name_of(line): re.search(r">=([\w.]+)", line)[1] for line in needed}
    newest = pins(ROOT / "constraints.txt")
    tools = {name_of(tool): newest[name_of(tool)] for tool in PYPROJECT["dependency-groups"]["suite"]}
    assert pins(ROOT / "tests" / "lowest.txt") == bounds | tools


def test_each_test_tool_and_dependency_is_pinned():
    """A plain ``tox`` installs the same versions on each day."""
    extras = itertools.chain.from_iterable(PROJECT["optional-dependencies"].values())
    groups = itertools.chain.from_iterable(PYPROJECT["dependency-groups"].values())
    named = [*PROJECT["dependencies"], *extras, *(line for line in groups if isinstance(line, str))]
    assert {name_of(line) for line in named} - {PROJECT["name"]} <= set(pins(ROOT / "constraints.txt"))


def test_each_claimed_python_is_tested():
    """The classifiers name the Pythons that the workflow runs the suite on, and no other."""
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    tested = re.search(r"python: \[(.*)\]", workflow)[1]
    prefix = "Programming Language :: Python :: 3."
    claimed = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if line.startswith(prefix)]
    assert claimed == re.findall(r"3\.\d+", tested)


def test_the_workflow_runs_each_environment():
    """All but those that make something: the pages, and the figures of the benchmarks."""
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    lists = re.findall(r"environment: \[(.*)\]", text)
    run = set(re.findall(r"tox -e (\w+)", text)).union(*(names.split(", ") for names in lists))
    assert run == set(PYPROJECT["tool"]["tox"]["env"]) - {"docs", "bench"}


def test_versions_agree():
    """The package, its installed metadata and the changelog tell the same."""
    version = mintlify_async.__version__
    assert importlib.metadata.version("mintlify-async") == version
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(version)}\]", changelog, re.MULTILINE)


def test_nothing_private_is_committed():
    """No machine's paths and no registry's address in what is shipped."""
    for name in ("constraints.txt", "pyproject.toml", "README.md", "CHANGELOG.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"/(root|home|work|opt)/", text), name
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(PIN, line) for line in lines)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and the source archive once."""
    if not (ROOT / "mintlify_async").is_dir():
        pytest.skip("the source of the package is not here: the suite runs against a wheel")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.mark.real
def test_the_wheel_holds_the_package_and_nothing_else(built):
    """Every module, the type marker and the documentation are in it; no test, no cache."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "mintlify_async").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and "node_modules" not in path.parts
    }
    assert inside == expected
    assert {"mintlify_async/py.typed", "mintlify_async/docs/index.md"} <= inside
    assert wheel.stat().st_size < WHEEL_LIMIT_BYTES


@pytest.mark.real
def test_the_metadata_is_complete(built):
    """What an index and pip show: name, Python, licence, extras, description, scripts."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        info = f"mintlify_async-{mintlify_async.__version__}.dist-info"
        metadata = message_from_string(archive.read(f"{info}/METADATA").decode())
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert metadata["Name"] == "mintlify-async"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "# mintlify-async" in metadata.get_payload()
    assert not re.search(r"\]\((?!https?:)|<img|<!--", metadata.get_payload())  # files
    assert "mintlify_async.cli:main" in entry_points
    assert "mintlify_async.testing.pytest_plugin" in entry_points
    assert "mintlify_async.contrib.pyinstaller:hook_dirs" in entry_points
    required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert {name_of(line) for line in required} == {"aiohttp", "anyio", "attrs", "cattrs"}


@pytest.mark.real
def test_the_source_archive_can_test_itself(built):
    """It holds the tests and the versions that they need, and no folder that is not there."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt"} <= inside
    assert {"tests/lowest.txt", "mintlify_async/docs/index.md", ".github/workflows/ci.yml"} <= inside
    assert not [name for name in inside if "__pycache__" in name or name.startswith((".tox", ".venv"))]
    listed = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert not [name for name in listed if not (ROOT / name).exists()]
