"""The documentation site: its settings, pages, links and code, and the answers that are made from it."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import make_docs
import pytest
import write_blocks
from command_line import run
from make_docs import DOCS, NAMES, PACKAGE, TABLES
from page_blocks import FENCE, ROOT, RUN, Block, blocks_of, modules_of

from mintlify_async.cli import exit_status
from mintlify_async.testing import DocsIndex, LocalService

SETTINGS = json.loads((DOCS / "docs.json").read_text(encoding="utf-8"))
FILES = {file.relative_to(DOCS).with_suffix("").as_posix(): file for file in sorted(DOCS.rglob("*.mdx"))}
BY_HAND = {name: file for name, file in FILES.items() if not name.startswith("reference/")}
INDEX = DocsIndex.load(DOCS)

THEMES = {"mint", "maple", "palm", "willow", "linden", "almond", "aspen", "luma", "sequoia"}
COMPONENTS = {"Note", "Warning", "Tip", "Info", "Steps", "Step", "CodeGroup", "Card", "CardGroup"}
LONGEST_PAGE = 250


# Settings


def test_settings_have_the_services_form():
    """``docs.json`` as the service's own schema has it, of which this is the part that we use."""
    assert set(SETTINGS) == {"$schema", "theme", "name", "description", "colors", "navigation"}
    assert SETTINGS["theme"] in THEMES
    assert {"primary"} <= set(SETTINGS["colors"]) <= {"primary", "light", "dark"}
    assert all(re.fullmatch(r"#[0-9a-fA-F]{6}", color) for color in SETTINGS["colors"].values())
    assert set(SETTINGS["navigation"]) == {"groups"}
    for group in SETTINGS["navigation"]["groups"]:
        assert set(group) == {"group", "pages"}
        assert group["group"]
        assert group["pages"]
        assert all(re.fullmatch(r"[a-z-]+(/[a-z-]+)?", page) for page in group["pages"])


def named_pages() -> list[str]:
    return [page for group in SETTINGS["navigation"]["groups"] for page in group["pages"]]


def test_navigation_names_every_page_once():
    """A page without a place is found by nobody, and a place without a page is an error of the site."""
    named = named_pages()
    assert len(named) == len(set(named))
    assert set(named) == set(FILES)


# Pages


def without_code(text: str) -> str:
    """Return a page's text without code blocks, code in lines, and comments."""
    plain = re.sub(r"\{/\*.*?\*/\}", "", FENCE.sub("", text), flags=re.DOTALL)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", plain, flags=re.DOTALL)


@pytest.mark.parametrize("file", FILES.values(), ids=list(FILES))
def test_page_says_what_it_is(file):
    """Title and description, which are shown in searches; the title is not repeated as a heading."""
    text = file.read_text(encoding="utf-8")
    front = re.match(r'---\ntitle: "([^"\n]+)"\ndescription: "([^"\n]{20,160})"\n---\n\n', text)
    assert front, (
        "begin with title and description, each in quotation marks; 20 to 160 characters describe it"
    )
    assert not re.search(r"^# ", without_code(text), re.MULTILINE)


def test_titles_differ():
    """A search shows the title alone."""
    titles = [page.title for page in INDEX.pages.values()]
    assert sorted(titles) == sorted(set(titles))


@pytest.mark.parametrize("file", BY_HAND.values(), ids=list(BY_HAND))
def test_page_can_be_read_in_one_go(file):
    """A longer one is two pages."""
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST_PAGE


@pytest.mark.parametrize("file", FILES.values(), ids=list(FILES))
def test_page_is_valid_for_the_service(file):
    """Components are known and closed; other angle brackets and braces are code, or escaped."""
    open_now = []
    for closing, name, alone in re.findall(
        r"(?<!\\)<(/?)([A-Za-z]\w*)[^<>]*?(/?)>", without_code(file.read_text("utf-8"))
    ):
        assert name in COMPONENTS, f"<{name}> is none of {sorted(COMPONENTS)}"
        if closing:
            assert open_now, f"</{name}> was not opened"
            assert open_now.pop() == name
        elif not alone:
            open_now.append(name)
    assert not open_now
    rest = re.sub(r"<[^<>]*>", "", without_code(file.read_text("utf-8")))
    assert not re.findall(r"(?<!\\)[<{}].{0,30}", rest)


def links() -> Iterator[tuple[str, str]]:
    """Yield each link within the site: the page that it stands on, and its target."""
    for name, file in FILES.items():
        text = without_code(file.read_text(encoding="utf-8").replace("[`", "[").replace("`]", "]"))
        for target in re.findall(r"\]\(([^)\s]+)\)|href=\"([^\"]+)\"", text):
            yield name, target[0] or target[1]


@pytest.mark.parametrize(("name", "target"), dict.fromkeys(links()))
def test_link_leads_somewhere(name, target):
    """A path from the site's root, without an extension, and a heading of that page."""
    if re.match(r"https?://|mailto:", target):
        return
    if re.search(r"\.(svg|png)$", target):
        assert (DOCS / target.strip("/")).is_file()
        return
    path, _, anchor = target.partition("#")
    place = path.strip("/") or ("index" if path else name)
    assert path.startswith("/") or not path, "write it from the site's root: /how-to/relay"
    if (DOCS / place).is_file():
        return
    assert place in FILES
    assert not anchor or anchor in anchors(place)


