"""The arguments of the command line. Only argparse is loaded, so that ``--help`` is fast."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import partial

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

_Add = Callable[..., argparse.ArgumentParser]


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


def _add_service(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base-url", type=_text, metavar="URL", help="address of the service (else MINTLIFY_BASE_URL)"
    )


def _add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record", type=_text, metavar="FILE", help="record what is sent and received, without text and keys"
    )
    parser.add_argument("--keep-text", action="store_true", help="leave only the keys out of the recording")


def _add_site(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--domain", type=_text, help="documentation site to ask (else MINTLIFY_DOMAIN)")
    parser.add_argument(
        "--site", type=_text, metavar="URL", help="the documentation's address, for whole links"
    )
    parser.add_argument(
        "--fp", type=_text, default="anonymous", metavar="ID", help="id of the user (anonymous)"
    )
    parser.add_argument(
        "--results", type=_count, default=5, metavar="N", help="search results the answer is built from (5)"
    )
    parser.add_argument("--path", metavar="PAGE", help="page being viewed, at most 200 characters")
    parser.add_argument("--plain", action="store_true", help="plain text, even on a terminal")
    _add_service(parser)


def _add_ask(add: _Add) -> None:
    parser = add(
        "ask",
        help="ask the assistant and stream its answer",
        description="Ask the assistant. The answer goes to standard output, the rest to standard error.",
        epilog=ASK_EXAMPLES,
    )
    option = parser.add_argument
    option("question", nargs="*", help="the question; - or nothing reads standard input")
    option("--thread", type=_text, metavar="FILE", help="continue the thread that --save wrote")
    option(
        "--save", type=_text, metavar="FILE", help="save the thread; the file has its key, keep it private"
    )
    option(
        "--code", type=_text, metavar="FILE", help="code that the question is about; - reads standard input"
    )
    option("--json", action="store_true", help="one event per line, as the service sent it")
    option("--timeout", type=_seconds, metavar="SECONDS", help="longest whole answer (no limit)")
    _add_record(parser)
    _add_site(parser)


def _add_chat(add: _Add) -> None:
    parser = add(
        "chat",
        help="talk with the assistant, and continue another day",
        description="Talk with the assistant. Ctrl-C stops an answer, Ctrl-D ends the conversation.",
    )
    parser.add_argument(
        "name", type=_text, nargs="?", help="keep the conversation under this name, or continue it"
    )
    parser.add_argument(
        "--store",
        type=_text,
        metavar="FILE",
        help="SQLite file of named conversations (~/.local/share/mintlify-async/chats.db)",
    )
    parser.add_argument("--list", action="store_true", dest="list_names", help="list the names")
    _add_site(parser)


def _add_job(add: _Add) -> None:
    job = add(
        "job",
        help="create a job, send to it, wait for it",
        description="Agent jobs. A job runs at the service and may open a pull request.",
        epilog=JOB_EXAMPLES,
    )
    verbs = job.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, says: str, *, ref: bool = True, waits: bool = True) -> Callable[..., object]:
        parser = verbs.add_parser(name, help=says, description=says[0].upper() + says[1:] + ".")
        option = parser.add_argument
        option("--json", action="store_true", help="JSON records, one per line")
        option("--project", type=_text, metavar="ID", help="project of the job (else MINTLIFY_PROJECT_ID)")
        _add_record(parser)
        _add_service(parser)
        if ref:
            option("ref", type=_text, help="reference of the job")
        if waits:
            option("--timeout", type=_seconds, metavar="SECONDS", help="longest wait (1800)")
        return option

    create = verb("create", "create a job and print its reference", ref=False)
    create("prompt", nargs="*", help="the instruction; - or nothing reads standard input")
    create("--wait", action="store_true", help="wait for its end and show its states")
    create(
        "--dedupe-key", type=_text, metavar="KEY", help="create at most one job for this key (needs --ledger)"
    )
    create("--ledger", type=_text, metavar="FILE", help=LEDGER)
    send = verb("send", "send a follow-up to a job and print the new reference")
    send("prompt", nargs="*", help="the follow-up; - or nothing reads standard input")
    send("--wait", action="store_true", help="wait for the end of this turn")
    verb("wait", "wait for the end of a job")
    verb("watch", "show each change of a job until it ends")
    verb("show", "show the current state of a job", waits=False)


def _add_ci(add: _Add) -> None:
    parser = add(
        "ci",
        help="one job per pull request, in a CI run",
        description="Create the job of this pull request, or send it a follow-up for this commit; wait, "
        "and report. A re-run does neither again.",
        epilog=CI_EXAMPLES,
    )
    option = parser.add_argument
    option("prompt", nargs="*", help="the instruction; - or nothing reads standard input")
    option("--follow-up", type=_text, metavar="TEXT", help="instruction for later commits (the same)")
    option("--timeout", type=_seconds, metavar="SECONDS", help="longest wait (1800)")
    option("--name", type=_text, help="tells several uses apart (else the workflow's name)")
    option("--key", type=_text, help="names the job (else repository, pull request and workflow)")
    option("--turn", type=_text, help="names the turn (else the commit)")
    option("--ledger", type=_text, default="git", metavar="WHERE", help=f"{LEDGER} (git:origin)")
    option("--ref-prefix", type=_text, metavar="PREFIX", help="beginning of the git refs (refs/mintlify/)")
    option("--dotenv", type=_text, metavar="FILE", help="write the results as MINTLIFY_JOB_… variables")
    option("--project", type=_text, metavar="ID", help="project of the job (else MINTLIFY_PROJECT_ID)")
    _add_service(parser)


def _add_serve(add: _Add) -> None:
    option = add(
        "serve",
        help="run the local service, for tests and development",
        description="Run the local service until Ctrl-C or SIGTERM. It prints its address when ready.",
    ).add_argument
    option("--host", type=_text, default="127.0.0.1", help="address to listen on (127.0.0.1)")
    option("--port", type=_port, default=8765, help="port to listen on; 0 takes a free one (8765)")
    option("--docs", metavar="FOLDER", help="Markdown pages to answer from (this package's own)")
    option("--script", metavar="FILE", help="JSON file of scripted answers")
    option("--replay", metavar="FILE", help="recording (of --record) to play back, byte for byte")
    option("--job-seconds", type=_seconds, metavar="SECONDS", help="how long a job runs")
    option("--pause", type=_seconds, metavar="SECONDS", help="pause between events of an answer")
    option("--cors", metavar="ORIGIN", help="allow web pages of this origin; * for all")
    option("--quiet", action="store_true", help="print no line per request")


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option(
        "--verify", action="store_true", help="ask the service which assumptions hold; says the cost first"
    )
    option("--job", action="store_true", help="with --verify: create a job, too, and follow it")
    option("--yes", action="store_true", help="with --verify: agree to the cost")
    option("--json", action="store_true", help="with --verify: the result as JSON")
    _add_record(parser)
    _add_service(parser)


def make_parser() -> argparse.ArgumentParser:
    """Return the whole command line's parser."""
    parser = argparse.ArgumentParser(
        prog="mintlify-async", description=OVERVIEW, epilog=ENVIRONMENT, formatter_class=_Formatter
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show requests and retries, without keys"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    add = partial(commands.add_parser, formatter_class=_Formatter)
    _add_ask(add)
    _add_chat(add)
    _add_job(add)
    _add_ci(add)
    _add_serve(add)
    demo = add(
        "demo",
        help="show every operation, on a local service",
        description="Start a local service and show every operation on it. No key is needed.",
    )
    demo.add_argument("--plain", action="store_true", help="plain text, even on a terminal")
    doctor = add(
        "doctor",
        help="check settings and connection",
        description="Check keys, settings, versions and the connection. No job is created without --job.",
        epilog=DOCTOR_EXAMPLES,
    )
    _add_doctor(doctor)
    return parser
