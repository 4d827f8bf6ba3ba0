"""The arguments of the command line. Only argparse is loaded, so that ``--help`` is fast."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

OVERVIEW = """\
Agent jobs and the streaming assistant of a documentation service.

  mintlify-async ask "What is a follow-up?"      stream an answer
  mintlify-async job create "Fix typos" --wait   create a job and wait for it
  mintlify-async doctor                          check settings and network
  mintlify-async demo                            see it work without an account
"""

ENVIRONMENT = """\
environment:
  MINTLIFY_ADMIN_API_KEY       admin key, for jobs (mint_…)
  MINTLIFY_ASSISTANT_API_KEY   assistant key, for ask and chat (mint_dsc_…)
  MINTLIFY_API_KEY             either key, where its own variable is unset
  MINTLIFY_PROJECT_ID          the project that jobs belong to
  MINTLIFY_DOMAIN              the site that ask and chat talk to
  MINTLIFY_SITE                the site URL, for full links
  MINTLIFY_BASE_URL            another URL of the service
  NO_COLOR                     turns colours off

Keys are read from the environment only: other users can see arguments.

exit status:
  0 done           1 service or network    2 usage or settings
  3 job failed     4 gave up waiting (the reference is printed)
  5 a request was sent, and its outcome is not known
  130 interrupted  143 terminated
"""

ASK_EXAMPLES = """\
examples:
  mintlify-async ask What is a follow-up
  mintlify-async ask --save thread.json "How do I create a job?"
  mintlify-async ask --thread thread.json "And how do I wait for it?"
  git diff | mintlify-async ask --code - "Is the API used well?"
  mintlify-async ask --json "What is a follow-up?" | jq .type
"""

JOB_EXAMPLES = """\
examples:
  mintlify-async job create "Fix the typos in the quickstart" --wait
  mintlify-async job create - < instructions.txt
  mintlify-async job send REF "Mention the command line, too" --wait
  mintlify-async job wait REF --timeout 600
  mintlify-async job watch REF --json

REF is what `job create` prints. It is not secret and works on every machine.
The service has no list of jobs, and cannot cancel one.
"""

DOCTOR_EXAMPLES = """\
examples:
  mintlify-async doctor
  mintlify-async doctor jobs
  mintlify-async doctor --verify --job --yes

It ends with 1 when something is missing or wrong. --verify asks two questions
and prints each row of the page "What we assume" as held, broken (with the
setting that fixes it) or not seen.
"""

LEDGER_EXAMPLES = """\
examples:
  mintlify-async ledger list jobs.db
  mintlify-async ledger resolve jobs.db release-42 JOB
  mintlify-async ledger forget jobs.db release-42

An open claim is a --dedupe-key whose request may have been sent. Look at the
dashboard: if there is a job, `resolve` records it; if there is none, `forget`
lets the key be used again.
"""

STDIN = "; - or nothing reads standard input"


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _text(text: str) -> str:
    if not text.strip():  # mostly a shell variable that is not set
        raise argparse.ArgumentTypeError("it is empty")
    return text


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535; 0 takes a free one)")
    return int(text)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of texts, and gives long options room."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


class _Parser(argparse.ArgumentParser):
    """A parser of a command, with a method for each kind of argument, and for the shared ones."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_Formatter, **settings)
        self.flag(
            "-v", "--verbose", says="show requests and retries, without keys", default=argparse.SUPPRESS
        )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse *args*. If one of them is unknown, exit with the usage of this command."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Print the usage of this command and *message*, and exit."""
        if "-key" in message and "--dedupe-key" not in message:
            message += " (keys are read from the environment: see mintlify-async --help)"
        super().error(message)

    def text(self, name: str, says: str, metavar: str | None = None, **more: Any) -> None:
        self.add_argument(name, type=_text, metavar=metavar, help=says, **more)

    def flag(self, *names: str, says: str, **more: Any) -> None:
        self.add_argument(*names, action="store_true", help=says, **more)

    def seconds(self, name: str, says: str) -> None:
        self.add_argument(name, type=_seconds, metavar="SECONDS", help=says)

    def words(self, name: str, what: str) -> None:
        self.add_argument(name, nargs="*", help=f"{what}{STDIN}")

    def service(self) -> None:
        self.text("--base-url", "URL of the service (default: MINTLIFY_BASE_URL)", "URL")

    def record(self) -> None:
        self.text("--record", "record what is sent and received, without text and keys", "FILE")
        self.flag("--keep-text", says="leave only the keys out of the recording")

    def site(self) -> None:
        self.text("--domain", "documentation site to ask (default: MINTLIFY_DOMAIN)")
        self.text("--site", "site URL, for full links (default: MINTLIFY_SITE)", "URL")
        self.text("--fp", "user id sent to the service (default: anonymous)", "ID", default="anonymous")
        self.add_argument(
            "--results", type=_count, metavar="N", help="search results used for the answer (default: 5)"
        )
        self.add_argument("--path", metavar="PAGE", help="documentation page that the user reads")
        self.flag("--plain", says="plain text, even on a terminal")
        self.service()

    def ledger(self) -> None:
        self.text("--dedupe-key", "send this at most once per key (needs --ledger)", "KEY")
        self.text("--ledger", "SQLite file that records dedupe keys", "FILE")


_Add = Callable[..., _Parser]


