"""``job`` and ``ledger``: one POST, references, exit statuses, and keys whose outcome is open."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys

import pytest

import mintlify_async
from mintlify_async.cli.terminal import shell_word
from mintlify_async.testing import Close, JobLife
from tests.support.child_process import child_environment
from tests.support.command_line import run, start


async def test_create_and_wait(service):
    """States and reference on standard error, the last record on standard output."""
    ended = await run("job", "create", "-", "--wait", service=service, stdin="Fix the typos")
    assert ended.status == 0, ended.err
    assert service.requests[0].json == {"prompt": "Fix the typos"}
    assert re.fullmatch(r"job_1  completed  https://\S+\n", ended.out)
    assert "mintlify-job:" in ended.err
    assert "job_1  active\n" in ended.err


async def test_a_job_continues_elsewhere(service):
    """Create, wait, send, watch and show work together through the reference alone, which each prints."""
    ref = (await run("job", "create", "Fix", "the", "typos", service=service)).out.strip()
    assert mintlify_async.JobRef.parse(ref).id in service.jobs
    assert service.requests == [("POST", f"/v2/agent/{service.project_id}/job", {"prompt": "Fix the typos"})]
    waited = await run("job", "wait", ref, "--json", service=service)
    assert json.loads(waited.out)["status"] == "completed"
    turn = (await run("job", "send", ref, "More", service=service)).out.strip()
    assert service.requests.of("send_message")[0].json == {"prompt": "More"}
    assert turn != ref
    watched = await run("job", "watch", ref, "--json", service=service)
    assert json.loads(watched.out.splitlines()[-1])["status"] == "completed"
    shown = await run("job", "show", ref, service=service)
    bare = await run("job", "show", "job_1", "--project", service.project_id, service=service)
    assert (shown.status, bare.status, bare.out) == (0, 0, shown.out)


@pytest.mark.parametrize("verb", ["wait", "watch", "show"])
async def test_a_failed_job_has_its_own_status(service, verb):
    """Scripts can tell a failed job from a failed look."""
    service.life = JobLife(seconds=0.0, outcome="failed")
    ref = (await run("job", "create", "Fix", service=service)).out.strip()
    ended = await run("job", verb, ref, service=service)
    assert ended.status == 3, ended.err
    assert "failed" in ended.out


async def test_giving_up_prints_the_reference(service):
    """Status 4, and the command to continue with."""
    service.life = JobLife(seconds=3600)
    ended = await run("job", "create", "Fix", "--wait", "--timeout", "0.3", service=service)
    assert ended.status == 4
    ref = re.search(r"mintlify-async job wait (mintlify-job:\S+)", ended.err)
    assert ref
    assert (await run("job", "show", ref[1], service=service)).status == 0


@pytest.mark.real
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_in_a_wait_prints_the_reference(service, number, status):
    """The job is paid for, and CI services end a run by SIGTERM."""
    service.life = JobLife(seconds=3600)
    process = await start("job", "create", "Fix", "--wait", env=child_environment(service))
    while b"active" not in await process.stderr.readline():
        pass
    process.send_signal(number)
    _, err = await process.communicate()
    assert process.returncode == status
    assert b"mintlify-async job wait mintlify-job:" in err
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    "field",
    [{"prLink": "https://x/1\n::error::y"}, {"prLink": "::error::y"}, {"status": "::a\r\n##[error]y"}],
)
async def test_texts_of_the_service_are_no_lines_of_their_own(service, field):
    """A CI service obeys lines that begin with :: or contain ##[."""
    service.script.create_job(body={"id": "::error::y", "status": "active"})
    service.script.get_job(body={"id": "job_1", "status": "completed"} | field)
    created = await run("job", "create", "Fix", service=service)
    shown = await run("job", "show", "job_1", service=service)
    assert (created.status, shown.status) == (0, 0)
    assert len((created.out + shown.out).splitlines()) == 2
    assert not re.search(r"^\s*::|##\[", created.out + shown.out, re.MULTILINE)


@pytest.mark.parametrize("verb", ["create", "send"])
async def test_a_dedupe_key_sends_once(service, tmp_path, verb):
    """The same key prints the same job; the folder of the ledger is made."""
    file = str(tmp_path / "cache" / "jobs.db")
    await run("job", "create", "Fix", service=service)
    command = ["job", "create", "Fix"] if verb == "create" else ["job", "send", "job_1", "More"]
    for _ in range(2):
        ended = await run(*command, "--dedupe-key", "k", "--ledger", file, service=service)
        assert ended.status == 0, ended.err
    assert len([request for request in service.requests if request.method == "POST"]) == 2
    assert (await run("ledger", "list", "--ledger", file)).out == ""
    assert (
        await run(*command[:-1], "Else", "--dedupe-key", "k", "--ledger", file, service=service)
    ).status == 2


