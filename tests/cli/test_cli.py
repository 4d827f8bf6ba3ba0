"""The command line as a person meets it: what is printed where, and the exit status of each way to end."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator
from importlib import metadata
from pathlib import Path
from unittest import mock

import aiohttp
import pytest
from child_process import child_environment
from command_line import Ended, run

import mintlify_async
from mintlify_async.cli import main
from mintlify_async.cli.error_advice import in_command_line_words
from mintlify_async.testing import JobLife, LocalService, faults


def settings(service: LocalService | None, **changes: str | None) -> dict[str, str]:
    """Return a child's environment, without colours."""
    return child_environment(service, **{"NO_COLOR": "1", "COLUMNS": "100", **changes})


async def start(*arguments: str, env: dict[str, str], stdin: bool = False, cwd: Path | None = None):
    """Start the command and return its process."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "mintlify_async",
        *arguments,
        env=env,
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run_process(*arguments: str, service: LocalService | None = None, **env: str | None) -> Ended:
    """Run the command to its end in a process of its own, as a shell does; warnings are errors."""
    process = await start(*arguments, env=settings(service, **env))
    out, err = await process.communicate()
    assert process.returncode is not None
    ended = Ended(process.returncode, out.decode(), err.decode())
    assert "Traceback" not in ended.err, ended.err
    return ended


@pytest.fixture
async def service() -> AsyncIterator[LocalService]:
    async with LocalService(life=JobLife(seconds=0.2)) as running:
        yield running


# ask


async def test_ask_streams_the_answer_to_standard_output(service):
    """The answer, its sources and suggestions; notes go to standard error."""
    ended = await run_process("ask", "How do I log in?", service=service)
    assert ended.status == 0, ended.err
    assert len(ended.out) > 40
    assert "Sources:" in ended.out
    assert "```suggestions" not in ended.out
    (request,) = service.requests
    assert request.json["messages"][0]["parts"] == [{"type": "text", "text": "How do I log in?"}]
    assert request.json["retrievalPageSize"] == 5


def text_part(id: str, text: str) -> list[dict[str, str]]:
    """Return the events of a text, a character each."""
    deltas = [{"type": "text-delta", "id": id, "delta": character} for character in text]
    return [{"type": "text-start", "id": id}, *deltas, {"type": "text-end", "id": id}]


@pytest.mark.parametrize("site", [[], ["--site", "https://docs.acme.com"]], ids=["paths", "site"])
async def test_ask_shows_what_people_read(service, site):
    """Texts apart, suggestions below, wherever they stood; pages once, their addresses whole with a site."""
    page = {"path": "/login#sso", "metadata": {"title": "Log in"}}
    search = {"toolCallId": "1", "toolName": "search", "input": {"query": "log in"}}
    service.script.ask(
        events=[
            *text_part("a", "Let me look that up.\n"),
            {"type": "tool-input-available", **search},
            {"type": "tool-output-available", "toolCallId": "1", "output": {"results": [page]}},
            {"type": "source-url", "sourceId": "s", "url": "/login", "title": "Log in"},
            *text_part("b", "## Log in\n\nPress \ud83d\ude00."),
            *text_part("c", "```suggestions\n(7. Use `sso`)[/sso]\n```"),
            {"type": "finish"},
        ]
    )
    ended = await run("ask", "How do I log in?", *site, service=service)
    base = site[1] if site else ""
    assert ended.out == (
        "Let me look that up.\n\n## Log in\n\nPress 😀.\n"
        f"\nSources:\n\n- Log in — {base}/login\n  - #sso — {base}/login#sso\n"
        f"\nSee next:\n\n- 7. Use `sso` — {base}/sso\n"
    )
    assert ended.err == "search: log in\n"


async def test_ask_passes_its_options_on(service, tmp_path):
    """Each option is the interface's field."""
    code = tmp_path / "login.py"
    code.write_text("login()")
    options = [
        "--fp",
        "u1",
        "--results",
        "3",
        "--path",
        "/login",
        "--code",
        str(code),
        "--domain",
        service.domain,
    ]
    ended = await run("ask", "Right?", *options, service=service)
    assert ended.status == 0, ended.err
    (request,) = service.requests
    sent = {name: request.json[name] for name in ("fp", "retrievalPageSize", "currentPath", "context")}
    assert sent == {
        "fp": "u1",
        "retrievalPageSize": 3,
        "currentPath": "/login",
        "context": [{"type": "code", "value": "login()", "path": str(code)}],
    }


