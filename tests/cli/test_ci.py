"""``ci`` as a CI run meets it: what is sent, what is reported where, and the exit status; and the action."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
import yaml
from child_process import child_environment
from git_kit import claim_refs, clone, git, make_remote

from mintlify_async.cli import main
from mintlify_async.cli.ci_service import Report, find_change
from mintlify_async.cli.error_advice import UsageError
from mintlify_async.cli.terminal import Terminal
from mintlify_async.storage import SQLiteLedger
from mintlify_async.testing import JobLife, LocalService

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "agent-job" / "action.yml"


@pytest.fixture
async def service():
    async with LocalService(life=JobLife(looks=["completed"])) as service:
        yield service


@pytest.fixture
def remote(tmp_path):
    return make_remote(tmp_path)


@pytest.fixture
def checkout(remote, tmp_path, monkeypatch):
    """The working directory: a clone of the remote."""
    folder = clone(remote, tmp_path / "checkout")
    monkeypatch.chdir(folder)
    return folder


def on_github(folder, commit="c1", number=7, head="acme/docs", **changes):
    """Return the variables of a run for a pull request on GitHub Actions."""
    event = {"pull_request": {"number": number, "head": {"sha": commit, "repo": {"full_name": head}}}}
    (folder / "event.json").write_text(json.dumps(event))
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "acme/docs",
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_REF": f"refs/pull/{number}/merge",
        "GITHUB_SHA": "of the merge, which changes with the base",
        "GITHUB_WORKFLOW": "Docs",
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        **changes,
    }


class Ended(NamedTuple):
    """How a run ended."""

    status: int
    out: str
    err: str


def environment(service, **env):
    """Return a run's environment: nothing of the CI service that these tests themselves run in."""
    inherited = child_environment(service, NO_COLOR="1", COLUMNS="100")
    return {name: v for name, v in inherited.items() if not name.startswith(("GITHUB_", "CI_"))} | env


async def ci(service, *arguments, **env):
    """Run ``ci`` to its end, in a thread of this process."""
    return await asyncio.to_thread(_ci, arguments, environment(service, **env))


def _ci(arguments, env):
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, env, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        status = main(["ci", *arguments])
    return Ended(status, out.getvalue(), err.getvalue())


def outputs(path):
    """Read step outputs as a runner does: the last line of a name counts."""
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def posts(service):
    return [(r.operation, r.json["prompt"]) for r in service.requests if r.method == "POST"]


async def test_a_job_for_a_change_and_a_turn_for_a_commit(service, checkout, tmp_path):
    """The first commit creates, a later one sends; re-runs of both find what there is and send nothing."""
    first, later = on_github(tmp_path), {}
    ended = await ci(service, "Fix it", **first)
    assert ended.status == 0, ended.err
    assert ended.out.startswith("job_1  completed")
    found = outputs(tmp_path / "output")
    assert (found["status"], found["action"], found["job_id"]) == ("completed", "created", "job_1")
    assert found["reference"].startswith("mintlify-job:1:")
    assert "| status | completed |" in (tmp_path / "summary").read_text()

    later = on_github(tmp_path, "c2")
    ended = await ci(service, "Fix it", "--follow-up", "Fix more", "--timeout", "0.3", **later)
    assert ended.status == 4, ended.err  # its result is believed after a minute
    found = outputs(tmp_path / "output")
    assert (found["status"], found["action"], found["job_id"]) == ("active", "sent", "job_1")
    expected = [("create_job", "Fix it"), ("send_message", "Fix more")]
    assert posts(service) == expected

    ended = await ci(service, "Fix it", "--follow-up", "Fix more", "--timeout", "0.3", **later)
    assert ended.status == 4
    ended = await ci(service, "Fix it", **on_github(tmp_path))
    assert (ended.status, outputs(tmp_path / "output")["action"]) == (0, "none")
    assert posts(service) == expected


async def test_other_changes_and_other_uses_have_jobs_of_their_own(service, checkout, tmp_path):
    """The key is the repository, the pull request and the workflow; ``--name`` replaces the last."""
    await ci(service, "Fix it", **on_github(tmp_path))
    await ci(service, "Fix it", **on_github(tmp_path, number=8))
    await ci(service, "Fix it", **on_github(tmp_path, GITHUB_WORKFLOW="Other"))
    await ci(service, "Fix it", "--name", "again", **on_github(tmp_path))
    assert [operation for operation, _ in posts(service)] == ["create_job"] * 4


async def test_another_prompt_for_the_same_commit_is_an_error(service, checkout, tmp_path):
    """As with every ledger: the key was used for another prompt."""
    await ci(service, "Fix it", **on_github(tmp_path))
    ended = await ci(service, "Fix something else", **on_github(tmp_path))
    assert ended.status == 2
    assert "another prompt" in ended.err
    assert len(posts(service)) == 1