def _add_ask(add: _Add) -> None:
    ask = add(
        "ask",
        help="ask the assistant and stream its answer",
        description="Ask the assistant. The answer goes to standard output, the rest to standard error.",
        epilog=ASK_EXAMPLES,
    )
    ask.words("question", "the question")
    ask.text("--thread", "continue the thread that --save wrote", "FILE")
    ask.text("--save", "save the thread; the file contains its key, keep it private", "FILE")
    ask.text("--code", "code that the question is about; - reads standard input", "FILE")
    ask.flag("--json", says="one event per line, as the service sent it")
    ask.seconds("--timeout", "limit for the complete answer (default: none)")
    ask.record()
    ask.site()


def _add_chat(add: _Add) -> None:
    chat = add(
        "chat",
        help="talk with the assistant, and continue another day",
        description="Talk with the assistant. Ctrl-C stops an answer, Ctrl-D ends the conversation.",
    )
    chat.text("name", "keep the conversation under this name, or continue it", nargs="?")
    store = "SQLite file of named conversations (default: ~/.local/share/mintlify-async/chats.db)"
    chat.text("--store", store, "FILE")
    chat.site()


def _add_job(add: _Add) -> None:
    job = add(
        "job",
        help="create a job, send a follow-up, wait",
        description="Agent jobs. A job runs at the service and may open a pull request.",
        epilog=JOB_EXAMPLES,
    )
    verbs = job.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, says: str, *, ref: bool = True, timeout: str = "") -> _Parser:
        parser = verbs.add_parser(name, help=says, description=says[0].upper() + says[1:] + ".")
        if ref:
            parser.text("ref", "reference of the job")
        parser.flag("--json", says="JSON records, one per line")
        parser.text("--project", "project of the job (default: MINTLIFY_PROJECT_ID)", "ID")
        parser.record()
        parser.service()
        if timeout:
            parser.seconds("--timeout", timeout)
        return parser

    limit = "longest wait (default: 1800)"
    create = verb(
        "create", "create a job and print its reference", ref=False, timeout=f"with --wait: {limit}"
    )
    create.words("prompt", "the instruction")
    create.flag("--wait", says="wait for its end and show its states")
    create.ledger()
    send = verb(
        "send", "send a follow-up to a job and print the new reference", timeout=f"with --wait: {limit}"
    )
    send.words("prompt", "the follow-up")
    send.flag("--wait", says="wait for the result of this follow-up")
    send.ledger()
    verb("wait", "wait for the end of a job", timeout=limit)
    verb("watch", "show each change of a job until it ends", timeout=limit)
    verb("show", "show the current state of a job")


def _add_ledger(add: _Add) -> None:
    ledger = add(
        "ledger",
        help="list and settle dedupe keys whose outcome is open",
        description="The open claims of a ledger file, which `job create --dedupe-key` writes.",
        epilog=LEDGER_EXAMPLES,
    )
    verbs = ledger.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, says in (
        ("list", "list the open claims"),
        ("resolve", "record the job that a key led to"),
        ("forget", "delete a key, so that it can be used again"),
    ):
        parser = verbs.add_parser(name, help=says, description=says[0].upper() + says[1:] + ".")
        parser.text("file", "SQLite file of the ledger")
        if name != "list":
            parser.text("key", "the dedupe key")
        if name == "resolve":
            parser.text("job", "id of the job, as the dashboard shows it")


def _add_serve(add: _Add) -> None:
    serve = add(
        "serve",
        help="run the local service, for tests and development",
        description="Run the local service until Ctrl-C or SIGTERM. It prints its URL when it is ready.",
    )
    serve.text("--host", "IP address to listen on (default: 127.0.0.1)", default="127.0.0.1")
    port = "port to listen on; 0 takes a free one (default: 8765)"
    serve.add_argument("--port", type=_port, default=8765, help=port)
    serve.text("--docs", "Markdown pages to answer from (default: this package's)", "FOLDER")
    serve.text("--replay", "play back a recording of --record, byte for byte", "FILE")
    serve.seconds("--job-seconds", "how long a job runs")
    serve.seconds("--pause", "pause between events of an answer")
    serve.text("--cors", "allow web pages of this origin; * for all", "ORIGIN")
    serve.flag("--quiet", says="print no line per request")


def _add_demo(add: _Add) -> None:
    demo = add(
        "demo",
        help="show every operation, on a local service",
        description="Start a local service and show every operation on it. No key is needed.",
    )
    demo.flag("--plain", says="plain text, even on a terminal")


def _add_doctor(add: _Add) -> None:
    doctor = add(
        "doctor",
        help="check settings and network",
        description="Check keys, settings, versions and the network. Nothing is created.",
        epilog=DOCTOR_EXAMPLES,
    )
    uses = "check only what jobs need, or what questions need (default: both)"
    doctor.add_argument("use", nargs="?", choices=("jobs", "questions"), help=uses)
    doctor.flag("--verify", says="find out which assumptions hold; says the cost first")
    doctor.flag("--job", says="with --verify: also create a job, and wait for it")
    doctor.flag("--yes", says="with --verify: agree to the cost")
    doctor.record()
    doctor.service()


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(prog="mintlify-async", description=OVERVIEW, epilog=ENVIRONMENT)
    parser.flag("--version", says="print the version and exit")
    parser.set_defaults(verbose=False)
    add = parser.add_subparsers(dest="command", metavar="COMMAND").add_parser
    for add_command in (_add_ask, _add_chat, _add_job, _add_ledger, _add_serve, _add_demo, _add_doctor):
        add_command(add)
    return parser