@pytest.mark.parametrize("arguments", [["ask"], ["ask", "-"]])
async def test_a_question_from_standard_input(service, arguments):
    """A pipe is a question."""
    ended = await run(*arguments, service=service, stdin="How do I log in?")
    assert ended.status == 0, ended.err
    assert service.requests[0].json["messages"][0]["parts"][0]["text"] == "How do I log in?"


async def test_ask_json_is_one_event_a_line(service):
    """Machines read what the service sent; the thread's key is not in it."""
    ended = await run("ask", "--json", "How do I log in?", service=service)
    events = [json.loads(line) for line in ended.out.splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("start", "finish")
    assert not re.search("thread_key_[0-9a-f]+", ended.out)


async def test_a_thread_goes_on(service, tmp_path):
    """What --save writes, --thread continues; the file is its owner's alone."""
    file = tmp_path / "thread.json"
    first = await run("ask", "--save", str(file), "How do I log in?", service=service)
    second = await run("ask", "--thread", str(file), "--save", str(file), "And by SSO?", service=service)
    assert (first.status, second.status) == (0, 0), second.err
    kept = json.loads(file.read_text())
    assert service.requests[1].json["threadId"] == kept["threadId"]
    assert service.requests[1].json["threadKey"] == kept["threadKey"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_thread_that_was_not_saved(service):
    """The message says how to begin one."""
    ended = await run("ask", "--thread", "nowhere.json", "Hm?", service=service)
    assert ended.status == 2
    assert "--save nowhere.json" in ended.err
    assert service.requests == []


async def test_a_cut_answer_is_no_answer(service):
    """What had come is printed, and the exit status says that it is not whole."""
    service.script.ask(
        events=[
            {"type": "start"},
            {"type": "text-start", "id": "1"},
            {"type": "text-delta", "id": "1", "delta": "Half"},
        ],
        done=False,
    )
    ended = await run("ask", "Hm?", service=service)
    assert (ended.status, ended.out) == (1, "Half\n")
    assert "not whole" in ended.err


async def test_half_characters_and_poor_terminals(service):
    """A character cut between two deltas is whole; what the output's encoding lacks is replaced."""
    pieces = [
        {"type": "text-delta", "id": "1", "delta": piece} for piece in ("\ud83d", "\ude00", "é", "\ud83d")
    ]
    events = [{"type": "start"}, {"type": "text-start", "id": "1"}, *pieces, {"type": "finish"}]
    service.script.ask(events=events, times=None)
    assert (
        await run_process("ask", "Hm?", service=service, PYTHONIOENCODING="utf-8")
    ).out == "\U0001f600é\ufffd\n"
    assert (await run_process("ask", "Hm?", service=service, PYTHONIOENCODING="ascii")).out == "???\n"
    as_json = await run_process("ask", "--json", "Hm?", service=service, PYTHONIOENCODING="ascii")
    assert [json.loads(line)["type"] for line in as_json.out.splitlines()] == [
        event["type"] for event in events
    ]


# What goes wrong


PYTHON = r"\w=|await|Session|JobRef|handle\.|reply\.|project_id|base_url|_key|thread\.|current_path"
"""Python in a message: arguments, classes and calls, which a command line does not have."""


@pytest.mark.parametrize(
    ("arguments", "env", "status", "says"),
    [
        (["ask", "Hm?"], {"MINTLIFY_ASSISTANT_API_KEY": None}, 2, "MINTLIFY_ASSISTANT_API_KEY"),
        (["ask", "Hm?"], {"MINTLIFY_ASSISTANT_API_KEY": "mint_test_admin_0123"}, 2, "assistant key"),
        (["ask", "Hm?"], {"MINTLIFY_DOMAIN": None}, 2, "MINTLIFY_DOMAIN"),
        (["ask", "Hm?"], {"MINTLIFY_BASE_URL": "http://127.0.0.1:9"}, 1, "doctor"),
        (["ask", "Hm?"], {"MINTLIFY_BASE_URL": "http://127.0.0.1:9"}, 1, "could not connect to 127.0.0.1:9"),
        (["ask", "Hm?"], {"MINTLIFY_BASE_URL": "http://[::1]:9"}, 1, "could not connect to [::1]:9"),
        (["ask", "Hm?"], {"MINTLIFY_BASE_URL": "ftp://x"}, 2, "MINTLIFY_BASE_URL must begin"),
        (["ask", "Hm?"], {"MINTLIFY_BASE_URL": "http://docs.example"}, 2, "use https"),
        (
            ["ask", "Hm?"],
            {"MINTLIFY_BASE_URL": "http://u:p@127.0.0.1"},
            2,
            "keys go in MINTLIFY_ADMIN_API_KEY",
        ),
        (["ask", "Hm?"], {"MINTLIFY_BASE_URL": " "}, 2, "unset the variable"),
        (["ask", "Hm?"], {"MINTLIFY_ASSISTANT_API_KEY": "' quoted'"}, 2, "quotation marks"),
        (["ask", "Hm?"], {"MINTLIFY_ASSISTANT_API_KEY": "mint_dsc_0123 "}, 2, "ends with a blank"),
        (
            ["ask", "Hm?"],
            {"MINTLIFY_ASSISTANT_API_KEY": "mint_dsc_é"},
            2,
            "MINTLIFY_ASSISTANT_API_KEY may hold",
        ),
        (
            ["ask", "Hm?"],
            {"MINTLIFY_DOMAIN": "https://docs.example"},
            2,
            "MINTLIFY_DOMAIN is a URL or",
        ),
        (["ask", "Hm?", "--domain", "a/b"], {}, 2, "--domain is a URL or a path"),
        (["ask", "Hm?", "--domain", ".."], {}, 2, "--domain must not be '..'"),
        (["ask", "Hm?", "--domain", "other"], {}, 1, "check --domain or MINTLIFY_DOMAIN"),
        (["ask", "Hm?", "--domain", ""], {}, 2, "--domain: it is empty"),
        (["ask", "Hm?", "--fp", " "], {}, 2, "--fp: it is empty"),
        (["ask", " \n"], {}, 2, "the question is blank"),
        (["ask", "-"], {}, 2, "the question is blank"),
        (["ask", "Hm?", "--path", "x" * 201], {}, 2, "--path has 201 characters; the limit is 200"),
        (["ask", "Hm?", "--results", "0"], {}, 2, "--results"),
        (["ask", "Hm?", "--timeout", "nan"], {}, 2, "--timeout"),
        (["ask", "Hm?", "--code", "no-such-file"], {}, 2, "no-such-file"),
        (["ask", "Hm?", "--code", sys.executable], {}, 2, "is not text in UTF-8"),
        (["job", "create", ""], {}, 2, "the prompt is blank"),
        (["job", "send", "job_1", "  "], {}, 2, "the prompt is blank"),
        (
            ["job", "create", "Fix"],
            {"MINTLIFY_ADMIN_API_KEY": "mint_dsc_0123"},
            2,
            "holds an assistant key: agent jobs need the admin key, in MINTLIFY_ADMIN_API_KEY",
        ),
        (
            ["ask", "Hm?"],
            {"MINTLIFY_ASSISTANT_API_KEY": None, "MINTLIFY_API_KEY": "mint_0123"},
            2,
            "MINTLIFY_API_KEY holds an admin key",
        ),
        (
            ["ask", "Hm?"],
            {"MINTLIFY_ASSISTANT_API_KEY": None, "MINTLIFY_API_KEY": "mint_dsc_0123\r"},
            2,
            "MINTLIFY_API_KEY begins or ends with a blank or a line break",
        ),
        (
            ["job", "create", "Fix"],
            {"MINTLIFY_ADMIN_API_KEY": None, "MINTLIFY_API_KEY": "'mint_0123'"},
            2,
            "MINTLIFY_API_KEY has quotation marks around it",
        ),
        (
            ["job", "create", "Fix"],
            {"MINTLIFY_ADMIN_API_KEY": None, "MINTLIFY_API_KEY": "key_0123"},
            2,
            "MINTLIFY_API_KEY holds a key whose prefix is not known",
        ),
        (["job", "show", "job_1"], {"MINTLIFY_PROJECT_ID": None}, 2, "or give --project"),
        (["job", "show", "mintlify-job:cut"], {}, 2, "`mintlify-async job create` prints it"),
        (["job", "create", "Fix", "--project", "other"], {}, 1, "check --project or MINTLIFY_PROJECT_ID"),
        (["job", "create", "Fix", "--dedupe-key", "k", "--ledger", ""], {}, 2, "--ledger: it is empty"),
        (["job", "create", "Fix", "--dedupe-key", "k", "--ledger", "/no/l.db"], {}, 1, "/no/l.db"),
        (["ask", "  "], {}, 2, "the question is blank"),
        (
            ["job", "create", "Fix"],
            {"MINTLIFY_ADMIN_API_KEY": "mint_test_expired_0123456789abcdef"},
            1,
            "new key",
        ),
        (
            ["job", "create", "Fix"],
            {"MINTLIFY_ADMIN_API_KEY": "mint_test_read_only_0123456789abcdef"},
            1,
            "scope",
        ),
        (["job", "create", "Fix"], {"MINTLIFY_PROJECT_ID": None}, 2, "MINTLIFY_PROJECT_ID"),
        (["job", "create", "Fix", "--dedupe-key", "k"], {}, 2, "--ledger"),
        (["job", "show", "job_404"], {}, 1, "404"),
        (["job", "wait", "job_404"], {}, 1, "404"),
        (["job", "show", ".."], {}, 2, "ref must not be"),
        (["job"], {}, 2, "VERB"),
        (["nonsense"], {}, 2, "invalid choice"),
        ([], {}, 2, "usage"),
    ],
)
async def test_each_mistake_is_told_in_a_line_or_two(service, arguments, env, status, says):
    """What is wrong and what to do, no traceback, no key, the right status, nothing on standard output."""
    ended = await run(*arguments, service=service, **env)
    assert (ended.status, ended.out) == (status, ""), ended.err
    assert says in ended.err
    if "usage" not in ended.err:
        assert len(ended.err.strip().splitlines()) <= 2, ended.err
    assert not re.search(PYTHON, ended.err), ended.err
    assert not [
        value for name, value in settings(service, **env).items() if "API_KEY" in name and value in ended.err
    ]


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["ask"], ["MINTLIFY_ASSISTANT_API_KEY", "MINTLIFY_DOMAIN"]),
        (["chat"], ["MINTLIFY_ASSISTANT_API_KEY", "MINTLIFY_DOMAIN"]),
        (["job", "create"], ["MINTLIFY_ADMIN_API_KEY", "MINTLIFY_PROJECT_ID"]),
        (["job", "wait", "job_1"], ["MINTLIFY_ADMIN_API_KEY", "MINTLIFY_PROJECT_ID"]),
        (["job", "wait", "mintlify-job:x"], ["MINTLIFY_ADMIN_API_KEY"]),
    ],
)
async def test_all_that_is_missing_is_told_before_the_question_is_read(arguments, missing):
    """A line for each setting, then the way out: doctor, and serve for a try without an account."""
    stdin = mock.Mock(**{"read.side_effect": AssertionError("the question was read"), "isatty": lambda: True})
    with mock.patch.dict(os.environ, settings(None), clear=True), mock.patch("sys.stdin", stdin):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            status = await asyncio.to_thread(main, arguments)
    *told, advice = err.getvalue().splitlines()
    assert status == 2
    assert [line.split()[1] for line in told] == missing
    assert "mintlify-async doctor" in advice
    assert "mintlify-async serve" in advice


