"""The arguments of the command line. Only argparse is loaded, so that ``--help`` is fast."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

OVERVIEW = """\
Agent jobs and the streaming assistant of a documentation service.

  mintlify-async demo                            see it work on a local service
  mintlify-async ask "How do I log in?"          stream an answer
  mintlify-async job create "Fix typos" --wait   create a job and follow it
  mintlify-async ci "Update the docs"            the same in CI, once per commit
  mintlify-async doctor                          check settings and network
"""

ENVIRONMENT = """\
environment:
  MINTLIFY_ADMIN_API_KEY       admin key, for jobs (mint_…)
  MINTLIFY_ASSISTANT_API_KEY   assistant key, for ask and chat (mint_dsc_…)
  MINTLIFY_API_KEY             either key, where its own variable is unset
  MINTLIFY_PROJECT_ID          the project that jobs belong to
  MINTLIFY_DOMAIN              the site that ask and chat talk to
  MINTLIFY_SITE                the documentation's address, for whole links
  MINTLIFY_BASE_URL            another address, such as a local service's
  NO_COLOR                     turns colours off

Keys are read from the environment only: other users can see arguments.

exit status:
  0 done           1 service or network    2 usage or settings
  3 job failed     4 gave up waiting (the reference is printed)
  130 interrupted  (doctor: 1 for anything that it finds wrong)
"""

ASK_EXAMPLES = """\
examples:
  mintlify-async ask How do I log in
  mintlify-async ask --save login.json "How do I log in?"
  mintlify-async ask --thread login.json "And by SSO?"    continue
  git diff | mintlify-async ask --code - "Is the API used well?"
  mintlify-async ask --json "How do I log in?" | jq .type
"""

JOB_EXAMPLES = """\
examples:
  mintlify-async job create "Fix the typos in the quickstart" --wait
  mintlify-async job create - < instructions.txt
  mintlify-async job send REF "Mention the command line, too" --wait
  mintlify-async job wait REF --timeout 600
  mintlify-async job watch REF --json

REF is what `job create` prints. It is not secret and works on every machine.
"""

DOCTOR_EXAMPLES = """\
examples:
  mintlify-async doctor
  mintlify-async doctor --verify --record service.jsonl
  mintlify-async doctor --verify --job --yes --json

--verify asks two questions and sends some requests that are refused. It prints
each row of the page "What we assume" as held, broken (with the setting that
mends it) or not seen. Exit status: 0; 1 if one is broken or something failed.
"""

CI_EXAMPLES = """\
examples:
  mintlify-async ci "Update the documentation for this change"
  mintlify-async ci - --timeout 1200 < prompt.txt
  mintlify-async ci "Fix typos" --key "docs/$BRANCH" --turn "$COMMIT"    other CI services

It runs in a checkout, and needs the right to push to its remote: there, a ref
per job and per commit records what was sent (`permissions: contents: write`).
Step outputs: status, reference, job_id, pull_request, duration, action.
"""

LEDGER = "what stores dedupe keys: a SQLite file, or git[:REMOTE]"

STDIN = "; - or nothing reads standard input"
PROJECT = "project of the job (else MINTLIFY_PROJECT_ID)"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of texts that have some, and gives long options room."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _whole(text: str, what: str, least: int, most: float = math.inf) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return int(text)


def _text(text: str) -> str:
    # An empty value is mostly a shell variable that is not set.
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return text


def _count(text: str) -> int:
    return _whole(text, "a whole number of at least 1", 1)


def _port(text: str) -> int:
    return _whole(text, "a port (0 to 65535; 0 takes a free one)", 0, 65535)


class _Parser(argparse.ArgumentParser):
    """A parser of a command, with a method for each kind of argument, and for those that several share."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_Formatter, **settings)

    def text(self, name: str, says: str, metavar: str | None = None, **more: Any) -> None:
        self.add_argument(name, type=_text, metavar=metavar, help=says, **more)

    def flag(self, name: str, says: str, **more: Any) -> None:
        self.add_argument(name, action="store_true", help=says, **more)

    def seconds(self, name: str, says: str) -> None:
        self.add_argument(name, type=_seconds, metavar="SECONDS", help=says)

    def service(self) -> None:
        self.text("--base-url", "address of the service (else MINTLIFY_BASE_URL)", "URL")

    def record(self) -> None:
        self.text("--record", "record what is sent and received, without text and keys", "FILE")
        self.flag("--keep-text", "leave only the keys out of the recording")

    def site(self) -> None:
        self.text("--domain", "documentation site to ask (else MINTLIFY_DOMAIN)")
        self.text("--site", "the documentation's address, for whole links", "URL")
        self.text("--fp", "id of the user (anonymous)", "ID", default="anonymous")
        results = "search results the answer is built from (5)"
        self.add_argument("--results", type=_count, default=5, metavar="N", help=results)
        self.add_argument("--path", metavar="PAGE", help="page being viewed, at most 200 characters")
        self.flag("--plain", "plain text, even on a terminal")
        self.service()


_Add = Callable[..., _Parser]


def _add_ask(add: _Add) -> None:
    ask = add(
        "ask",
        help="ask the assistant and stream its answer",
        description="Ask the assistant. The answer goes to standard output, the rest to standard error.",
        epilog=ASK_EXAMPLES,
    )
    ask.add_argument("question", nargs="*", help=f"the question{STDIN}")
    ask.text("--thread", "continue the thread that --save wrote", "FILE")
    ask.text("--save", "save the thread; the file has its key, keep it private", "FILE")
    ask.text("--code", "code that the question is about; - reads standard input", "FILE")
    ask.flag("--json", "one event per line, as the service sent it")
    ask.seconds("--timeout", "longest whole answer (no limit)")
    ask.record()
    ask.site()


