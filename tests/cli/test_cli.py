"""The command line in general: usage, settings, exit statuses of mistakes, signals, `--record`."""

from __future__ import annotations

import re
import subprocess
import sys
from unittest import mock

import pytest

import mintlify_async
from mintlify_async.cli import main
from mintlify_async.testing import LocalService
from tests.support.child_process import child_environment
from tests.support.command_line import run

NOTHING = "http://127.0.0.1:9"
"""A base URL where no program listens."""


ASK, CREATE = ["ask", "Hm?"], ["job", "create", "Fix"]


@pytest.mark.parametrize(
    ("arguments", "env", "status", "says"),
    [
        (ASK, {"MINTLIFY_ASSISTANT_API_KEY": "' quoted'"}, 2, "MINTLIFY_ASSISTANT_API_KEY"),
        (ASK, {"MINTLIFY_BASE_URL": NOTHING}, 1, "mintlify-async doctor"),
        (ASK, {"MINTLIFY_BASE_URL": "ftp://x"}, 2, "MINTLIFY_BASE_URL"),
        (ASK, {"MINTLIFY_ASSISTANT_API_KEY": " "}, 2, "MINTLIFY_ASSISTANT_API_KEY is empty"),
        (ASK, {"MINTLIFY_DOMAIN": "a/b"}, 2, "MINTLIFY_DOMAIN is a URL or a path"),
        ([*ASK, "--domain", "a/b"], {}, 2, "mintlify-async: --domain is a URL or a path"),
        ([*ASK, "--domain", "nosuch"], {}, 1, "check --domain or MINTLIFY_DOMAIN)"),
        (ASK, {"MINTLIFY_BASE_URL": " "}, 2, "MINTLIFY_BASE_URL is blank: unset it for"),
        (ASK, {"MINTLIFY_PROXY": "socks5://u:geheim@x"}, 2, "MINTLIFY_PROXY must be a URL"),
        ([*ASK, "--proxy", "nowhere"], {}, 2, "mintlify-async: --proxy must be a URL"),
        ([*ASK, "--path", "x" * 201], {}, 2, "mintlify-async: --path must be a string of at most 200"),
        (["job", "show", "job_404"], {}, 1, "check the job's id and --project or MINTLIFY_PROJECT_ID)"),
        (["job", "show", "mintlify-job:cut"], {}, 2, "mintlify-async: REF"),
        (CREATE, {"MINTLIFY_ADMIN_API_KEY": "mint_dsc_0"}, 2, "MINTLIFY_ADMIN_API_KEY holds an assistant"),
        (
            CREATE,
            {"MINTLIFY_ADMIN_API_KEY": None, "MINTLIFY_API_KEY": "mint_dsc_0"},
            2,
            "MINTLIFY_ADMIN_API_KEY is missing: agent jobs need the admin key; MINTLIFY_API_KEY holds",
        ),
        ([*ASK, "--domain", ""], {}, 2, "--domain"),
        ([*ASK, "--fp", " "], {}, 2, "--fp"),
        (["ask", " \n"], {}, 2, "question"),
        (["ask", "-", "--code", "-"], {}, 2, "standard input"),
        ([*ASK, "--results", "0"], {}, 2, "--results"),
        ([*ASK, "--timeout", "nan"], {}, 2, "--timeout"),
        ([*ASK, "--code", "no-such-file"], {}, 2, "no-such-file"),
        ([*ASK, "--code", sys.executable], {}, 2, "UTF-8"),
        ([*ASK, "--keep-text"], {}, 2, "--record"),
        ([*ASK, "--record", "/nowhere/at/all"], {}, 2, "/nowhere/at/all"),
        ([*ASK, "--thread", "no-such-file"], {}, 2, "--save no-such-file"),
        (["job", "send", "job_1", "  "], {}, 2, "prompt"),
        (["job", "show", "job_1"], {"MINTLIFY_PROJECT_ID": None}, 2, "--project"),
        (["job", "show", ".."], {}, 2, "REF"),
        ([*CREATE, "--project", "other"], {}, 1, "404"),
        ([*CREATE, "--dedupe-key", "k"], {}, 2, "--ledger"),
        ([*CREATE, "--dedupe-key", "k", "--ledger", "git:origin"], {}, 2, "--ledger"),
        ([*CREATE, "--dedupe-key", "k", "--ledger", "/dev/null/l.db"], {}, 2, "/dev/null"),
        (CREATE, {"MINTLIFY_ADMIN_API_KEY": "mint_test_expired_0123456789abcdef"}, 1, "401"),
        ([*CREATE, "--dedupe-key", "k", "--ledger", "$HOME/l.db"], {}, 2, "$HOME/l.db"),
        ([*CREATE, "--dedupe-key", "k"], {"MINTLIFY_LEDGER": "$HOME/l.db"}, 2, "MINTLIFY_LEDGER"),
        ([*CREATE, "--dedupe-key", "k", "--ledger", "~nobody-here/l.db"], {}, 2, "~nobody-here"),
        ([*CREATE, "--dedupe-key", "k", "--ledger", "mysql://host/db"], {}, 2, "redis://"),
        ([*CREATE, "--dedupe-key", "k", "--ledger", "redis:6379"], {}, 2, "redis://"),
        ([*CREATE, "--dedupe-key", "k", "--ledger", "redis://:pw@127.0.0.1:1"], {}, 2, "MINTLIFY_LEDGER"),
        ([*CREATE, "--dedupe-key", "k", "--ledger", "redis://h?password=pw"], {}, 2, "MINTLIFY_LEDGER"),
        ([*CREATE, "--record", "$HOME/r.jsonl"], {}, 2, "--record"),
        (["ledger", "list", "--ledger", "no-such-file"], {}, 2, "no-such-file"),
        (["ledger", "list"], {}, 2, "--ledger"),
        (["ledger", "forget", "jobs.db", "k"], {}, 2, "--ledger"),
        (["ledger", "resolve", "jobs.db", "k", "job_1"], {}, 2, "--ledger"),
        (["ledger", "list", "jobs.db"], {}, 2, "--ledger"),
        (["serve", "--docs", "no-such-folder"], {}, 2, "--docs"),
        (["serve", "--replay", "/nowhere/at/all"], {}, 2, "/nowhere/at/all"),
        (["serve", "--port", "99999"], {}, 2, "--port"),
    ],
)
async def test_a_mistake_has_its_status_and_names_the_place(service, arguments, env, status, says):
    """One or two lines on standard error, nothing on standard output.

    They have no traceback, no key, no password of a proxy and no argument of a Python function. The first
    line names each flag and variable once.
    """
    ended = await run(*arguments, service=service, **env)
    assert (ended.status, ended.out) == (status, ""), ended.err
    assert says in ended.err
    if "usage" not in ended.err:
        assert len(ended.err.strip().splitlines()) <= 2, ended.err
        line = ended.err.splitlines()[0]
        for name in ("domain=", "project_id", "base_url", "_key", "Assumptions", "current_path", "geheim"):
            assert name not in line
        words = line.replace(",", " ").replace(":", " ").split()
        ours = [word for word in words if word.startswith(("MINTLIFY_", "--"))]
        assert len(ours) == len(set(ours))
    keys = [value for name, value in child_environment(service, **env).items() if "API_KEY" in name]
    assert not [key for key in keys if key.strip() and key in ended.err]


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        ([], "mintlify-async [-h]"),
        (["ask", "--foo"], "mintlify-async ask [-h]"),
        (["ask", "--api-key", "x"], "mintlify-async ask [-h]"),
        (["job"], "mintlify-async job [-h]"),
        (["job", "list"], "the service has no list of jobs"),
        (["job", "cancel", "job_1"], "the service cannot cancel a job"),
        (["ci", "--turn", "3"], "job create --wait --dedupe-key KEY --ledger FILE"),
        (["ledger", "list", "jobs.db"], "name the ledger with --ledger"),
        (["doctor", "--json"], "read the text"),
        (["chat", "--list"], "await Conversation.ids(store, owner=…)"),
        (["serve", "--script=replies.json"], "write the script in Python"),
    ],
)
async def test_wrong_usage_shows_the_usage_of_its_command(arguments, usage):
    """Status 2; a key as an argument is answered with where keys come from, an old word with the new one."""
    ended = await run(*arguments)
    assert (ended.status, ended.out) == (2, "")
    assert usage in ended.err
    assert ("environment" in ended.err) == (arguments == [] or "--api-key" in arguments)


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["ask"], ["MINTLIFY_ASSISTANT_API_KEY", "MINTLIFY_DOMAIN"]),
        (["chat"], ["MINTLIFY_ASSISTANT_API_KEY", "MINTLIFY_DOMAIN"]),
        (["job", "create"], ["MINTLIFY_ADMIN_API_KEY", "MINTLIFY_PROJECT_ID"]),
        (["job", "wait", "mintlify-job:x"], ["MINTLIFY_ADMIN_API_KEY"]),
    ],
)
async def test_all_that_is_missing_is_reported_before_the_question_is_read(arguments, missing):
    """A line for each setting, then the way out: doctor, and serve for a try without an account."""
    ended = await run(*arguments, stdin="")  # the first complaint would be that it is blank
    *lines, advice = ended.err.splitlines()
    assert ended.status == 2
    assert [re.search(r"MINTLIFY_\w+", line)[0] for line in lines] == missing
    assert "mintlify-async doctor" in advice
    assert "mintlify-async serve" in advice