@pytest.mark.parametrize(
    ("python", "command_line"),
    [
        ("a bare job id needs a project: give the session project_id=, or pass a JobRef", "give --project,"),
        ("was changed since it was loaded; `await chat.load()` and ask again", "start the chat again"),
        (
            "no such job in this project: check the job's id and project_id=",
            "check the job's id and --project",
        ),
        ("docs must be a folder with Markdown pages", "--docs must be"),
        ("script: answers[0]: no", "--script: answers"),
        ("the domain of the script is unknown", "the domain of the script is unknown"),
        (
            "assistant_key is missing; pass assistant_key= or set MINTLIFY_ASSISTANT_API_KEY",
            "ASSISTANT_API_KEY is missing; set MINTLIFY_ASSISTANT_API_KEY",
        ),
        (
            "assistant_key holds an admin key (check_key_kind=False turns this check off)",
            "holds an admin key",
        ),
    ],
)
def test_advice_in_python_is_put_in_the_words_of_the_command_line(python, command_line):
    """Flags and variables stand in the place of arguments; plain words stay."""
    said = in_command_line_words(python)
    assert command_line in said
    assert not re.search(PYTHON, said)


async def test_a_question_needs_no_quotes(service):
    """The words after `ask` are one question; a job's instruction, too."""
    assert (await run("ask", "How", "do", "I", "log", "in", "--json", service=service)).status == 0
    assert (await run("job", "create", "Fix", "the", "typos", service=service)).status == 0
    ask, create = service.requests
    assert ask.json["messages"][0]["parts"][0]["text"] == "How do I log in"
    assert create.json == {"prompt": "Fix the typos"}


