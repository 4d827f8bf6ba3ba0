"""Makes the generated pages of the documentation, with ``tox -e docs``.

The reference comes from signatures and docstrings, and from the command line's parser. A page that shows a
file of ``examples/`` gets its present contents.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from page_blocks import ROOT, with_examples
from reference import TABLES, Entry, Writer, entries, paragraphs, table

import mintlify_async
from mintlify_async.cli.argument_parser import make_parser
from mintlify_async.testing import pytest_plugin

DOCS = Path(mintlify_async.__file__).parent / "docs"
START = "Installation, keys, errors, and which call to use."
POLL_ERRORS = """\
A wait for a job also raises [the error of a poll](../how-to/timeouts.md#failing-polls): immediately if the
service refuses it, as with 401 or 403, and otherwise after five minutes without a successful poll. The job
keeps running. Wait again with `session.job(ref)`."""


def link(name: str, page: str) -> str | None:
    """Return the link to a name, or to a class's method. Of two links, return the one on the same page."""
    words = name.split(".")
    matches = [entry for entry in entries() if entry.name in words[-2:]]
    matches.sort(key=lambda entry: entry.page != page)
    return f"{matches[0].page}.md#{matches[0].name.lower()}" if matches else None


def api_page(page: str) -> str:
    """Return the Markdown of a page of the Python interface."""
    writer = Writer(lambda name: link(name, page))
    inside = [entry for entry in entries() if entry.page == page]
    order = TABLES["first"].get(page, [])
    inside.sort(key=lambda entry: [*order, entry.name].index(entry.name))
    parts: list[str] = []
    for entry in inside:
        advice = TABLES["what_to_do"].get(entry.name, "")
        given = TABLES["given"].get(f"{page}.{entry.name}", TABLES["given"].get(entry.name, ""))
        itself, methods, more = writer.entry(entry, made_by=given).partition("\n\n### ")
        parts += [f"## {entry.name}", itself, f"**What to do:** {advice}" if advice else ""]
        parts.append(f"{methods.strip()} {more}" if methods else "")
    if page == "testing":
        parts += ["## pytest fixtures", fixtures(writer)]
    if page == "errors":
        parts = ["## All errors", all_errors(writer, inside), POLL_ERRORS, *parts]
    return paragraphs(*parts)


def all_errors(writer: Writer, inside: Iterable[Entry]) -> str:
    """Return the errors as a table, in the order of the table ``sent``."""
    meanings = {one.name: inspect.cleandoc(one.thing.__doc__ or "").partition("\n\n")[0] for one in inside}
    bases = {one.name: ", ".join(f"`{base.__name__}`" for base in one.thing.__bases__) for one in inside}
    rows = [
        (
            f"[`{name}`](#{name.lower()})",
            bases[name],
            writer.cell(meanings[name]),
            sent,
            TABLES["what_to_do"][name],
        )
        for name, sent in TABLES["sent"].items()
    ]
    return table(("Error", "Base classes", "Meaning", "Was something sent?", "What to do"), rows)


def fixtures(writer: Writer) -> str:
    """Return the pytest fixtures as a table."""
    things = [(name, thing) for name, thing in vars(pytest_plugin).items() if not name.startswith("_")]
    fixtures = [(name, thing) for name, thing in things if "Fixture" in type(thing).__name__]
    rows = [(f"`{name}`", writer.cell(thing.__doc__ or "")) for name, thing in fixtures]
    return table(("Fixture", "What it is"), rows)


def command_line_page() -> str:
    """Return the Markdown of the commands, each with its arguments, and of the exit statuses."""
    parser = make_parser()
    parts = [options(parser)]
    for name, command in subcommands(parser):
        parts += [f"## {name}", command_text(f"mintlify-async {name}", command)]
        for verb, below in subcommands(command):
            parts += [f"### {name} {verb}", command_text(f"mintlify-async {name} {verb}", below)]
        calls = re.findall(r"(?m)^  (.*mintlify-async .*)$", command.epilog or "")
        parts.append("```bash\n" + "\n".join(calls) + "\n```" if calls else "")
        typed = re.findall(r"(?m)^  (/\w+) +(.+)$", command.epilog or "")
        rows = [(f"`{word}`", sentence(meaning)) for word, meaning in typed]
        parts.append(table(("In the conversation", "Meaning"), rows) if rows else "")
    statuses = [
        (f"`{status}`", meaning.replace("|", "\\|")) for status, meaning in TABLES["exit_statuses"].items()
    ]
    return paragraphs(*parts, "## Exit statuses", table(("Status", "Meaning"), statuses))


def subcommands(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    """Return the commands below a parser, in order."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return list(actions[0].choices.items()) if actions else []


def command_text(call: str, parser: argparse.ArgumentParser) -> str:
    """Return the description of a command, and its arguments."""
    if subcommands(parser):
        return sentence(parser.description)
    names = [(one.dest.upper(), one.nargs) for one in parser._actions if not one.option_strings]
    shown = [f"[{name}]" if nargs else name for name, nargs in names]
    usage = f"```bash\n{' '.join([call, *shown])} [options]\n```"
    return paragraphs(sentence(parser.description), usage, options(parser))


def options(parser: argparse.ArgumentParser) -> str:
    """Return the arguments of a command as a table."""
    rows = []
    for action in sorted(parser._actions, key=lambda action: bool(action.option_strings)):
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.dest}`"
        value = action.metavar or (action.dest.upper() if action.nargs is None else "")
        shown = f"`{value}`" if value and action.option_strings else ""
        rows.append((names, shown, sentence(action.help).replace("|", "\\|")))
    return table(("Argument", "Value", "Meaning"), rows) if rows else ""


def sentence(text: str | None) -> str:
    """Return a text of argparse as a sentence of the page."""
    words = re.sub(r"(--[\w-]+|MINTLIFY_\w+)", r"`\1`", " ".join((text or "").split()))
    return f"{words[:1].upper()}{words[1:]}".rstrip(".") + "." if words else ""


def environment_page() -> str:
    """Return the Markdown of the variables that the code reads."""
    groups = []
    for title, meanings in TABLES["variables"].items():
        rows = [(f"`{name}`", meaning) for name, meaning in meanings.items()]
        groups.append(paragraphs(f"## {title}", table(("Variable", "Meaning"), rows)))
    return paragraphs(*groups)


def made_pages() -> dict[Path, str]:
    """Return each file that is made, or that shows an example, with its contents. Nothing is written."""
    others = {"command-line": command_line_page, "environment": environment_page}
    pages: dict[Path, str] = {}
    for page, words in TABLES["pages"].items():
        note = "<!-- Made by `tox -e docs`: change the docstrings, not this page. -->"
        text = others[page]() if page in others else api_page(page)
        page_text = paragraphs(f"# {words['title']}", words["description"], note, words["opening"], text)
        pages[DOCS / "reference" / f"{page}.md"] = f"{page_text}\n"
    by_hand = [ROOT / "README.md", *(file for file in DOCS.rglob("*.md") if file.parent.name != "reference")]
    pages |= {file: with_examples(file.read_text(encoding="utf-8")) for file in by_hand}
    return pages | {DOCS.parent / "llms.txt": llms_text(pages)}


def groups_of(index: str) -> dict[str, list[str]]:
    """Return the paths of the pages in each row of the table *All pages*, which has their order."""
    rows = re.findall(r"(?m)^\| ([^|]+) \| (\[.+) \|$", index.partition("\n## All pages\n")[2])
    return {group: re.findall(r"\]\(([^)]+)\)", links) for group, links in rows}


def opening_of(page: str) -> tuple[str, str]:
    """Return the title of a page, and the sentence below it."""
    match = re.match(r"# ([^\n]+)\n\n(.+?)\n\n", page, re.DOTALL)
    assert match, f"a page begins with its title and a sentence, not with {page[:60]!r}"
    return match[1], " ".join(match[2].split())


def llms_text(pages: Mapping[Path, str]) -> str:
    """Return the list of the pages, with a line for each."""
    title, words = opening_of(pages[DOCS / "index.md"])
    parts = [f"# {title}", f"> {words}", f"- [Start here](docs/index.md): {START}"]
    for group, paths in groups_of(pages[DOCS / "index.md"]).items():
        openings = [(path, *opening_of(pages[DOCS / path])) for path in paths]
        lines = [f"- [{title}](docs/{path}): {words}" for path, title, words in openings]
        parts += [f"## {group}", "\n".join(lines)]
    return f"{paragraphs(*parts)}\n"


def main() -> None:
    """Write the files that have changed, and print their names."""
    for file, text in made_pages().items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(f"{file.relative_to(ROOT)} was written")


if __name__ == "__main__":
    main()
