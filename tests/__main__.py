"""Make an environment, install the project and its pinned test tools, run pytest: ``python3 -m tests``.

It needs Python 3.11 or newer and its standard library, nothing else. The
environment is kept in ``.test-env`` and made anew when ``constraints.txt``,
``pyproject.toml`` or this file change. Arguments that are not listed below go
to pytest as they are::

    python3 -m tests                        the whole suite
    python3 -m tests -k jobs -x             pytest's own arguments
    python3 -m tests --require-real         a missing redis-server, chromium or node is a failure, not a skip
    python3 -m tests --check                ruff, formatting, mypy and pyright instead of pytest
    python3 -m tests --format               let ruff mend what it can, and format
    python3 -m tests --wheel                against the built wheel instead of the checkout
    python3 -m tests --lowest               with the oldest dependencies that pyproject.toml allows
    python3 -m tests --newest               with the newest ones, whatever constraints.txt says
    python3 -m tests --python python3.13    with another interpreter
    python3 -m tests --fresh                with an environment made anew
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".test-env"
CONSTRAINTS = ROOT / "constraints.txt"
REQUIRE_REAL = "MINTLIFY_ASYNC_REQUIRE_REAL"

SUITE = [
    "pytest",
    "pytest-asyncio",
    "pytest-xdist",
    "aioresponses",
    "hypothesis",
    "trustme",
    "httpx",
    "uvicorn",
]
"""Without these no test runs."""

NEIGHBOURS = [
    "aiogram", "slack_sdk", "saq", "streaq", "limits", "playwright",
    "opentelemetry-sdk", "opentelemetry-instrumentation-aiohttp-client",
]  # fmt: skip
"""Real ones, as users have them; they need newer versions than our oldest dependencies."""

CHECKERS = ["ruff", "mypy", "pyright", "build", "hatchling"]

CHECKS = [
    ["ruff", "check", "."],
    ["ruff", "format", "--check", "."],
    ["mypy"],
    ["mypy", "--strict", "tests/typing_api.py"],
    ["pyright"],
]
MENDS = [["ruff", "check", "--fix", "."], ["ruff", "format", "."]]


def parse_arguments(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Split our own switches from pytest's arguments."""
    parser = argparse.ArgumentParser(
        prog="python3 -m tests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for switch in ("require-real", "check", "format", "fresh"):
        parser.add_argument(f"--{switch}", action="store_true", help=argparse.SUPPRESS)
    kinds = parser.add_mutually_exclusive_group()
    for kind in ("wheel", "lowest", "newest"):
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=argparse.SUPPRESS)
    parser.add_argument("--python", default=sys.executable, help=argparse.SUPPRESS)
    parser.set_defaults(kind="checkout")
    return parser.parse_known_args(arguments)


def run(*command: str | Path, **options: object) -> None:
    """Run *command*; end with its status when it fails."""
    done = subprocess.run([str(part) for part in command], check=False, **options)  # type: ignore[call-overload]  # passed on
    if done.returncode:
        raise SystemExit(done.returncode)


def dependencies() -> list[str]:
    """Return what the package and its extras depend on, ours left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [needed for extra in project["optional-dependencies"].values() for needed in extra]
    return [
        needed for needed in [*project["dependencies"], *extras] if not needed.startswith(project["name"])
    ]


def name_of(requirement: str) -> str:
    """Return a requirement's bare name, spelled one way."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", match.group()).lower() if match else ""


def constraints(kind: str) -> list[str]:
    """Return the constraints of one *kind* of run."""
    lines = [line.strip() for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()]
    pinned = [line for line in lines if line and not line.startswith("#")]
    if kind in ("checkout", "wheel"):
        return pinned
    # Only what the package asks for by name is freed or lowered, and what comes with it; the tools stay.
    ours = dependencies()
    kept = [line for line in pinned if name_of(line) in {name_of(tool) for tool in tools(kind)}]
    if kind == "newest":
        return kept
    oldest = [re.sub(r">=\s*([^,]+).*", r"==\1", needed) for needed in ours]
    return kept + [re.sub(r"\[.*?\]", "", line) for line in oldest]


def tools(kind: str) -> list[str]:
    """Return what is installed beside the project; ``constraints.txt`` has the versions."""
    return [*SUITE, "hatchling"] if kind == "lowest" else [*SUITE, *NEIGHBOURS, *CHECKERS]