@pytest.mark.parametrize("why", ["no key", "no push"])
@pytest.mark.parametrize("fork", [True, False])
async def test_without_the_right_nothing_is_sent(service, remote, checkout, tmp_path, why, fork):
    """A fork's run is skipped and says why; any other run fails and names the permission that is missing."""
    hook = remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho Permission to acme/docs denied to bot; exit 1\n")
    hook.chmod(0o755)
    env = on_github(tmp_path, head="someone/docs" if fork else "acme/docs")
    if why == "no key":
        env["MINTLIFY_ADMIN_API_KEY"] = ""
    ended = await ci(service, "Fix it", **env)
    assert posts(service) == []
    if fork:
        assert ended.status == 0
        assert "comes from a fork" in ended.err
        assert "::notice" in ended.err
        assert outputs(tmp_path / "output")["status"] == "skipped"
    else:
        assert ended.status == (2 if why == "no key" else 1)
        assert ("contents: write" if why == "no push" else "MINTLIFY_ADMIN_API_KEY is not set") in ended.err
        assert "::error" in ended.err
        assert outputs(tmp_path / "output")["status"] == "error"


async def test_a_remote_that_refuses_such_refs(service, remote, checkout, tmp_path):
    """The message names the option, and with it the job is created."""
    hook = remote / "hooks" / "update"
    hook.write_text('#!/bin/sh\ncase "$1" in refs/tags/*) ;; *) echo "hidden ref"; exit 1;; esac\n')
    hook.chmod(0o755)
    ended = await ci(service, "Fix it", **on_github(tmp_path))
    assert ended.status == 1
    assert "--ref-prefix refs/tags/mintlify/" in ended.err
    assert posts(service) == []
    ended = await ci(service, "Fix it", "--ref-prefix", "refs/tags/mintlify/", **on_github(tmp_path))
    assert ended.status == 0, ended.err


async def test_without_network_nothing_is_sent(service, checkout, tmp_path):
    """Neither when the remote is away, nor when the service is; the key is free then."""
    ended = await ci(service, "Fix it", "--ledger", "git:http://127.0.0.1:1/x.git", **on_github(tmp_path))
    assert (ended.status, posts(service)) == (1, [])
    assert "was not reached" in ended.err
    ended = await ci(service, "Fix it", "--base-url", "http://127.0.0.1:1", **on_github(tmp_path))
    assert ended.status == 1
    assert claim_refs(checkout.parent / "remote.git") == []


async def test_a_job_that_fails(service, checkout, tmp_path):
    """Exit status 3, an annotation, and the verdict in the outputs."""
    async with LocalService(life=JobLife(looks=["failed"])) as failing:
        ended = await ci(failing, "Fix it", **on_github(tmp_path))
    assert ended.status == 3
    assert re.search(r"^::error title=Agent job::.*job_1", ended.err, re.MULTILINE)
    assert outputs(tmp_path / "output")["status"] == "failed"


async def test_an_unknown_outcome_names_the_ref(service, remote, checkout, tmp_path):
    """The service failed: the job may exist. The next run sends nothing and names the ref, too."""
    service.script.create_job(status=500)
    ended = await ci(service, "Fix it", **on_github(tmp_path))
    (ref,) = claim_refs(remote)
    assert ended.status == 1
    assert f"git push origin --delete {ref}" in ended.err
    assert ref in (tmp_path / "summary").read_text()
    assert outputs(tmp_path / "output")["status"] == "unknown"
    git(checkout, "push", "--quiet", "origin", "--delete", ref)
    ended = await ci(service, "Fix it", **on_github(tmp_path))
    assert (ended.status, len(posts(service))) == (0, 2)


async def test_a_job_that_is_gone_can_be_replaced(service, remote, checkout, tmp_path):
    """The follow-up was refused and nothing is claimed for it; the message says how to begin a new job."""
    await ci(service, "Fix it", **on_github(tmp_path))
    (ref,) = claim_refs(remote)
    service.script.send_message(status=404)
    ended = await ci(service, "Fix it", **on_github(tmp_path, "c2"))
    assert ended.status == 1
    command = f"git push origin --delete {ref}"
    assert command in ended.err
    assert command in (tmp_path / "summary").read_text()
    assert claim_refs(remote) == [ref]
    git(checkout, *command.split()[1:])
    ended = await ci(service, "Fix it", **on_github(tmp_path, "c2"))
    assert ended.status == 0, ended.err
    assert [operation for operation, _ in posts(service)] == ["create_job", "send_message", "create_job"]


async def start(service, cwd, *arguments, **env):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mintlify_async", "ci", *arguments,
        cwd=cwd,
        env=environment(service, **env),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["waiting", "sending"])
