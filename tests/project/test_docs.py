"""The documentation: its pages, links and code. What is made from the code is up to date."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterator

import make
import pytest
import write_blocks
from make import DOCS, TABLES
from page_blocks import FENCE, ROOT, RUN, Block, blocks_of

from mintlify_async.cli import exit_status
from mintlify_async.testing.docs_index import anchor_of
from tests.support.child_process import child_environment
from tests.support.github_form import shown_on_github
from tests.support.page_runner import run_tests, skip_without_modules, write_files

PACKAGE = DOCS.parent
INDEX = (DOCS / "index.md").read_text(encoding="utf-8")
FILES = {file.relative_to(DOCS).with_suffix("").as_posix(): file for file in sorted(DOCS.rglob("*.md"))}
BY_HAND = {name: file for name, file in FILES.items() if not name.startswith("reference/")}


def without_code(text: str) -> str:
    """Return a page's text without code blocks, code in lines, and comments."""
    plain = re.sub(r"<!--.*?-->", "", FENCE.sub("", text), flags=re.DOTALL)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", plain, flags=re.DOTALL)


PROSE = {name: without_code(file.read_text(encoding="utf-8")) for name, file in FILES.items()}


def test_the_index_names_every_page_once():
    """By its title, in the order to read them. A page without a place is found by nobody."""
    groups = make.groups_of(INDEX)
    assert sorted(path for paths in groups.values() for path in paths) == sorted(
        f"{name}.md" for name in FILES if name != "index"
    )
    titles = dict(re.findall(r"\[([^\]]+)\]\(([^)]+)\)", INDEX.partition("## All pages")[2]))
    texts = {path: (DOCS / path).read_text(encoding="utf-8") for path in titles.values()}
    assert titles == {make.opening_of(text)[0]: path for path, text in texts.items()}


def test_each_page_begins_with_its_title_and_a_sentence():
    """The sentence says what the page is for. Searches and ``llms.txt`` show both, so titles differ."""
    openings = {name: make.opening_of(file.read_text(encoding="utf-8")) for name, file in FILES.items()}
    assert not [name for name, (_, words) in openings.items() if not re.fullmatch(r"\w.{18,158}\.", words)]
    assert len({title for title, _ in openings.values()}) == len(FILES)
    assert not [name for name, text in PROSE.items() if len(re.findall(r"^# ", text, re.MULTILINE)) != 1]


def test_pages_are_plain_markdown():
    """Tags are those of pictures. Other angle brackets and braces are code, or escaped."""
    left = {
        name: re.findall(r"(?<!\\)(?:<(?!/?(?:picture|source|img)\b)|[{}]|^:::|^import ).{0,30}", text, re.M)
        for name, text in PROSE.items()
    }
    assert not {name: found for name, found in left.items() if found}


def links() -> Iterator[tuple[str, str]]:
    """Yield each link and picture of the pages: the page that it stands on, and its target."""
    for name, file in FILES.items():
        text = without_code(file.read_text(encoding="utf-8").replace("[`", "[").replace("`]", "]"))
        for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text):
            yield name, target[0] or target[1]


def anchors(name: str) -> set[str]:
    """Return the anchors of a page as GitHub makes them: a second one of a name has a number."""
    text = FENCE.sub("", FILES[name].read_text(encoding="utf-8"))
    taken: list[str] = []
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        anchor = anchor_of(heading)
        taken.append(f"{anchor}-{taken.count(anchor)}" if anchor in taken else anchor)
    return set(taken)


def leads_somewhere(page: str, target: str) -> bool:
    """Return whether a target is on the web, a file next to *page*, or a heading of a page."""
    if re.match(r"https?://|mailto:", target):
        return True
    path, _, anchor = target.partition("#")
    file = (FILES[page].parent / path).resolve() if path else FILES[page]
    if not anchor or path[:1] == "/":
        return path[:1] != "/" and file.is_file()
    return anchor in anchors(file.relative_to(DOCS.resolve()).with_suffix("").as_posix())


def test_links_lead_somewhere():
    """A link is a path from its page to another file, and a heading of that page."""
    assert not [link for link in dict.fromkeys(links()) if not leads_somewhere(*link)]


