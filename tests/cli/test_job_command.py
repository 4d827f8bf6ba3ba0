"""``job`` and ``ledger``: one POST, references, exit statuses, and keys whose outcome is open."""

from __future__ import annotations

import json
import re
import signal

import pytest

import mintlify_async
from mintlify_async.testing import JobLife, faults
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
    assert (await run("ledger", "list", file)).out == ""
    assert (
        await run(*command[:-1], "Else", "--dedupe-key", "k", "--ledger", file, service=service)
    ).status == 2


async def test_an_open_claim_is_listed_and_settled(service, tmp_path):
    """An unknown outcome has its own status. Nothing is sent for the key until a person has settled it."""
    file = str(tmp_path / "jobs.db")
    create = ["job", "create", "Fix", "--dedupe-key", "release\n1", "--ledger", file]
    service.script.create_job(fault=faults.Close())
    assert (await run(*create, service=service)).status == 5
    listed = await run("ledger", "list", file)
    assert listed.status == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\S+Z  .*release 1.*\n", listed.out)
    assert (await run("ledger", "resolve", file, "release\n1", "job_7")).status == 0
    resolved = await run(*create, service=service)
    assert (resolved.status, mintlify_async.JobRef.parse(resolved.out).id) == (0, "job_7")
    assert (await run("ledger", "forget", file, "release\n1")).status == 0
    assert service.requests.count("create_job") == 1
    assert (await run(*create, service=service)).status == 0
    assert service.requests.count("create_job") == 2
    assert (await run("ledger", "resolve", file, "release\n1", "job_8")).status == 2