async def test_an_open_claim_is_listed_and_settled(service, tmp_path):
    """An unknown outcome has its own status. Nothing is sent for the key until a person has settled it."""
    file = str(tmp_path / "jobs.db")
    create = ["job", "create", "Fix", "--dedupe-key", "release\n1", "--ledger", file]
    service.script.create_job(fault=Close())
    assert (await run(*create, service=service)).status == 5
    ledger = ("--ledger", file)
    listed = await run("ledger", "list", *ledger)
    assert listed.status == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\S+Z  .*\$'release\\x0a1'\n", listed.out)
    assert (await run("ledger", "resolve", "release\n1", "job_7", *ledger)).status == 0
    resolved = await run(*create, service=service)
    assert (resolved.status, mintlify_async.JobRef.parse(resolved.out).id) == (0, "job_7")
    assert (await run("ledger", "forget", "release\n1", *ledger)).status == 0
    assert service.requests.count("create_job") == 1
    assert (await run(*create, service=service)).status == 0
    assert service.requests.count("create_job") == 2
    assert (await run("ledger", "resolve", "release\n1", "job_8", *ledger)).status == 2


async def test_all_keys_of_a_ledger_are_listed_with_their_jobs(service, tmp_path):
    """The service has no list of jobs, so the ledger is one, also of follow-ups. MINTLIFY_LEDGER names it."""
    ledger = {"MINTLIFY_LEDGER": str(tmp_path / "jobs.db")}
    ref = (await run("job", "create", "Fix", "--dedupe-key", "a b", service=service, **ledger)).out.strip()
    assert (await run("job", "send", ref, "More", "--dedupe-key", "c", service=service, **ledger)).status == 0
    assert (await run("ledger", "list", **ledger)).out == ""
    lines = (await run("ledger", "list", "--all", **ledger)).out.splitlines()
    assert [line.split("  ")[1:] for line in lines] == [
        ["done", "create_job", "'a b'", "job_1"],
        ["done", "send_message", "c", "job_1"],
    ]


@pytest.mark.parametrize("server", ["redis_server", "postgres_server"])
async def test_a_ledger_on_a_server_is_settled(service, request, server):
    """The error of an open claim sends people to this command, whatever their ledger is."""
    url = request.getfixturevalue(server).url
    create = ["job", "create", "Fix", "--dedupe-key", "k", "--ledger", url]
    service.script.create_job(fault=Close())
    assert (await run(*create, service=service)).status == 5
    assert "create_job  k\n" in (await run("ledger", "list", "--ledger", url)).out
    assert (await run("ledger", "resolve", "k", "job_7", "--ledger", url)).status == 0
    assert (await run("ledger", "list", "--all", MINTLIFY_LEDGER=url)).out.endswith("  k  job_7\n")
    assert mintlify_async.JobRef.parse((await run(*create, service=service)).out).id == "job_7"
    assert (await run("ledger", "forget", "k", MINTLIFY_LEDGER=url)).status == 0
    assert (await run(*create, service=service)).status == 0
    assert service.requests.count("create_job") == 2


async def test_the_password_of_a_ledger_is_not_shown(redis_server):
    """Not by an error of the URL, of its host or of the server."""
    bad = ("redis://:s3cr3t/x@h", "redis://:s3cr3t@127.0.0.1:1", redis_server.url.replace("//", "//:s3cr3t@"))
    postgres = (
        "postgresql://u:s3cr3t/x@h/d",
        "postgresql://u:s3cr3t@127.0.0.1:1/d",
        "postgres://u:1/s3cr3t@h/d",
    )
    for url in (*bad, *postgres):
        ended = await run("ledger", "list", MINTLIFY_LEDGER=url)
        assert "s3cr3t" not in ended.err
        assert "Traceback" not in ended.err


async def test_a_reference_settles_a_claim_like_an_id(service, tmp_path):
    """What the command prints can be pasted there."""
    file = str(tmp_path / "jobs.db")
    create = ["job", "create", "Fix", "--dedupe-key", "k", "--ledger", file]
    ref = (await run("job", "create", "Fix", service=service)).out.strip()
    service.script.create_job(fault=Close())
    assert (await run(*create, service=service)).status == 5
    assert (await run("ledger", "resolve", "k", ref, "--ledger", file)).status == 0
    assert mintlify_async.JobRef.parse((await run(*create, service=service)).out).id == "job_1"


@pytest.mark.parametrize("spelling", ["~/x/jobs.db", "{home}/x/jobs.db"])
async def test_a_home_folder_is_the_same_from_everywhere(service, tmp_path, monkeypatch, spelling):
    """A shell does not expand the ~ of --ledger=~/x. In two folders, this was two ledgers and two jobs."""
    for name in ("home", "a", "b"):
        (tmp_path / name).mkdir()
    for folder in ("a", "b"):
        monkeypatch.chdir(tmp_path / folder)
        ledger = f"--ledger={spelling.format(home=tmp_path / 'home')}"
        home = str(tmp_path / "home")
        ended = await run("job", "create", "Fix", "--dedupe-key=k", ledger, service=service, HOME=home)
        assert ended.status == 0, ended.err
    assert service.requests.count("create_job") == 1
    assert [list((tmp_path / folder).iterdir()) for folder in ("a", "b")] == [[], []]