def version_of(python: str) -> str:
    """Return an interpreter's version, such as ``3.11.7``."""
    show = "import platform; print(platform.python_version())"
    try:
        done = subprocess.run([python, "-c", show], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"tests: {python} is no Python that runs here ({error})") from None
    return done.stdout.strip()


def fingerprint(kind: str, version: str) -> str:
    """Name all that an environment is made from."""
    digest = hashlib.sha256(f"{kind} {version}".encode())
    for path in (CONSTRAINTS, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make_environment(home: Path, python: str) -> list[str | Path]:
    """Make an empty environment in *home*; return the command that is its pip."""
    if home.exists():
        shutil.rmtree(home)
    inside = home / "bin" / "python"
    if python != sys.executable or importlib.util.find_spec("ensurepip"):
        run(python, "-m", "venv", home)
        return [inside, "-m", "pip"]
    # Debian keeps ensurepip in a package of its own; pip 22.3 and newer can install into another environment.
    run(python, "-m", "venv", "--without-pip", home)
    return [python, "-m", "pip", "--python", inside]


def install(home: Path, kind: str, python: str) -> None:
    """Install the project with all extras, and the tools, into a new environment."""
    print(f"tests: making {home.relative_to(ROOT)} (once; it is kept)", file=sys.stderr, flush=True)
    pip = [*make_environment(home, python), "install", "--quiet", "--disable-pip-version-check"]
    listed = home / "constraints.txt"
    listed.write_text("\n".join(constraints(kind)) + "\n", encoding="utf-8")
    if kind == "wheel":
        run(*pip, "-c", listed, *tools(kind))
        run(
            home / "bin" / "python", "-m", "build", "--outdir", home / "dist", ROOT, stdout=subprocess.DEVNULL
        )
        (wheel,) = (home / "dist").glob("*.whl")
        run(*pip, "-c", listed, f"{wheel}[all]")
    else:
        run(*pip, "-c", listed, *tools(kind), "-e", f"{ROOT}[all]")


def environment(kind: str, python: str, *, fresh: bool) -> Path:
    """Return the folder of a ready environment, made anew only when it has to be."""
    version = version_of(python)
    home = ENVIRONMENTS / f"{kind}-{version}"
    stamp = home / "made-from"
    wanted = fingerprint(kind, version)
    # A wheel is a copy of the code: it is built anew each time.
    if fresh or kind == "wheel" or not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        install(home, kind, python)
        stamp.write_text(wanted, encoding="utf-8")
    return home


def copy_without_package(target: Path) -> Path:
    """Copy the checkout without the package, so that tests can only import the installed one."""
    skipped = shutil.ignore_patterns(
        ".git", ".test-env", ".venv", "__pycache__", "mintlify_async", "node_modules", ".*_cache"
    )
    return Path(shutil.copytree(ROOT, target / "project", ignore=skipped))


def run_pytest(home: Path, kind: str, arguments: list[str], variables: dict[str, str]) -> int:
    """Run pytest in the environment; return its exit status."""
    command = [str(home / "bin" / "python"), "-m", "pytest", *arguments]
    if kind != "wheel":
        return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
    with tempfile.TemporaryDirectory() as folder:
        where = copy_without_package(Path(folder))
        return subprocess.run(command, cwd=where, env=variables, check=False).returncode


def run_all(home: Path, commands: list[list[str]], variables: dict[str, str]) -> int:
    """Run every command, the later ones also after a failure; return 1 when one failed."""
    failed = []
    for command in commands:
        print("tests: " + " ".join(command), file=sys.stderr, flush=True)
        done = subprocess.run([home / "bin" / command[0], *command[1:]], cwd=ROOT, env=variables, check=False)
        if done.returncode:
            failed.append(" ".join(command))
    for line in failed:
        print(f"tests: failed: {line}", file=sys.stderr)
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    """Do what the arguments say; return the exit status."""
    options, rest = parse_arguments(arguments)
    home = environment(options.kind, options.python, fresh=options.fresh)
    variables = {
        **os.environ,
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "VIRTUAL_ENV": str(home),
    }
    variables["PYRIGHT_PYTHON_IGNORE_WARNINGS"] = "1"  # it would advise a newer version than the pinned one
    if options.require_real:
        variables[REQUIRE_REAL] = "1"
    if options.check or options.format:
        return run_all(home, MENDS if options.format else CHECKS, variables)
    return run_pytest(home, options.kind, rest, variables)


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
    except KeyboardInterrupt:
        status = 130
    raise SystemExit(status)