async def test_a_saved_thread_is_private_even_over_an_open_file(service, tmp_path):
    """A file that others could read, and that was longer, is its owner's alone, and whole."""
    file = tmp_path / "thread.json"
    file.write_text("x" * 5000)
    file.chmod(0o644)
    assert (await run("ask", "--save", str(file), "Hm?", service=service)).status == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert set(json.loads(file.read_text())) == {"threadId", "threadKey"}


@pytest.mark.parametrize(
    ("option", "name", "says"),
    [
        ("--save", "folder", "--save folder is not a file"),
        ("--save", "no/where.json", "--save no/where.json cannot be written: No such file"),
        ("--thread", "folder", "--thread folder cannot be read: Is a directory"),
        ("--thread", "foreign.json", "--thread foreign.json is not a file that --save wrote"),
        ("--thread", "list.json", "--thread list.json is not a file that --save wrote"),
        ("--thread", "number.json", "--thread number.json is not a file that --save wrote"),
        ("--thread", "binary", "--thread binary is not a file that --save wrote"),
    ],
)
async def test_files_are_checked_before_the_question_is_paid_for(
    service, tmp_path, monkeypatch, option, name, says
):
    """One line with the option, the file and what is wrong; nothing is sent."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "foreign.json").write_text('{"name": "package", "version": 1}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "number.json").write_text('{"threadId": 3}')
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    monkeypatch.chdir(tmp_path)
    ended = await run("ask", option, name, "Hm?", service=service)
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert says in line
    assert service.requests == []


async def test_a_failed_question_leaves_the_saved_thread(service, tmp_path):
    """The file keeps what it had; one that did not exist is not left behind empty."""
    kept, new = tmp_path / "kept.json", tmp_path / "new.json"
    kept.write_text('{"threadId": "t"}')
    service.script.ask(status=500, times=None)
    for file in (kept, new):
        assert (await run("ask", "--save", str(file), "Hm?", service=service)).status == 1
    assert kept.read_text() == '{"threadId": "t"}'
    assert not new.exists()


async def test_an_answer_without_a_thread_saves_none_and_says_so(service, tmp_path):
    """The status is that of the answer; the file is not made."""
    service.script.ask(events=[{"type": "start"}, {"type": "finish"}])
    ended = await run("ask", "--save", str(tmp_path / "t.json"), "Hm?", service=service)
    assert ended.status == 0
    assert "named no thread" in ended.err
    assert not (tmp_path / "t.json").exists()


def test_ctrl_c_while_modules_are_loaded_ends_it_without_a_traceback(monkeypatch):
    """The first moments of a command are for imports; the status is that of any Ctrl-C."""
    monkeypatch.setattr("importlib.import_module", mock.Mock(side_effect=KeyboardInterrupt))
    assert main(["demo"]) == 130


async def test_a_limit_that_is_used_up(service):
    """The figure of Retry-After is told."""
    service.script.ask(status=429, headers={"Retry-After": "86400"})
    ended = await run("ask", "Hm?", service=service)
    assert ended.status == 1
    assert "86400" in ended.err


async def test_a_thread_without_its_key(service, tmp_path):
    """The 404 says that the key is missing."""
    file = tmp_path / "thread.json"
    assert (await run("ask", "--save", str(file), "First?", service=service)).status == 0
    file.write_text(json.dumps({"threadId": json.loads(file.read_text())["threadId"]}))
    ended = await run("ask", "--thread", str(file), "Second?", service=service)
    assert ended.status == 1
    assert "key" in ended.err


async def test_a_closed_pipe_ends_it_quietly(service):
    """`| head -1` is no error to complain of."""
    service.script.ask(
        events=[
            {"type": "start"},
            *({"type": "data-x", "data": "y" * 5000} for _ in range(400)),
            {"type": "finish"},
        ]
    )
    env = settings(service)
    command = f"{sys.executable} -m mintlify_async ask --json 'Hm?' | head -1; exit ${{PIPESTATUS[0]}}"
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (141, "")
    assert json.loads(out)["type"] == "start"


async def test_ctrl_c_in_a_stream(service):
    """It ends at once with 130, and the service is left."""
    service.script.ask(
        events=[
            {"type": "start"},
            {"type": "text-start", "id": "1"},
            {"type": "text-delta", "id": "1", "delta": "Half"},
            60.0,
        ]
    )
    process = await start("ask", "Hm?", env=settings(service))
    assert await process.stdout.readexactly(4) == b"Half"
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"\n")
    assert b"Traceback" not in err


# job


async def test_job_create_prints_the_reference(service):
    """One POST, and what is needed to go on, alone on standard output."""
    ended = await run("job", "create", "Fix the typos", service=service)
    assert ended.status == 0, ended.err
    ref = mintlify_async.JobRef.parse(ended.out.strip())
    assert ref.id in service.jobs
    assert service.requests == [("POST", f"/v2/agent/{service.project_id}/job", {"prompt": "Fix the typos"})]


async def test_job_create_and_wait(service):
    """Its states and its reference on standard error, its last record on standard output."""
    ended = await run("job", "create", "-", "--wait", service=service, stdin="Fix the typos")
    assert ended.status == 0, ended.err
    assert re.fullmatch(r"\S+  completed  https?://\S+\n", ended.out)
    assert "mintlify-job:" in ended.err
    assert "active" in ended.err


async def test_job_goes_on_elsewhere(service):
    """create, send, wait, watch and show work together through the reference alone."""
    ref = (await run("job", "create", "Fix", service=service)).out.strip()
    waited = await run("job", "wait", ref, "--json", service=service)
    assert json.loads(waited.out)["status"] == "completed"
    turn = (await run("job", "send", ref, "More", service=service)).out.strip()
    assert mintlify_async.JobRef.parse(turn).awaiting_turn
    watched = await run("job", "watch", turn, "--json", service=service)
    assert [json.loads(line)["status"] for line in watched.out.splitlines()][-1] == "completed"
    shown = await run("job", "show", ref, service=service)
    assert "completed" in shown.out
    bare = await run(
        "job", "show", json.loads(waited.out)["id"], "--project", service.project_id, service=service
    )
    assert (shown.status, bare.status, bare.out) == (0, 0, shown.out)


@pytest.mark.parametrize("verb", ["wait", "watch", "show"])
async def test_a_failed_job_has_its_own_status(service, verb):
    """Scripts can tell a failed job from a failed look."""
    service.life = JobLife(seconds=0.0, outcome="failed")
    ref = (await run("job", "create", "Fix", service=service)).out.strip()
    ended = await run("job", verb, ref, service=service)
    assert ended.status == 3, ended.err
    assert "failed" in ended.out


async def test_giving_up_tells_the_reference(service):
    """Status 4, and the command to go on with."""
    service.life = JobLife(seconds=3600)
    ended = await run("job", "create", "Fix", "--wait", "--timeout", "0.3", service=service)
    assert ended.status == 4
    ref = re.search(r"mintlify-async job wait (mintlify-job:\S+)", ended.err)
    assert ref
    assert (await run("job", "show", ref.group(1), service=service)).status == 0


async def test_ctrl_c_in_a_wait_tells_the_reference(service):
    """The job was paid for: the reference is printed before 130."""
    service.life = JobLife(seconds=3600)
    process = await start("job", "create", "Fix", "--wait", env=settings(service))
    seen = b""
    while b"active" not in seen:
        seen += await process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 130
    assert b"mintlify-async job wait mintlify-job:" in err
    assert b"Traceback" not in err


async def test_an_unknown_outcome_is_told(service):
    """The create is not sent again, and the message says where to look."""
    service.script.create_job(fault=faults.Close())
    ended = await run("job", "create", "Fix", service=service)
    assert ended.status == 1
    assert "dashboard" in ended.err
    assert len(service.requests) == 1


async def test_a_dedupe_key_creates_once(service, tmp_path):
    """The same key prints the same job."""
    options = ["--dedupe-key", "release-1", "--ledger", str(tmp_path / "ledger.db")]
    first = await run("job", "create", "Fix", *options, service=service)
    second = await run("job", "create", "Fix", *options, service=service)
    assert (first.status, second.status) == (0, 0), second.err
    assert mintlify_async.JobRef.parse(first.out) == mintlify_async.JobRef.parse(second.out)
    assert len(service.requests) == 1


# serve, demo, doctor, help


async def test_serve_takes_its_script(tmp_path):
    """A test in another language says in a file what is answered."""
    file = tmp_path / "script.json"
    file.write_text(
        json.dumps({"answers": [{"operation": "ask", "status": 429, "headers": {"Retry-After": "9999"}}]})
    )
    options = ["--port", "0", "--script", str(file), "--quiet", "--cors", "*", "--pause", "0.001"]
    process = await start("serve", *options, env=settings(None))
    address = (await process.stdout.readline()).decode().split()[1]
    url = f"{address}/discovery/v2/assistant/x/message"
    async with aiohttp.ClientSession() as client, client.post(url, json={}) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "9999")
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize(
    "options", [["--docs", "no-such-folder"], ["--script", "no-such-file"], ["--port", "99999"]]
)
async def test_serve_refuses_what_is_not_there(options):
    """Status 2 and the name of what is wrong."""
    ended = await run("serve", "--port", "0", *options)
    assert (ended.status, ended.out) == (2, "")
    assert options[1] in ended.err or options[0].strip("-") in ended.err


async def test_serve_on_a_used_port_names_the_address():
    """One line with the address and the way out."""
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        ended = await run_process("serve", "--port", str(port))
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert f"127.0.0.1:{port} is in use" in line
    assert "--port" in line


async def test_serve_says_when_it_is_ready_and_stops_on_sigterm():
    """One ready line with the address; a request is answered; SIGTERM ends it well."""
    process = await start("serve", "--port", "0", env=settings(None))
    ready = (await process.stdout.readline()).decode()
    address = re.fullmatch(r"ready (http://127\.0\.0\.1:\d+)\n", ready)
    assert address
    exports = b""
    while b"ASSISTANT" not in exports:
        exports += await process.stderr.readline()
    env = dict(re.findall(r"export (\w+)=(\S+)", exports.decode()))
    assert env["MINTLIFY_BASE_URL"] == address.group(1)
    assert (await run("ask", "How do I log in?", **env)).status == 0
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 0


async def test_the_demo_shows_everything():
    """A streamed answer with a thread id, and a job that reached completed, in a good quarter of a minute."""
    ended = await run_process("demo")
    assert (ended.status, ended.err.count("Traceback")) == (0, 0), ended.err
    ids = re.findall(r"thread id: (\S+)", ended.out)
    assert len(ids) == 2
    assert ids[0] == ids[1]
    assert ended.out.count("completed") >= 2
    assert "active" in ended.out
    assert "session.ask(" in ended.out
    ours = re.findall(r"^(?:    |\d\. |That was|service).*$", ended.out, re.MULTILINE)
    assert max(map(len, ours)) <= 80


async def test_the_doctor_is_content(service):
    """Kinds of keys, versions and a look at the service; no key's text, no job, status 0."""
    ended = await run_process("doctor", service=service)
    assert ended.status == 0, ended.out
    assert "MINTLIFY_ADMIN_API_KEY: an admin key" in ended.out
    assert "the admin key is accepted" in ended.out
    assert f"aiohttp {__import__('aiohttp').__version__}" in ended.out
    assert [request.method for request in service.requests] == ["GET"]
    assert service.admin_key not in ended.out + ended.err
    assert service.assistant_key not in ended.out + ended.err