@pytest.mark.real
def test_pages_on_github():
    """Each link and anchor leads somewhere there too, and no mark, tag or brace is left as text."""
    files = {name: file.read_text(encoding="utf-8") for name, file in FILES.items()}
    pages = shown_on_github({**files, "README": (ROOT / "README.md").read_text(encoding="utf-8")})
    left = re.compile(r"[<>{}]|\]\(|\*\*|`|\\[^\w]|:::|\[!|^\w+: \"")
    marks = {name: [text for text in page["texts"] if left.search(text)] for name, page in pages.items()}
    assert not {name: texts for name, texts in marks.items() if texts}
    for name, page in pages.items():
        place = DOCS / name if name in FILES else ROOT / "README"
        assert len(page["titles"]) == 1
        assert name not in FILES or set(page["anchors"]) == anchors(name)
        for link in page["links"] + page["images"]:
            path, _, anchor = link.partition("#")
            if re.match(r"https?://", link):
                continue
            file = (place.parent / path).resolve() if path else place.with_suffix(".md").resolve()
            assert file.exists(), (name, link)
            if anchor:
                assert anchor in pages[file.relative_to(DOCS.resolve()).with_suffix("").as_posix()]["anchors"]


def test_links_of_the_readme_lead_somewhere():
    """To pages of the site, and their headings, and to files."""
    links = re.findall(r"\]\(([^)]+)\)", without_code((ROOT / "README.md").read_text(encoding="utf-8")))
    there = [ROOT, PACKAGE.parent]  # a wheel's pages are elsewhere
    pages = [link.removeprefix("mintlify_async/docs/") for link in links]
    left = [
        link
        for link, page in zip(links, pages, strict=True)
        if link == page or not leads_somewhere("index", page)
    ]
    left = [link for link in left if not link.startswith(("https://", "http://"))]
    assert not [target for target in left if not any((folder / target).exists() for folder in there)]


def test_every_image_is_shown():
    """Each is on a page, with words for those who do not see it."""
    pages = "".join(file.read_text(encoding="utf-8") for file in [*FILES.values(), ROOT / "README.md"])
    shown = re.findall(r"!\[\w[^\]]+\]\([^)]*(images/[^)]+)\)", pages)
    shown += re.findall(r'<img [^>]*src="[^"]*(images/[^"]+)"[^>]* alt="\w[^"]+">', pages)
    shown += re.findall(r'<source [^>]*srcset="[^"]*(images/[^"]+)">', pages)
    assert set(shown) == {file.relative_to(DOCS).as_posix() for file in (DOCS / "images").iterdir()}


BLOCKS = [block for file in BY_HAND.values() for block in blocks_of(file) if block.language in RUN]
RUN_ELSEWHERE = ("tutorial",)  # test_readme runs its steps in order
RUN_HERE = [block for block in BLOCKS if block.kind != "skip" and block.file.stem not in RUN_ELSEWHERE]


@pytest.mark.parametrize(
    "block", [block for block in RUN_HERE if block.kind != "test"], ids=lambda block: block.where
)
async def test_code_runs_as_it_is_printed(block: Block, run_block):
    """Programs, fragments and commands; copies of examples are the examples."""
    await run_block(block)


@pytest.mark.real
async def test_tests_pass_as_they_are_printed(tmp_path):
    """Those of all pages in one run of pytest, with the one setting that the pages show."""
    for block in [block for block in RUN_HERE if block.kind == "test"]:
        skip_without_modules(block)
        folder = tmp_path / block.file.stem
        folder.mkdir(exist_ok=True)
        write_files(block, folder)
        (folder / f"test_{block.file.stem}_{block.line}.py").write_text(block.text, encoding="utf-8")
    await run_tests(tmp_path, child_environment(), "-o", "asyncio_mode=auto")


def test_code_is_handed_to_the_type_checkers(tmp_path):
    """``tox -e types`` reads each fragment and program as a module."""
    write_blocks.main(tmp_path)
    modules = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.glob("*.py")}
    assert len(modules) >= sum(block.kind in write_blocks.CHECKED for block in BLOCKS)
    for name, text in modules.items():
        compile(text, name, "exec")


@pytest.mark.real  # griffe starts git
def test_made_pages_are_up_to_date():
    """The reference is the one list of public names, signatures and defaults."""
    pages = make.made_pages().items()
    assert not [file.name for file, text in pages if file.read_text("utf-8") != text], "run `tox -e docs`"


def test_each_entry_explains_its_fields():
    """An entry with arguments has a table of them, and no meaning in it is empty."""
    texts = [file.read_text(encoding="utf-8") for name, file in FILES.items() if name not in BY_HAND]
    entries = [entry for text in texts for entry in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]]
    calls = {entry.partition("\n")[0]: entry for entry in entries if re.search(r"```py\n[^\n]*\([^)]", entry)}
    assert len(calls) > 100
    assert not [name for name, entry in calls.items() if re.search(r"\| +\|$", entry, re.MULTILINE)]
    classes = {name: entry for name, entry in calls.items() if re.search(rf"```py\n{name}\(", entry)}
    classes = {name: entry for name, entry in classes.items() if name[0].isupper() and "." not in name}
    assert not [name for name, entry in classes.items() if "| Meaning |" not in entry]


