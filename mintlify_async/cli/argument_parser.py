"""The arguments of the command line, in one table. Only argparse is imported, so ``--help`` is fast."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

OVERVIEW = """\
Agent jobs and the streaming assistant of a documentation service.

  mintlify-async ask "What is a follow-up?"      stream an answer
  mintlify-async job create "Fix typos" --wait   create a job and wait for it
  mintlify-async doctor                          check settings and network
  mintlify-async demo                            see it work without an account
  mintlify-async docs                            list the documentation pages
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
  MINTLIFY_PROXY               URL of a proxy, or: environment (HTTPS_PROXY)
  MINTLIFY_LEDGER              the ledger: a file, or a URL with a password
  NO_COLOR                     turns colours off

Keys are read from the environment only: other users can see arguments.

exit status:
  0 done           1 service, network or output    2 usage or settings
  3 job failed     4 gave up waiting (the reference is printed)
  5 a request was sent, and its outcome is not known
  130 interrupted  143 terminated
"""

CHAT_COMMANDS: Final[Mapping[str, str]] = {
    "/help": "list these commands",
    "/new": "begin a new conversation, which is not kept",
    "/undo": "take the last question and its answer back",
    "/sources": "show the sources of the last answer again",
    "/exit": "end",
}
"""The commands of a chat. Any other word that starts with ``/`` lists them. All other lines are sent."""

EXAMPLES: Final[Mapping[str, str]] = {
    "ask": """\
examples:
  mintlify-async ask What is a follow-up
  mintlify-async ask --save thread.json "How do I create a job?"
  mintlify-async ask --thread thread.json "And how do I wait for it?"
  git diff | mintlify-async ask --code - "Is the API used well?"
  mintlify-async ask --json Hi | jq -j 'select(.type == "text-delta").delta'
""",
    "chat": "\n".join(
        [
            "commands in the conversation:",
            *(f"  {name:<10} {what}" for name, what in CHAT_COMMANDS.items()),
            "A line that is one such word is never sent. //word sends /word.\n",
        ]
    ),
    "job": """\
examples:
  mintlify-async job create "Fix the typos in the quickstart" --wait
  mintlify-async job send REF "Mention the command line, too" --wait
  mintlify-async job wait REF --timeout 600

REF is what `job create` prints. It is not secret and works on every machine.
""",
    "docs": """\
examples:
  mintlify-async docs
  mintlify-async docs StreamError

The pages are Markdown files. llms.txt, beside their folder, lists them.
""",
    "doctor": """\
It ends with 1 when something is missing or wrong. --verify asks two questions
and prints each row of the page "What we assume" as held, broken (with the
setting that fixes it) or not seen.
""",
    "ledger": """\
An open claim is a --dedupe-key whose request may have been sent. Look at the
dashboard: if there is a job, `resolve` records it; if there is none, `forget`
lets the key be used again. A URL with a password belongs into the variable
MINTLIFY_LEDGER, because other users can see arguments.
""",
}
"""The text after the help of a command."""

TABLE: Final = """\
ask  ask the assistant and stream its answer
  question...  the question; - or nothing reads standard input
  --thread FILE  continue the thread that --save wrote
  --save FILE  save the thread; the file contains its key, keep it private
  --code FILE  code that the question is about; - reads standard input
  --json  one event per line, as the service sent it
  --timeout SECONDS  limit for the complete answer (default: none)
  +recording
  +site
chat  talk with the assistant; Ctrl-C stops an answer, Ctrl-D ends it
  name?  keep the conversation under this name, or continue it
  --store FILE  SQLite file of named conversations (default: ~/.local/share/mintlify-async/chats.db)
  +site
job  create a job, send a follow-up, wait
job create  create a job and print its reference
  prompt...  the instruction; - or nothing reads standard input
  +sent
  +job
job send  send a follow-up to a job and print the new reference
  ref  reference of the job
  prompt...  the follow-up; - or nothing reads standard input
  +sent
  +job
job wait  wait for the end of a job
  +waited
job watch  show each change of a job until it ends
  +waited
job show  show the current state of a job
  ref  reference of the job
  +job
ledger  list dedupe keys, and settle those whose outcome is open
ledger list  list the open claims
  --all  also list the keys whose job is recorded, with its id
  +ledger
