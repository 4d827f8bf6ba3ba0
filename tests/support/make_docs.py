"""Makes the pages of the documentation that are not written by hand: ``tox -e docs``.

The reference comes from the source's docstrings and signatures, and from the command line's parser. Pages
that show a file of ``examples/`` get its present contents.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import griffe
from page_blocks import ROOT, with_examples
from reference_text import Writer, has_no_constructor, is_error, joined, table

import mintlify_async
from mintlify_async.cli.argument_parser import make_parser

PACKAGE = Path(mintlify_async.__file__).parent
DOCS = PACKAGE / "docs"
TABLES = tomllib.loads(Path(__file__).with_name("reference.toml").read_text(encoding="utf-8"))
NAMES = [
    tuple(line.split()) for line in (ROOT / "tests" / "public_names.txt").read_text("utf-8").splitlines()
]
"""Each public path with each of its names."""


class Entry(NamedTuple):
    """One public thing, under all of its public paths.

    Attributes:
        name: Its name.
        paths: The modules to import it from, the shortest first.
        thing: What griffe found.
        page: The page that it is on.
    """

    name: str
    paths: tuple[str, ...]
    thing: griffe.Object
    page: str

    @property
    def heading(self) -> str:
        """The heading, and with that the anchor."""
        return self.name

    @property
    def address(self) -> str:
        """Where it is on the site."""
        return f"/reference/{self.page}#{self.heading.lower()}"


@cache
def package() -> griffe.Module:
    """Return the package as its source says it; nothing is imported."""
    loaded = griffe.load("mintlify_async", search_paths=[str(PACKAGE.parent)], resolve_aliases=True)
    assert isinstance(loaded, griffe.Module)
    return loaded


@cache
def entries() -> tuple[Entry, ...]:
    """Return every public name once, in the order of ``public_names.txt``."""
    found: dict[str, list[tuple[str, str, griffe.Object]]] = {}
    for path, name in NAMES:
        thing = package()[".".join([*path.split(".")[1:], name])]
        thing = thing.final_target if thing.is_alias else thing
        found.setdefault(thing.path, []).append((path, name, thing))
    made = []
    for same in found.values():
        paths = tuple(sorted((path for path, _, _ in same), key=len))
        name, thing = same[0][1:]
        made.append(Entry(name, paths, thing, page_of(thing)))
    return tuple(made)


def page_of(thing: griffe.Object) -> str:
    """Return the page that an entry belongs to, by where it is defined."""
    for beginning, page in TABLES["page_of_module"].items():
        if f"{thing.path}.".startswith(f"mintlify_async.{beginning}."):
            return str(page)
    raise AssertionError(f"{thing.path} is on no page: add its module to tests/support/reference.toml")


def link(name: str, page: str) -> str | None:
    """Return the address of a name, or of a class's method; of two, the one on the same page."""
    words = name.split(".")
    candidates = [entry for entry in entries() if entry.name in (words[-1], *words[-2:-1])]
    candidates.sort(key=lambda entry: (entry.name != words[-1], entry.page != page))
    return candidates[0].address if candidates else None


def api_page(page: str) -> str:
    """Return the Markdown of a page of the interface in Python."""
    writer = Writer(lambda name: link(name, page))
    inside = [entry for entry in entries() if entry.page == page]
    order = TABLES["first"].get(page, [])
    inside.sort(key=lambda entry: order.index(entry.name) if entry.name in order else len(order))
    written = [joined(f"## {entry.heading}", imported(entry), body(entry, writer)) for entry in inside]
    return joined(*written, *(more_about_testing(writer) if page == "testing" else ()))


def imported(entry: Entry) -> str:
    """Return the line that says where the name can be imported from."""
    return "Import it from " + " or ".join(f"`{path}`" for path in entry.paths) + "."


def body(entry: Entry, writer: Writer) -> str:
    """Return what is said about an entry."""
    advice = TABLES["what_to_do"].get(entry.name, "")
    match entry.thing:
        case griffe.Class():
            given = TABLES["given"].get(entry.name, "")
            elsewhere = bool(given) or is_error(entry.thing) or has_no_constructor(entry.thing)
            text = joined(given, writer.of_class(entry.thing, entry.name, elsewhere))
        case griffe.Function():
            text = writer.function(entry.thing, entry.name)
        case griffe.Attribute():
            text = writer.value(entry.thing)
        case _:
            text = writer.prose(entry.thing.docstring.value if entry.thing.docstring else "")
    return joined(text, f"**What to do:** {advice}" if advice else "")