@pytest.mark.parametrize(("installed", "warned"), [("3.13.5", True), ("3.14.3", False)])
async def test_the_doctor_warns_of_an_unsafe_aiohttp(service, monkeypatch, installed, warned):
    """It names the flaw and the command that mends it; the status does not change."""
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: installed if name == "aiohttp" else version(name))
    ended = await run("doctor", service=service)
    assert ended.status == 0
    assert ("GHSA-cq5v-8q36-5273" in ended.out) == warned
    assert ("pip install 'aiohttp>=3.14.3,<4'" in ended.out) == warned


@pytest.mark.parametrize(
    ("env", "status", "says"),
    [
        ({"MINTLIFY_ADMIN_API_KEY": "mint_dsc_test_0123"}, 1, "agent jobs need the admin key"),
        ({"MINTLIFY_ASSISTANT_API_KEY": "mint_test_0123"}, 1, "needs the assistant key"),
        ({"MINTLIFY_ASSISTANT_API_KEY": "mint_us_0123"}, 1, "needs the assistant key"),
        (
            {"MINTLIFY_ASSISTANT_API_KEY": "sk-0123"},
            1,
            "MINTLIFY_ASSISTANT_API_KEY is a key whose prefix is not known",
        ),
        ({"MINTLIFY_ASSISTANT_API_KEY": '"mint_dsc_0123"'}, 1, "quotation marks"),
        ({"MINTLIFY_DOMAIN": "https://acme.example"}, 1, "MINTLIFY_DOMAIN is a URL or"),
        ({"MINTLIFY_PROJECT_ID": ".."}, 1, "MINTLIFY_PROJECT_ID must not be"),
        ({"MINTLIFY_BASE_URL": "ftp://x"}, 1, "MINTLIFY_BASE_URL must begin"),
        ({"MINTLIFY_ASSISTANT_API_KEY": "mint_dsc_é"}, 1, "MINTLIFY_ASSISTANT_API_KEY may hold"),
        ({"MINTLIFY_DOMAIN": "acme "}, 1, "MINTLIFY_DOMAIN begins or ends with a blank"),
        ({"MINTLIFY_PROJECT_ID": "other"}, 1, "it has no project other: check MINTLIFY_PROJECT_ID"),
        ({"MINTLIFY_ADMIN_API_KEY": "mint_test_expired_0123456789abcdef"}, 1, "401"),
        ({"MINTLIFY_ADMIN_API_KEY": None, "MINTLIFY_BASE_URL": "http://127.0.0.1:9"}, 1, "not reached"),
        ({"MINTLIFY_ADMIN_API_KEY": None}, 0, "not checked: the admin key and the project"),
        ({}, 0, "not checked: whether the service accepts the assistant key and the domain"),
        ({}, 0, "not checked: whether the project acme exists"),
        ({}, 0, "not checked: whether the admin key may create jobs"),
        (
            {"MINTLIFY_ADMIN_API_KEY": None, "MINTLIFY_API_KEY": "mint_test_expired_0123456789abcdef"},
            1,
            "MINTLIFY_API_KEY: an admin key, for jobs",
        ),
    ],
)
async def test_the_doctor_finds_what_is_wrong(service, env, status, says):
    """Each finding says what to do."""
    ended = await run("doctor", service=service, **env)
    assert ended.status == status, ended.out + ended.err
    assert says in ended.out
    assert not re.search(PYTHON, ended.out + ended.err)
    assert {request.method for request in service.requests} <= {"GET"}