@pytest.mark.parametrize(
    "arguments", [["-v", "ask", "Hm?"], ["ask", "-v", "Hm?"], ["ask", "Hm?", "--verbose"]]
)
async def test_verbose_works_before_and_after_the_command(service, arguments):
    """It shows the request, and no key: it can be pasted anywhere."""
    ended = await run(*arguments, service=service)
    assert ended.status == 0
    assert "POST " in ended.err
    assert service.assistant_key not in ended.err
    assert "POST " not in (await run("ask", "Hm?", service=service)).err


COMMANDS = ["", "ask", "chat", "job", "job create", "ledger", "serve", "demo", "docs", "doctor"]


async def test_help_fits():
    """Nothing is wider than 80 columns."""
    for command in COMMANDS:
        ended = await run(*command.split(), "--help", COLUMNS="80")
        assert (ended.status, ended.err) == (0, "")
        assert max(map(len, ended.out.splitlines())) <= 80


async def test_help_says_what_each_command_does():
    """A command's own help opens with the words that the list of commands has for it."""
    for group in ("", "job", "ledger"):
        shown = (await run(*group.split(), "--help", COLUMNS="80")).out
        listed = re.findall(r"^ {4}(\w+) +(\S.*(?:\n {8,}.*)*)", shown, re.MULTILINE)
        assert len(listed) >= 3
        for name, words in listed:
            own = (await run(*group.split(), name, "--help", COLUMNS="80")).out
            sentence = " ".join(own.split("\n\n")[1].split())
            assert sentence.lower() == f"{' '.join(words.split())}.".lower()