ledger resolve  record the job that a key led to
  key  the dedupe key
  job  id of the job, as the dashboard shows it
  +ledger
ledger forget  delete a key, so that it can be used again
  key  the dedupe key
  +ledger
serve  run the local service until Ctrl-C, for tests and development
  --host HOST=127.0.0.1  IP address to listen on (default: 127.0.0.1)
  --port PORT=8765  port to listen on; 0 takes a free one (default: 8765)
  --docs FOLDER  Markdown pages to answer from (default: this package's)
  --replay FILE  play back a recording of --record, byte for byte
  --job-seconds SECONDS  how long a job runs
  --pause SECONDS  pause between events of an answer
  --cors ORIGIN  allow web pages of this origin; * for all
  --quiet  print no line per request
demo  show every operation, on a local service, without a key
  --plain  plain text, even on a terminal
docs  print where the pages of the documentation are
  word?  print only the pages that contain this text, in any case of letters
doctor  check settings and network; nothing is created
  use?  jobs or questions: check only what these need (default: both)
  --verify  find out which assumptions hold; says the cost first
  --job  with --verify: also create a job, and wait for it
  --yes  with --verify: agree to the cost
  +recording
  +service
+service
  --base-url URL  URL of the service (default: MINTLIFY_BASE_URL)
  --proxy URL  proxy, or environment for HTTPS_PROXY (default: MINTLIFY_PROXY)
+recording
  --record FILE  record what is sent and received, without text and keys
  --keep-text  leave only the keys out of the recording
+site
  --domain DOMAIN  documentation site to ask (default: MINTLIFY_DOMAIN)
  --site URL  site URL, for full links (default: MINTLIFY_SITE)
  --fp ID=anonymous  user id sent to the service (default: anonymous)
  --results N  search results used for the answer (default: 5)
  --path PAGE  documentation page that the user reads
  --plain  plain text, even on a terminal
  +service
+sent
  --wait  wait for its end and show its states
  --timeout SECONDS=1800  with --wait: longest wait (default: 1800)
  --dedupe-key KEY  send this at most once per key (needs --ledger)
  +ledger
+ledger
  --ledger STORE  SQLite file, or redis:// or postgresql:// URL, for dedupe keys (default: MINTLIFY_LEDGER)
+waited
  ref  reference of the job
  --timeout SECONDS=1800  longest wait (default: 1800)
  +job
+job
  --json  JSON records, one per line
  --project ID  project of the job (default: MINTLIFY_PROJECT_ID)
  +recording
  +service
"""
"""The commands with their arguments, and after them the groups of arguments that several commands have.

A line has the name of an argument, its value and its default, then two blanks and its help. ``name...`` takes
any number of words, and ``name?`` is optional. An option without a value is a flag.
"""

ABSENT: Final[Mapping[str, str]] = {
    "job list": "the service has no list of jobs: keep the references that `job create` prints",
    "job cancel": "the service cannot cancel a job: it runs to its end; close its pull request, if any",
    "ci": "write: job create --wait --dedupe-key KEY --ledger FILE",
    "chat --list": "write in Python: await Conversation.ids(store, owner=…)",
    "doctor --json": "there is no replacement: read the text",
    "serve --script": "write the script in Python, or replay a recording with --replay FILE",
}
"""Commands and options of 0.2 or of other programs, and the replacement for each."""


def _filled(text: str) -> str:
    if not text.strip():  # often a shell variable that is not set
        raise argparse.ArgumentTypeError("it is empty")
    return text


def _word(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python decodes bytes that are not text to lone surrogates
        raise argparse.ArgumentTypeError("it is not text in UTF-8") from None
    return text


def _text(text: str) -> str:
    return _word(_filled(text))


def _file(text: str) -> str:
    from ..argument_checks import check_path  # loaded here, because few commands name a file
    from ..errors import ConfigurationError

    try:
        return check_path(_filled(text), "it")
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _use(text: str) -> str:
    if text not in ("jobs", "questions"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither jobs nor questions")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _number(text: str, least: int, most: float) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        limit = f" and at most {most}" if most < math.inf else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}{limit}")
    return int(text)


_TYPES: Final[Mapping[str, Callable[[str], Any]]] = {
    "FILE": _file,
    "FOLDER": _file,
    "N": partial(_number, least=1, most=math.inf),
    "PORT": partial(_number, least=0, most=65535),
    "SECONDS": _seconds,
    "use?": _use,
}
"""Maps the name of a value to the check of the value. Any other value is a text."""


class _Parser(argparse.ArgumentParser):
    """The parser of a command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=32),
            **settings,
        )
        self._takes_words = False
        self._flags = ["-h", "--help", "-v", "--verbose"]
        self._options: list[str] = []
        says = "show requests and retries, without keys"
        self.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help=says)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse *args*. If one of them is unknown, exit with the usage of this command."""
        args = sys.argv[1:] if args is None else args
        self._refuse_absent([word for word in args if not word.startswith("-")])
        if self._takes_words:
            args = self._options_first(args)
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse_absent(unknown)
            hint = " (keys are read from the environment)" if "-key" in " ".join(unknown) else ""
            if " ledger " in self.prog:  # until 0.3, the file was the first argument
                hint = " (name the ledger with --ledger)"
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options, unknown

    def _refuse_absent(self, args: Sequence[str]) -> None:
        path = f"{self.prog} {args[0] if args else ''}".partition(" ")[2].partition("=")[0]
        if path in ABSENT:
            self.error(ABSENT[path])

    def add_arguments(self, lines: Iterable[str], blocks: Mapping[str, list[str]]) -> None:
        """Add the arguments of some *lines* of the table, with the groups that they name."""
        for line in lines:
            if line in blocks:
                self.add_arguments(blocks[line], blocks)
                continue
            match = re.fullmatch(r"(\S+)(?: ([A-Z]+)(?:=(\S+))?)?  (.*)", line)
            assert match, line
            name, value, default, says = match.groups()
            settings: dict[str, Any] = {"help": says}
            if name.startswith("-") and value is None:
                settings["action"] = "store_true"
                self._flags.append(name)
            elif name.endswith("..."):
                settings |= {"nargs": "*", "type": _word}
                self._takes_words = True
            else:
                settings |= {"metavar": value, "default": default, "type": _TYPES.get(value or name, _text)}
                settings["nargs"] = "?" if name.endswith("?") else None
                if name.startswith("-"):
                    self._options.append(name)
            self.add_argument(name.rstrip(".?"), **settings)

    def _options_first(self, args: Sequence[str]) -> list[str]:
        """Return *args* with the words after the options, because argparse wants all words in one place.

        An argument that contains blanks and is not the value of an option counts as a word, such as
        ``-v is broken``.
        """
        options, words, rest = list[str](), list[str](), iter(args)
        for argument in rest:
            if argument == "--":
                words += rest
                break
            name, equals, _ = argument.partition("=")
            # argparse accepts abbreviations. It reports an ambiguous abbreviation as an error.
            candidates = [one for one in self._options if re.match("--.", name) and one.startswith(name)]
            takes_value = bool(candidates) and name not in self._flags
            if not re.match("-.", argument) or (re.search(r"\s", argument) and not (takes_value and equals)):
                words.append(argument)
                continue
            options.append(argument)
            if takes_value and not equals:
                options += islice(rest, 1)
        return [*options, "--", *words] if words else options


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(prog="mintlify-async", description=OVERVIEW, epilog=ENVIRONMENT)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.set_defaults(verbose=False)
    blocks: dict[str, list[str]] = {}
    title = ""
    for line in TABLE.splitlines():
        if line.startswith(" "):
            blocks[title].append(line.strip())
        else:
            title = line
            blocks[title] = []
    groups = {"": parser.add_subparsers(dest="command", metavar="COMMAND")}
    for title, lines in blocks.items():
        path, _, says = title.partition("  ")
        group, _, name = path.rpartition(" ")
        if says:
            description = f"{says[0].upper()}{says[1:]}."
            command = groups[group].add_parser(
                name, help=says, description=description, epilog=EXAMPLES.get(path)
            )
            command.add_arguments(lines, blocks)
            if not lines:
                groups[path] = command.add_subparsers(dest="verb", required=True, metavar="VERB")
    return parser