def test_every_image_is_shown_and_small():
    """Each is on a page, with words for those who do not see it."""
    images = {file.relative_to(DOCS).as_posix(): file for file in (DOCS / "images").iterdir()}
    pages = "".join(file.read_text(encoding="utf-8") for file in [*FILES.values(), ROOT / "README.md"])
    shown = re.findall(r"!\[\w[^\]]+\]\((?:/|mintlify_async/docs/)(images/[^)]+)\)", pages)
    assert set(shown) == set(images)
    assert max(file.stat().st_size for file in images.values()) <= 100 * 1024


def anchors(name: str) -> set[str]:
    """Return the anchors of a page as the service makes them: a second one of a name has a number."""
    text = FENCE.sub("", FILES[name].read_text(encoding="utf-8"))
    found: list[str] = []
    for heading in re.findall(r"^#{2,6} (.+)$", text, re.MULTILINE):
        anchor = re.sub(r"[^\w]+", "-", heading.lower()).strip("-")
        found.append(f"{anchor}-{found.count(anchor) + 1}" if anchor in found else anchor)
    return set(found)


# Code


BLOCKS = [block for file in BY_HAND.values() for block in blocks_of(file) if block.language in RUN]


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.kind != "skip"], ids=lambda one: one.where)
async def test_code_runs_as_it_is_printed(block: Block, run_block):
    """Programs, fragments, tests and commands; copies of examples are the examples."""
    await run_block(block)


def test_code_is_handed_to_the_type_checkers(tmp_path):
    """``tox -e types`` reads each fragment and program as a module."""
    write_blocks.main(tmp_path)
    written = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.glob("*.py")}
    assert len(written) >= sum(block.kind in write_blocks.CHECKED for block in BLOCKS)
    for name, text in written.items():
        compile(text, name, "exec")


def test_what_pages_import_can_be_installed():
    """A module that is not here belongs to a package of the dependency groups, or its block is a ``skip``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [
        line for lines in project["dependency-groups"].values() for line in lines if isinstance(line, str)
    ]
    shown = {Path(block.title).stem for block in BLOCKS}
    needed = {
        name for one in BLOCKS if one.language == "python" and one.kind != "skip" for name in modules_of(one)
    }
    absent = {name for name in needed - shown if importlib.util.find_spec(name) is None}
    assert not [
        name for name in absent if not any(line.startswith(name.replace("_", "-")) for line in groups)
    ]


def test_reference_has_no_code_that_runs():
    """It shows signatures and docstrings; what stands in those is tested where it stands."""
    reference = [file for name, file in FILES.items() if name not in BY_HAND]
    assert not [block.where for file in reference for block in blocks_of(file) if block.language in RUN]


# The reference


@pytest.mark.parametrize(
    "file", [*make_docs.made_pages(), *make_docs.renewed_pages()], ids=lambda file: file.stem
)
def test_made_page_is_current(file):
    """It says what the docstrings, signatures and examples say now."""
    made = make_docs.made_pages() | make_docs.renewed_pages()
    assert file.exists(), "run `tox -e docs`"
    assert file.read_text(encoding="utf-8") == made[file], "run `tox -e docs`"


@pytest.mark.parametrize(("path", "name"), NAMES)
def test_every_public_name_has_an_entry(path, name):
    """With its heading, and each path to import it from."""
    found = re.compile(
        rf"^## {re.escape(name)}\n\nImport it from [^\n]*`{re.escape(path)}`[^\n]*\.$", re.MULTILINE
    )
    pages = [file for file in FILES.values() if found.search(file.read_text(encoding="utf-8"))]
    assert len(pages) == 1


def errors() -> list[str]:
    """Return the names of the error classes that users can import."""
    things = {name: getattr(importlib.import_module(path), name) for path, name in NAMES}
    return [
        name for name, thing in things.items() if isinstance(thing, type) and issubclass(thing, Exception)
    ]


@pytest.mark.parametrize("name", errors())
def test_reference_says_what_to_do_about_each_error(name):
    """Its meaning alone does not help."""
    assert name in TABLES["what_to_do"] or name == "CauseSummary"  # which is never raised


def variables() -> set[str]:
    """Return the environment variables that the package names in strings, or asks the environment for."""
    found: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        found |= set(re.findall(r"\bMINTLIFY_[A-Z_]+[A-Z]\b(?!\{)", text))
        found |= set(re.findall(r"env(?:iron)?(?:\.get\(|\[)[\"']([A-Z_]+)[\"']", text))
    return found


def test_reference_has_every_environment_variable():
    """And none that the code does not know; those of the dotenv file have names that are put together."""
    listed = {name for rows in TABLES["variables"].values() for name in rows}
    written = {name for name in listed if name.startswith("MINTLIFY_JOB_")}
    put_together = {"CI_MERGE_REQUEST_SOURCE_PROJECT_PATH", "CI_MERGE_REQUEST_PROJECT_PATH"}
    assert variables() - {"RELAY_SECRET"} == listed - written - put_together


def statuses() -> set[int]:
    """Return the exit statuses of the command line."""
    return {value for name, value in vars(exit_status).items() if name.isupper()}


def test_reference_has_every_exit_status():
    """A script decides by them."""
    assert {int(status) for status in TABLES["exit_statuses"]} == statuses()


def assumptions() -> set[str]:
    """Return what the code marks as assumed about the service."""
    texts = [file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py")]
    return {
        words.strip() for text in texts for words in re.findall(r"# assumption: (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("words", sorted(assumptions()))
def test_explanation_has_each_assumption(words):
    """What the package relies on without the service's word is told to its user."""
    assert words.lower() in FILES["explanation/assumptions"].read_text(encoding="utf-8").lower()