@pytest.mark.parametrize("command", ["ask", "job"])
async def test_help_ends_with_examples(command):
    """Each of them is a call of that command."""
    ended = await run(command, "--help", COLUMNS="80")
    lines = ended.out.partition("\nexamples:\n")[2].split("\n\n")[0].splitlines()
    assert len(lines) >= 3
    assert all(f"mintlify-async {command} " in line for line in lines)


@pytest.mark.real
def test_help_is_quick():
    """No HTTP client, no loop and no rich is loaded for it."""
    program = (
        "import sys; from mintlify_async.cli import main; "
        f"[main([*command.split(), '--help']) for command in {COMMANDS}]; "
        "heavy = {'aiohttp', 'rich', 'asyncio', 'attr', 'mintlify_async.session'}; "
        "sys.exit(heavy & set(sys.modules) or 0)"
    )
    subprocess.run(
        [sys.executable, "-c", program], env=child_environment(), stdout=subprocess.DEVNULL, check=True
    )


async def test_the_version():
    """One line."""
    assert (await run("--version")).out == f"mintlify-async {mintlify_async.__version__}\n"


def test_ctrl_c_while_modules_are_loaded(monkeypatch):
    """The first moments of a command are for imports; the status is that of any Ctrl-C."""
    monkeypatch.setattr("importlib.import_module", mock.Mock(side_effect=KeyboardInterrupt))
    assert main(["demo"]) == 130


@pytest.mark.parametrize("text", [[], ["--keep-text"]], ids=["redacted", "text"])
@pytest.mark.parametrize("command", [["ask"], ["job", "create", "--wait"]], ids=["ask", "job"])
async def test_a_recording_can_be_played(service, tmp_path, command, text):
    """It has each request, no key, and the text only if it is asked for."""
    path = tmp_path / "recording.jsonl"
    first = await run(*command, "Fix the login", "--record", str(path), *text, service=service)
    async with LocalService() as replaying:
        replaying.replay(path)
        second = await run(*command, "Fix the login", service=replaying)
        assert replaying.script.rules == []
    assert (first.status, second.status) == (0, 0), first.err + second.err
    assert (second.out == first.out) is bool(text)
    assert ("Fix the login" in path.read_text()) is bool(text)
    assert len(path.read_text().splitlines()) == 1 + len(service.requests)
    assert not [key for key in (service.assistant_key, service.admin_key) if key in path.read_text()]