async def test_a_cancelled_run(remote, checkout, tmp_path, moment, number):
    """While it waits, the reference is printed; while it sends, the claim stays open and is named."""
    async with LocalService(life=JobLife(seconds=1000)) as service:
        if moment == "sending":
            service.script.create_job(delay=1000)
        process = await start(service, checkout, "Fix it", **on_github(tmp_path))
        while not any(
            r.operation == ("create_job" if moment == "sending" else "get_job") for r in service.requests
        ):
            await asyncio.sleep(0.01)
        process.send_signal(number)
        _, err = await process.communicate()
    said = err.decode()
    assert process.returncode == 130, said
    (ref,) = claim_refs(remote)
    record = json.loads(git(remote, "log", "-1", "--format=%b", ref))
    assert outputs(tmp_path / "output")["status"] == "cancelled"
    if moment == "waiting":
        assert "mintlify-async job wait mintlify-job:" in said
        assert outputs(tmp_path / "output")["reference"].startswith("mintlify-job:")
        assert record["job_id"] == "job_1"
    else:
        assert ref in said
        assert "outcome is not known" in said
        assert record["job_id"] is None


async def test_gitlab(service, checkout, tmp_path):
    """The merge request and the job's name; the results go to a dotenv file, which is rewritten."""
    env = {
        "CI_PROJECT_PATH": "acme/docs",
        "CI_MERGE_REQUEST_IID": "7",
        "CI_COMMIT_SHA": "c1",
        "CI_JOB_NAME": "docs",
    }
    ended = await ci(service, "Fix it", "--dotenv", "job.env", **env)
    assert ended.status == 0, ended.err
    assert "::" not in ended.err
    found = outputs(checkout / "job.env")
    assert found["MINTLIFY_JOB_STATUS"] == "completed"
    assert found["MINTLIFY_JOB_PULL_REQUEST"].startswith("https://")


async def test_another_service_and_another_ledger(service, checkout, tmp_path):
    """Keys by option; a SQLite file records them where git cannot."""
    options = ["--key", "docs/7", "--ledger", str(tmp_path / "ledger.db")]
    ended = await ci(service, "Fix it", *options)
    assert ended.status == 2
    assert "--turn" in ended.err
    assert (await ci(service, "Fix it", *options, "--turn", "c1")).status == 0
    assert (await SQLiteLedger(tmp_path / "ledger.db").find("docs/7")).job_id == "job_1"


@pytest.mark.parametrize(
    ("event", "fork"),
    [
        (None, False),
        ("[1]", False),
        ("{", False),
        ('{"pull_request": 1}', False),
        ('{"pull_request": {"head": {"repo": null, "sha": "c1"}}}', True),
    ],
)
def test_an_odd_event_is_no_error(tmp_path, bare, event, fork):
    """Other variables say the rest; the repository of a fork may be gone."""
    if event is not None:
        (tmp_path / "event").write_text(event)
    env = {
        "GITHUB_REPOSITORY": "a/b",
        "GITHUB_REF": "refs/pull/7/merge",
        "GITHUB_SHA": "c1",
        "GITHUB_EVENT_PATH": str(tmp_path / "event"),
    }
    with mock.patch.dict(os.environ, env, clear=True):
        change = find_change(name="n", key=None, turn=None)
    assert (change.key, change.turn, change.fork) == ("ci: a/b: pull request 7: n", "c1", fork)
    with mock.patch.dict(os.environ, {}, clear=True), pytest.raises(UsageError, match="--key"):
        find_change(name=None, key=None, turn=None)


def test_a_result_cannot_become_another_output(tmp_path, monkeypatch):
    """A line break from the service ends no line; a file that cannot be written loses no verdict."""
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    err = io.StringIO()
    report = Report(Terminal(out=io.StringIO(), err=err), str(tmp_path / "no" / "file"))
    report.add(pull_request="https://x\nstatus=completed\r\u2028y", status="failed")
    assert outputs(tmp_path / "output")["status"] == "failed"
    assert "No such file" in err.getvalue()


# The action


def evaluated(text, values):
    """Replace the expressions of *text* as the runner does."""
    return re.sub(r"\$\{\{ *(\S+) *\}\}", lambda found: values[found[1]], text)