def more_about_testing(writer: Writer) -> Iterator[str]:
    """Yield what the testing page has beside Python names: fixtures, script files, endpoints."""
    testing = package()["testing"]
    members = testing["pytest_plugin"].functions.values()
    fixtures = [(f"`{one.name}`", writer.cell(one.docstring.value)) for one in members if is_fixture(one)]
    yield joined("## pytest fixtures", table(("Fixture", "What it is"), fixtures))
    for heading, module in {"Script files": "script_file", "Inspection over HTTP": "inspection"}.items():
        yield joined(f"## {heading}", writer.prose(testing[module].docstring.value))


def is_fixture(function: griffe.Function) -> bool:
    """Tell whether it is a fixture for users."""
    return not function.name.startswith("_") and any(
        "fixture" in str(one.value) for one in function.decorators
    )


# The command line


def command_line_page() -> str:
    """Return the Markdown of the commands, each with its arguments, and of the exit statuses."""
    parser = make_parser()
    parts = [table_of_options(parser)]
    for name, command in subcommands(parser):
        parts += [f"## {name}", command_text(f"mintlify-async {name}", command)]
        for verb, below in subcommands(command):
            parts += [f"### {name} {verb}", command_text(f"mintlify-async {name} {verb}", below)]
        parts.append(f"```bash\n{examples(command)}\n```" if examples(command) else "")
    statuses = [(f"`{status}`", meaning) for status, meaning in TABLES["exit_statuses"].items()]
    return joined(*parts, "## Exit statuses", table(("Status", "Meaning"), statuses))


def subcommands(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    """Return the commands below a parser, in order."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return list(found[0].choices.items()) if found else []


def command_text(call: str, parser: argparse.ArgumentParser) -> str:
    """Return what a command does, and its arguments."""
    names = [(one.dest.upper(), one.nargs) for one in parser._actions if not one.option_strings]
    shown = [f"[{name}]" if nargs else name for name, nargs in names]
    if subcommands(parser):
        return sentence(parser.description)
    return joined(
        sentence(parser.description),
        f"```bash\n{' '.join([call, *shown])} [options]\n```",
        table_of_options(parser),
    )


def table_of_options(parser: argparse.ArgumentParser) -> str:
    """Return the arguments of a command as a table."""
    rows = []
    for action in sorted(parser._actions, key=lambda action: bool(action.option_strings)):
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.dest}`"
        value = action.metavar or (
            action.dest.upper() if action.nargs is None and action.option_strings else ""
        )
        says = sentence(action.help).replace("|", "\\|")
        rows.append((names, f"`{value}`" if value and action.option_strings else "", says))
    return table(("Argument", "Value", "Meaning"), rows) if rows else ""


def sentence(text: str | None) -> str:
    """Return a text of argparse as a sentence of the page."""
    words = " ".join((text or "").split())
    words = re.sub(r"(--[\w-]+|MINTLIFY_\w+)", r"`\1`", words)
    return f"{words[:1].upper()}{words[1:]}".rstrip(".") + "." if words else ""


def examples(parser: argparse.ArgumentParser) -> str:
    """Return the calls of a command's help."""
    lines = (parser.epilog or "").splitlines()
    return "\n".join(line.strip() for line in lines if re.match(r"  .*mintlify-async ", line))


def environment_page() -> str:
    """Return the Markdown of the variables that the code reads."""
    groups: list[str] = []
    for title, rows in TABLES["variables"].items():
        lines = [(f"`{name}`", meaning) for name, meaning in rows.items()]
        groups.append(joined(f"## {title}", table(("Variable", "Meaning"), lines)))
    return joined(*groups)


# Files


@cache
def made_pages() -> dict[Path, str]:
    """Return the contents of each file that is made, without writing it."""
    others = {"command-line": command_line_page, "environment": environment_page}
    made = {}
    for page, words in TABLES["pages"].items():
        front = f'---\ntitle: "{words["title"]}"\ndescription: "{words["description"]}"\n---\n'
        note = "{/* Made by `tox -e docs`: change the docstrings, not this page. */}"
        text = others[page]() if page in others else api_page(page)
        made[DOCS / "reference" / f"{page}.mdx"] = joined(front + "\n" + note, words["opening"], text) + "\n"
    return made


@cache
def renewed_pages() -> dict[Path, str]:
    """Return README and each page that shows an example, with its present contents."""
    files = [ROOT / "README.md", *(file for file in DOCS.rglob("*.mdx") if file.parent.name != "reference")]
    return {file: with_examples(file.read_text(encoding="utf-8")) for file in files}


def main() -> None:
    """Write what has changed, and say what that was."""
    for file, text in (made_pages() | renewed_pages()).items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            print(f"{file} was written")


if __name__ == "__main__":
    main()