@pytest.mark.parametrize("command", ["", "ask", "chat", "job", "job create", "serve", "demo", "doctor"])
async def test_help_is_quick_and_fits(command):
    """No HTTP client, no loop and no rich is loaded for it; nothing is wider than 80 columns."""
    program = (
        "import sys; from mintlify_async.cli import main; status = main([*sys.argv[1:], '--help']); "
        "heavy = {'aiohttp', 'rich', 'asyncio', 'attr', 'mintlify_async.session'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr); "
        "sys.exit(status)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        *command.split(),
        env=settings(None, COLUMNS="80"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, err.decode().strip()) == (0, "[]")
    assert max(map(len, out.decode().splitlines())) <= 80


@pytest.mark.parametrize("command", ["ask Hm?", "job create Fix", "job wait job_1"])
async def test_a_missing_setting_is_told_before_anything_large_is_loaded(command):
    """The HTTP client comes with a session, recorder and ledgers with the options that ask for them."""
    program = (
        "import sys; from mintlify_async.cli import main; status = main(sys.argv[1:]); "
        "ours = {f'mintlify_async.{name}' for name in ('session', 'testing', 'contrib', 'storage')}; "
        "print(status, sorted(({'aiohttp', 'rich'} | ours) & set(sys.modules)))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *command.split(),
        env=settings(None),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert out.decode().strip() == "2 []", err
    assert b"is not set" in err


async def test_the_version_is_told():
    """One line."""
    assert (await run("--version")).out == f"mintlify-async {mintlify_async.__version__}\n"


async def test_verbose_shows_what_is_sent_and_no_key(service):
    """-v is for support requests: it can be pasted anywhere."""
    ended = await run("-v", "ask", "How do I log in?", service=service)
    assert ended.status == 0
    assert service.assistant_key not in ended.err
