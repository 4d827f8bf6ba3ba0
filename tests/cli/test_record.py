"""``--record`` and ``serve --replay``: a user's bug report is a file that the local service plays."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from child_process import child_environment
from command_line import run

from mintlify_async.testing import JobLife, LocalService


@pytest.mark.parametrize("text", [[], ["--keep-text"]], ids=["redacted", "text"])
async def test_an_answer_is_recorded_and_played(service, tmp_path, text):
    """What ``ask`` prints from the recording has the size of what it printed from the service."""
    path = tmp_path / "answer.jsonl"
    first = await run("ask", "How do I log in?", "--record", str(path), *text, service=service)
    async with LocalService(replay=path) as replaying:
        second = await run("ask", "How do I log in?", service=replaying)
    assert (first.status, second.status) == (0, 0), first.err + second.err
    assert (second.out == first.out) is bool(text)
    assert ("How do I log in?" in path.read_text()) is bool(text)
    assert service.assistant_key not in path.read_text()


async def test_the_commands_of_jobs_record(tmp_path):
    """``job create --wait`` leaves its POST and its polls."""
    path = tmp_path / "job.jsonl"
    async with LocalService(life=JobLife(seconds=0.2)) as service:
        ended = await run("job", "create", "Fix it", "--wait", "--record", str(path), service=service)
    assert ended.status == 0, ended.err
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    operations = [line["operation"] for line in lines]
    assert operations[0] == "create_job"
    assert set(operations[1:]) == {"get_job"}


async def test_serve_plays_a_recording(service, tmp_path):
    """``serve --replay FILE`` says how many answers it has, and gives them."""
    path = tmp_path / "answer.jsonl"
    first = await run("ask", "Hm?", "--json", "--record", str(path), "--keep-text", service=service)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mintlify_async", "serve", "--port", "0", "--replay", str(path)),
        env=child_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        ready = (await process.stdout.readline()).decode().split()
        second = await run("ask", "Other words", "--json", service=service, MINTLIFY_BASE_URL=ready[1])
    finally:
        process.terminate()
        _, told = await process.communicate()
    assert "1 recorded answers from" in told.decode()
    assert second.out == first.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ask", "Hm?", "--keep-text"], "--keep-text needs --record FILE"),
        (["ask", "Hm?", "--record", "/nowhere/at/all"], "/nowhere/at/all: No such file or directory"),
        (["serve", "--port", "0", "--replay", "/nowhere/at/all"], "/nowhere/at/all"),
        (["serve", "--port", "0", "--replay", __file__], "--replay: "),
    ],
)
async def test_a_wrong_file_is_told_before_anything_is_sent(service, arguments, says):
    """Status 2, and the flag or the file is named."""
    ended = await run(*arguments, service=service)
    assert ended.status == 2
    assert says in ended.err
    assert not service.requests