def _add_chat(add: _Add) -> None:
    chat = add(
        "chat",
        help="talk with the assistant, and continue another day",
        description="Talk with the assistant. Ctrl-C stops an answer, Ctrl-D ends the conversation.",
    )
    chat.text("name", "keep the conversation under this name, or continue it", nargs="?")
    chat.text(
        "--store", "SQLite file of named conversations (~/.local/share/mintlify-async/chats.db)", "FILE"
    )
    chat.flag("--list", "list the names", dest="list_names")
    chat.site()


def _add_job(add: _Add) -> None:
    job = add(
        "job",
        help="create a job, send to it, wait for it",
        description="Agent jobs. A job runs at the service and may open a pull request.",
        epilog=JOB_EXAMPLES,
    )
    verbs = job.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, says: str, *, ref: bool = True, waits: bool = True) -> _Parser:
        parser = verbs.add_parser(name, help=says, description=says[0].upper() + says[1:] + ".")
        parser.flag("--json", "JSON records, one per line")
        parser.text("--project", PROJECT, "ID")
        parser.record()
        parser.service()
        if ref:
            parser.text("ref", "reference of the job")
        if waits:
            parser.seconds("--timeout", "longest wait (1800)")
        return parser

    create = verb("create", "create a job and print its reference", ref=False)
    create.add_argument("prompt", nargs="*", help=f"the instruction{STDIN}")
    create.flag("--wait", "wait for its end and show its states")
    create.text("--dedupe-key", "create at most one job for this key (needs --ledger)", "KEY")
    create.text("--ledger", LEDGER, "FILE")
    send = verb("send", "send a follow-up to a job and print the new reference")
    send.add_argument("prompt", nargs="*", help=f"the follow-up{STDIN}")
    send.flag("--wait", "wait for the end of this turn")
    verb("wait", "wait for the end of a job")
    verb("watch", "show each change of a job until it ends")
    verb("show", "show the current state of a job", waits=False)


def _add_ci(add: _Add) -> None:
    ci = add(
        "ci",
        help="one job per pull request, in a CI run",
        description="Create the job of this pull request, or send it a follow-up for this commit; wait, "
        "and report. A re-run does neither again.",
        epilog=CI_EXAMPLES,
    )
    ci.add_argument("prompt", nargs="*", help=f"the instruction{STDIN}")
    ci.text("--follow-up", "instruction for later commits (the same)", "TEXT")
    ci.seconds("--timeout", "longest wait (1800)")
    ci.text("--name", "tells several uses apart (else the workflow's name)")
    ci.text("--key", "names the job (else repository, pull request and workflow)")
    ci.text("--turn", "names the turn (else the commit)")
    ci.text("--ledger", f"{LEDGER} (git:origin)", "WHERE", default="git")
    ci.text("--ref-prefix", "beginning of the git refs (refs/mintlify/)", "PREFIX")
    ci.text("--dotenv", "write the results as MINTLIFY_JOB_… variables", "FILE")
    ci.text("--project", PROJECT, "ID")
    ci.service()


def _add_serve(add: _Add) -> None:
    serve = add(
        "serve",
        help="run the local service, for tests and development",
        description="Run the local service until Ctrl-C or SIGTERM. It prints its address when ready.",
    )
    serve.text("--host", "address to listen on (127.0.0.1)", default="127.0.0.1")
    port = "port to listen on; 0 takes a free one (8765)"
    serve.add_argument("--port", type=_port, default=8765, help=port)
    serve.text("--docs", "Markdown pages to answer from (this package's own)", "FOLDER")
    serve.text("--script", "JSON file of scripted answers", "FILE")
    serve.text("--replay", "recording (of --record) to play back, byte for byte", "FILE")
    serve.seconds("--job-seconds", "how long a job runs")
    serve.seconds("--pause", "pause between events of an answer")
    serve.text("--cors", "allow web pages of this origin; * for all", "ORIGIN")
    serve.flag("--quiet", "print no line per request")


def _add_demo(add: _Add) -> None:
    demo = add(
        "demo",
        help="show every operation, on a local service",
        description="Start a local service and show every operation on it. No key is needed.",
    )
    demo.flag("--plain", "plain text, even on a terminal")


def _add_doctor(add: _Add) -> None:
    doctor = add(
        "doctor",
        help="check settings and connection",
        description="Check keys, settings, versions and the connection. No job is created without --job.",
        epilog=DOCTOR_EXAMPLES,
    )
    doctor.flag("--verify", "ask the service which assumptions hold; says the cost first")
    doctor.flag("--job", "with --verify: create a job, too, and follow it")
    doctor.flag("--yes", "with --verify: agree to the cost")
    doctor.flag("--json", "with --verify: the result as JSON")
    doctor.record()
    doctor.service()


def make_parser() -> argparse.ArgumentParser:
    """Return the whole command line's parser."""
    parser = _Parser(prog="mintlify-async", description=OVERVIEW, epilog=ENVIRONMENT)
    parser.flag("--version", "print the version and exit")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show requests and retries, without keys"
    )
    add = parser.add_subparsers(dest="command", metavar="COMMAND").add_parser
    for add_command in (_add_ask, _add_chat, _add_job, _add_ci, _add_serve, _add_demo, _add_doctor):
        add_command(add)
    return parser