def test_each_class_with_documented_arguments_shows_its_call():
    """Who writes ``raise RelayRefusal(…)`` or ``return Answer(…)`` sees the arguments in their order."""
    pages = {
        page: FILES[f"reference/{page}"].read_text("utf-8") for page in {one.page for one in make.entries()}
    }
    given = TABLES["given"]
    made = [
        one
        for one in make.entries()
        if isinstance(one.thing, type)
        and "\nArgs:\n" in inspect.cleandoc(one.thing.__doc__ or "")
        and not {one.name, f"{one.page}.{one.name}"} & {*given}
    ]
    texts = {
        one.name: pages[one.page].partition(f"\n## {one.name}\n")[2].partition("\n## ")[0] for one in made
    }
    assert {"RelayRefusal", "Timeouts"} <= {*texts}
    assert not [name for name, text in texts.items() if f"```py\n{name}(" not in text]


def test_each_error_has_advice_and_a_row():
    """Its meaning alone does not help; a search for its name finds the page."""
    things = {entry.name: entry.thing for entry in make.entries() if isinstance(entry.thing, type)}
    errors = {name for name, thing in things.items() if issubclass(thing, Exception)}
    page = FILES["troubleshooting"].read_text("utf-8")
    headings = "\n".join(re.findall(r"^#+ .*|^\| `\w+Error` \|", page, re.MULTILINE))
    assert errors
    assert errors <= {*TABLES["what_to_do"]}
    assert errors == {*TABLES["sent"], "MintlifyError", "RelayRefusal"}
    assert errors <= {"MintlifyError", "APIStatusError", "StreamError", *re.findall(r"\w+", headings)}


@pytest.mark.parametrize("fact", ["23 credits", "about 110", "10,000 per", "per project and hour"])
def test_a_fact_of_the_service_stands_once(fact):
    """Prices and limits change. A copy on another page would stay as it was."""
    assert [name for name, text in PROSE.items() if fact in " ".join(text.split())] == ["limits"]


def test_reference_has_every_exit_status():
    """A script decides by them."""
    statuses = {value for name, value in vars(exit_status).items() if name.isupper()}
    assert {int(status) for status in TABLES["exit_statuses"]} == statuses


def test_reference_has_every_environment_variable():
    """And none that the code does not know."""
    names: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        names |= set(re.findall(r"\bMINTLIFY_[A-Z_]+[A-Z]\b(?!\{)", text))
        names |= set(re.findall(r"env(?:iron)?(?:\.get\(|\[)[\"']([A-Z_]+)[\"']", text))
    names.add("NO_COLOR")  # rich reads it
    assert names - {"RELAY_SECRET"} == {name for rows in TABLES["variables"].values() for name in rows}


def test_every_assumption_has_its_row():
    """What the package relies on without the service's word stands on the page for it."""
    marks: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        marks |= set(re.findall(r"# assumption: (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE))
    page = FILES["explanation/assumptions"].read_text(encoding="utf-8").lower()
    assert marks
    assert not [words for words in marks if words.strip().lower() not in page]


def test_the_figures_are_those_of_the_benchmarks():
    """``tox -e docs`` renews table and chart; they cannot go stale unnoticed."""
    pictures = pytest.importorskip("pictures", reason="rich is not installed")
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    text = FILES["explanation/speed"].read_text(encoding="utf-8")
    assert pictures.with_speed_table(text, pictures.speed_table(results)) == text
    assert (DOCS / "images" / "speed.svg").read_text(encoding="utf-8") == pictures.speed_picture(results)


@pytest.mark.real
def test_the_picture_shows_the_terminal_as_it_is():
    """The command prints today what the picture shows."""
    pictures = pytest.importorskip("pictures", reason="rich is not installed")
    stored = (DOCS / "images" / "terminal.svg").read_text(encoding="utf-8")
    assert pictures.text_of(pictures.terminal_picture()) == pictures.text_of(stored)


def test_every_extra_can_be_installed():
    """The first page has the command for a checkout, and what to write in another folder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = FILES["index"].read_text(encoding="utf-8")
    assert "`pip install '/path/to/mintlify-async[cli]'`" in page
    for extra in project["optional-dependencies"]:
        assert f"| `pip install '.[{extra}]'` |" in page


def test_no_page_installs_from_an_index():
    """The package is on none: a command that is copied would find nothing, or somebody else's package."""
    files = [*FILES.values(), ROOT / "README.md", *(ROOT / "examples").rglob("*.py")]
    files += (ROOT / "examples").rglob("README.md")
    left = re.compile(r"pip install\b[^\n`]*(?<!/)\bmintlify-async\b[^\n`]*")
    commands = {file.name: left.findall(file.read_text(encoding="utf-8")) for file in files}
    assert not {name: found for name, found in commands.items() if found}