# Troubleshooting


def troubleshooting() -> str:
    """Return the text of the troubleshooting pages."""
    files = [file for name, file in FILES.items() if name.startswith("troubleshooting")]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("name", errors())
def test_troubleshooting_has_each_error(name):
    """With a heading that a search for the name finds."""
    general = {"MintlifyError", "APIStatusError", "StreamError", "CauseSummary"}
    assert name in general or re.search(rf"^#+ .*\b{name}\b", troubleshooting(), re.MULTILINE)


@pytest.mark.parametrize("status", sorted(statuses()))
def test_troubleshooting_has_each_exit_status(status):
    """In the table of exit statuses."""
    assert re.search(rf"^\| `{status}` \|", troubleshooting(), re.MULTILINE)


def said_in_code() -> set[str]:
    """Return the texts of the package's strings; what is filled in is a line end, which no message has."""
    found: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.add("".join(str(getattr(one, "value", "\n")) for one in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


SAID = "\n\n".join(said_in_code())
MESSAGES = re.findall(r"^\| (?:`\w+Error` \| )?(`+)(?=[^`]* )(.+?)\1 \|", troubleshooting(), re.MULTILINE)


def strings_in(clause: str) -> int:
    """Return how many of the package's strings a clause is put together from; many, if it is from none."""
    words, count = clause.split(), 0
    while words:
        known = [end for end in range(1, len(words) + 1) if " ".join(words[:end]) in SAID]
        words = words[max(known, default=1) :]
        count += 1 if known else 9
    return count


@pytest.mark.parametrize("message", [message for _, message in MESSAGES])
def test_message_is_one_of_the_package(message):
    """Word for word, so that a search for it finds the page; an ellipsis stands for what is filled in."""
    clauses = re.split(r"…|[:;()]", message)
    assert not [clause for clause in clauses if strings_in(clause) > 3]


# Questions


QUESTIONS = {
    "How do I install it?": {"tutorial", "index"},
    "Where do I get an API key?": {"index", "reference/environment"},
    "How do I try it without an account?": {"tutorial", "index"},
    "How do I ask a question and stream the answer?": {"how-to/questions", "tutorial"},
    "How do I create an agent job and wait for its pull request?": {"how-to/jobs", "tutorial"},
    "How do I send a follow-up to a job?": {"explanation/follow-up-turns", "reference/jobs", "tutorial"},
    "How do I use it in a FastAPI app?": {"how-to/fastapi"},
    "How do I keep a conversation between two requests?": {"how-to/conversations"},
    "How do I build a Slack bot?": {"how-to/slack"},
    "How do I show answers in a web page with useChat?": {"how-to/relay"},
    "How do I test my own code without the network?": {"how-to/testing"},
    "What does OutcomeUnknownError mean?": {
        "reference/errors",
        "troubleshooting",
        "explanation/at-most-once",
    },
    "How do I make sure that a job is never created twice?": {"explanation/at-most-once"},
    "What happens when the connection is lost in the middle of an answer?": {"explanation/cut-streams"},
    "How do I stay below the rate limits with many workers?": {"how-to/quotas"},
    "Which timeouts are there, and what are their defaults?": {"reference/settings"},
    "Does it work behind a company proxy?": {"how-to/proxies-tls"},
    "How do I trace requests with OpenTelemetry?": {"how-to/observability"},
    "How do I run a job in GitHub Actions?": {"how-to/ci"},
    "Which environment variables are there?": {"reference/environment"},
    "What does exit status 4 mean?": {"troubleshooting", "reference/command-line"},
    "I know the OpenAI SDK. What is different here?": {"coming-from/openai"},
    "How do I use the local service from TypeScript or Go?": {"how-to/other-languages"},
    "Where is the thread's key kept, and who may see it?": {"explanation/threads-and-keys"},
}
"""What a newcomer asks, and the pages of which one has to be among the answer's sources."""


@pytest.mark.parametrize(("question", "pages"), QUESTIONS.items())
async def test_newcomers_question_is_answered(question, pages):
    """``mintlify-async ask`` against the local service names the right page."""
    async with LocalService(docs=DOCS) as service:
        ended = await run("ask", question, service=service)
    assert ended.status == 0
    sources = set(re.findall(r"https://docs\.example/([\w/-]*)", ended.out + ended.err))
    assert pages & {source or "index" for source in sources}