async def run_action(service, checkout, folder, env, **given):
    """Run the action's steps by the shell; return the last exit status, its outputs, and what was printed."""
    action = yaml.safe_load(ACTION.read_text())
    assert set(given) <= set(action["inputs"])
    values = {
        f"inputs.{name}": given.get(name, spec.get("default", "")) for name, spec in action["inputs"].items()
    }
    status, err, added = 0, b"", folder / "path"
    added.touch()
    env |= {"RUNNER_TEMP": str(folder), "GITHUB_PATH": str(added), "GITHUB_ACTION_PATH": str(ACTION.parent)}
    for step in action["runs"]["steps"]:
        if step.get("if") and step["if"] == "inputs.install == 'true'" and values["inputs.install"] != "true":
            continue
        output = folder / f"output-{step['id']}"
        output.touch()
        own = {name: evaluated(value, values) for name, value in step.get("env", {}).items()}
        script = folder / "step.sh"
        script.write_text(evaluated(step["run"], values))
        process = await asyncio.create_subprocess_exec(
            "bash", "--noprofile", "--norc", "-eo", "pipefail", str(script),
            cwd=checkout,
            env=environment(None, **env)
            | {"GITHUB_OUTPUT": str(output), "PATH": ":".join([*added.read_text().split(), env["PATH"]])}
            | own,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, err = await process.communicate()
        values |= {f"steps.{step['id']}.outputs.{name}": value for name, value in outputs(output).items()}
        status = process.returncode
    results = {name: spec["value"] for name, spec in action["outputs"].items()}
    return status, {name: evaluated(value, values) for name, value in results.items()}, err.decode()


@pytest.fixture
def commands(tmp_path):
    """The search path of a run that has the command installed."""
    command = tmp_path / "bin" / "mintlify-async"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mintlify_async "$@"\n')
    command.chmod(0o755)
    return f"{command.parent}:{os.environ['PATH']}"


async def test_the_action(service, checkout, tmp_path, commands):
    """Its inputs reach the command as they are, its outputs come back, and a re-run sends nothing."""
    prompt = 'Say "hi" to $HOME; `touch x`\n$(touch y)'
    given = {
        "prompt": prompt,
        "admin-key": service.admin_key,
        "project-id": service.project_id,
        "base-url": service.base_url,
        "name": "a name",
        "install": "false",
    }
    env = on_github(tmp_path, PATH=commands)
    status, found, err = await run_action(service, checkout, tmp_path, env, **given)
    assert status == 0, err
    assert posts(service) == [("create_job", prompt)]
    assert (found["status"], found["action"], found["job-id"]) == ("completed", "created", "job_1")
    assert found["pull-request"].startswith("https://")
    assert git(checkout, "status", "--short") == ""
    status, found, err = await run_action(service, checkout, tmp_path, env, **given)
    assert (status, found["action"]) == (0, "none"), err
    assert len(posts(service)) == 1


async def test_no_input_of_the_action_is_an_option(service, checkout, tmp_path, commands):
    """A prompt that is a stranger's title cannot send the key elsewhere, nor make the run fail."""
    given = {
        "prompt": "--base-url=http://127.0.0.1:1",
        "follow-up": "--base-url=http://127.0.0.1:2",
        "admin-key": service.admin_key,
        "project-id": service.project_id,
        "base-url": service.base_url,
        "name": "--plain",
        "timeout": "0.3",
        "install": "false",
    }
    for commit, status in (("c1", 0), ("c2", 4)):
        env = on_github(tmp_path, commit, PATH=commands)
        ended, _, err = await run_action(service, checkout, tmp_path, env, **given)
        assert ended == status, err
    assert [prompt for _, prompt in posts(service)] == [given["prompt"], given["follow-up"]]


FAKE_VENV = """#!{python}
import pathlib, sys
assert sys.argv[1:3] == ["-m", "venv"]
pip = pathlib.Path(sys.argv[3], "bin", "pip")
pip.parent.mkdir(parents=True)
pip.write_text('#!/bin/sh\\necho "$@" > {log}\\ncp {installed} "$(dirname "$0")/mintlify-async"\\n')
pip.chmod(0o755)
"""


async def test_the_action_installs_the_command(service, checkout, tmp_path, commands):
    """Its first step makes an environment of the repository that has the action; the second one finds it."""
    python = Path(commands.partition(":")[0]) / "python3"
    installed = python.with_name("mintlify-async").rename(tmp_path / "installed")
    python.write_text(FAKE_VENV.format(python=sys.executable, installed=installed, log=tmp_path / "pip"))
    python.chmod(0o755)
    env = on_github(tmp_path, PATH=commands)
    given = {"prompt": "Fix it", "admin-key": service.admin_key, "project-id": service.project_id}
    given["base-url"] = service.base_url
    status, found, err = await run_action(service, checkout, tmp_path, env, **given)
    assert (status, found["action"]) == (0, "created"), err
    package = Path((tmp_path / "pip").read_text().split()[-1])
    assert (package / "pyproject.toml").samefile(ACTION.parents[3] / "pyproject.toml")


def test_the_action_interpolates_nothing_into_its_scripts():
    """In a script, an input would be code that a pull request's title can write."""
    for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