@pytest.mark.parametrize("job", ["agent:1", "a b", "-v", "--json", "$(id)", "::error::y", "{}", "x;y", "é"])
async def test_the_first_word_of_a_record_can_be_pasted(service, job):
    """It names the same job again, in a shell, too. The service does not document the format of an id."""
    service.script.create_job(body={"id": job, "status": "active"})
    service.script.get_job(body={"id": job, "status": "completed"}, times=None)
    ref = (await run("job", "create", "Fix", service=service)).out.strip()
    shown = await run("job", "show", ref, service=service)
    (word, *_) = shlex.split(shown.out)
    assert (await run("job", "show", word, service=service)).out == shown.out
    assert service.requests[-1].path == service.requests[-2].path


@pytest.mark.real
def test_a_key_that_is_listed_can_be_pasted():
    """Whatever the key is, bash reads the same key, and the line stays one line without CI commands."""
    dice, odd = random.Random(5), "aZ09 \t\n\x0b\x1b\x7f'\"\\$`!#[]*?~;&|<>(){}-é漢\x85\u2028\U0001f600"
    keys = ["".join(dice.choices(odd, k=dice.randint(1, 12))) for _ in range(500)]
    keys += ["-v", "##[error]x", "::error::y", "\x0a1", "\x850"]
    words = [shell_word(key) for key in keys]
    program = "\n".join(f"printf '%s\\0' {word}" for word in words).encode()
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    output = subprocess.run(
        ["bash"], input=program, stdout=subprocess.PIPE, check=True, env=environment
    ).stdout
    assert output.decode().split("\0")[:-1] == keys
    assert not [word for word in words if not word.isprintable() or "##[" in word]


class FullDisk(io.StringIO):
    """A stream on a full disk, or one that was closed."""

    def __init__(self, number=errno.ENOSPC):
        super().__init__()
        self.number = number

    def write(self, text):
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE, errno.EBADF])
@pytest.mark.parametrize("json_lines", [[], ["--json"]], ids=["text", "json"])
async def test_a_paid_job_is_not_lost_if_its_reference_cannot_be_printed(service, number, json_lines):
    """It is on the other stream. The status is not the one of an argument, for which nothing was sent."""
    ended = await run("job", "create", "Fix", *json_lines, service=service, stdout=FullDisk(number))
    assert ended.status == 1
    assert ("is closed" if number == errno.EBADF else os.strerror(number)) in ended.err
    ref = re.search(r"reference: (\S+)", ended.err)
    assert mintlify_async.JobRef.parse(ref[1]).id in service.jobs
    sent = await run("job", "send", ref[1], "More", *json_lines, service=service, stdout=FullDisk(number))
    assert sent.status == 1
    assert mintlify_async.JobRef.parse(re.search(r"reference: (\S+)", sent.err)[1]).sent is not None
    waited = await run(
        "job", "create", "Fix", "--wait", *json_lines, service=service, stderr=FullDisk(number)
    )
    assert waited.status == 0
    assert "mintlify-job:" in waited.out.splitlines()[0]
    assert "completed" in waited.out.splitlines()[-1]


@pytest.mark.parametrize("command", [["ask", "Hi"], ["job", "show", "job_1"]])
async def test_a_full_disk_is_no_wrong_argument(service, command):
    """The status of a wrong argument would say that nothing was sent."""
    await run("job", "create", "Fix", service=service)
    assert (await run(*command, service=service, stdout=FullDisk())).status == 1


@pytest.mark.real
@pytest.mark.parametrize("redirection", [">/dev/full", ">&-", "| true", "2>/dev/full --wait", "2>&- --wait"])
async def test_a_paid_job_survives_a_shell_whose_stream_fails(service, tmp_path, redirection):
    """Without a traceback, and with the reference on the stream that works."""
    words, _, flags = redirection.partition(" --")
    words, flags = (words, f"--{flags}") if flags else (words, "")
    command = f"{sys.executable} -m mintlify_async job create Fix {flags} {words}"
    program = f"set -o pipefail; ( {command} ) {'2>err' if '2>' not in words else '>out'}; echo $? >status"
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", program, cwd=tmp_path, env=child_environment(service)
    )
    await process.wait()
    text = (tmp_path / ("err" if "2>" not in words else "out")).read_text()
    assert "mintlify-job:" in text
    assert "Traceback" not in text
    if words == ">&-":
        assert text.endswith("mintlify-async: standard output is closed: redirect it, such as to /dev/null\n")
    assert service.requests.count("create_job") == 1
    assert (tmp_path / "status").read_text() == ("0\n" if "2>" in words else "1\n")
