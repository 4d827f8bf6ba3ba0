"""The README, run as it stands: every Python block, the first command, the commands that it names."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from child_process import child_environment

import mintlify_async
from mintlify_async.testing import JobLife, LocalService

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PACKAGE = Path(mintlify_async.__file__).parent


class Block(NamedTuple):
    """One fenced block: the heading it stands under, how it is to be run, its language and text."""

    heading: str
    kind: str
    language: str
    text: str


def blocks() -> list[Block]:
    found, heading, kind = [], "top", ""
    pattern = (
        r"^(?:#+ (?P<heading>[^\n]*)|<!-- run: (?P<kind>\w+) -->|```(?P<language>\w+)\n(?P<text>.*?)^```$)"
    )
    for match in re.finditer(pattern, README, re.MULTILINE | re.DOTALL):
        if match["heading"]:
            heading, kind = match["heading"], ""
        elif match["kind"]:
            kind = match["kind"]
        else:
            found.append(Block(heading, kind or "script", match["language"], match["text"]))
            kind = ""
    return found


PYTHON = [block for block in blocks() if block.language == "python"]
SCRIPTS = [block for block in PYTHON if block.kind == "script"]

DRIVE_FASTAPI = """
import asyncio
import aiohttp
import uvicorn
from app import app

async def use(client):
    async with client.get("/ask", params={"q": "How do I log in?"}) as answer:
        assert answer.status == 200 and len(await answer.text()) > 20
    async with client.post("/jobs", params={"prompt": "Fix the typos"}) as created:
        assert created.status == 202, await created.text()
        ref = (await created.json())["ref"]
    async with client.get("/jobs/" + ref) as seen:
        assert seen.status == 200 and (await seen.json())["status"] == "active"
    async with client.post("/jobs", params={"prompt": ""}) as wrong:
        assert wrong.status == 422
    async with client.get("/jobs/job_404") as nothing:
        assert nothing.status == 502
    async with client.get("/ask", params={"q": "refused by the script"}) as refused:
        assert refused.status == 429 and refused.headers["Retry-After"] == "86400"
    async with client.get("/ask", params={"q": "cut by the script"}) as cut:
        assert cut.status == 200 and "cut off" in await cut.text()

async def main():
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        await use(client)
    server.should_exit = True
    await serving

asyncio.run(main())
"""


DRIVE_RELAY = """
import os
os.environ["RELAY_SECRET"] = "s" * 40
import asyncio
import httpx
from app import app, lifespan

QUESTION = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "How do I log in?"}]}
BODY = {"id": "c1", "messages": [QUESTION], "trigger": "submit-message"}

async def main():
    transport = httpx.ASGITransport(app)
    async with lifespan(app), httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        refused = await client.post("/api/chat", json=BODY)
        assert refused.status_code == 401, refused.text
        client.cookies.set("browser", "b1")
        answer = await client.post("/api/chat", json=BODY)
        assert answer.status_code == 200 and answer.text.rstrip().endswith("data: [DONE]"), answer.text
        assert "thread_1" not in answer.text and "thread_key" not in answer.text

asyncio.run(main())
"""


async def run(*command: str | Path, cwd: Path, env: dict[str, str]) -> tuple[int, str, str]:
    """Run *command* beside the loop; return its status, output and errors."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def check_python(block: Block, tmp_path: Path, service: LocalService, driver: str | None = None) -> str:
    """Run a block as a program, or *driver* beside it, and return what it printed."""
    (tmp_path / "app.py").write_text(block.text, encoding="utf-8")
    program = "app.py"
    if driver is not None:
        (tmp_path / "driver.py").write_text(driver, encoding="utf-8")
        program = "driver.py"
    status, out, err = await run(sys.executable, program, cwd=tmp_path, env=child_environment(service))
    assert status == 0, f"{out}\n{err}"
    assert not err, err
    return out


def test_every_block_is_run():
    """A block of a kind that nothing runs would rot."""
    elsewhere = {"redis", "recipe_streaq_jobs", "bot"}  # test_readme_redis and test_bots run these
    assert {block.kind for block in PYTHON} <= {"script", "fastapi", "relay", "pytest", *elsewhere}
    assert len(SCRIPTS) >= 5


@pytest.mark.parametrize("block", SCRIPTS, ids=lambda block: re.sub(r"\W+", "-", block.heading.lower()))
async def test_each_script_runs_as_it_stands(block, tmp_path):
    """Copied into a file, with the local service's settings, it ends well and prints something."""
    async with LocalService(life=JobLife(seconds=0.5)) as service:
        out = await check_python(block, tmp_path, service)
    assert out.strip()


async def test_the_first_example_shows_what_it_promises(tmp_path):
    """A streamed answer, then a finished job with its pull request."""
    async with LocalService(life=JobLife(seconds=0.5)) as service:
        out = await check_python(SCRIPTS[0], tmp_path, service)
        assert [request.operation for request in service.requests][:2] == ["ask", "create_job"]
    assert re.search(r"completed https?://\S+$", out.strip())


async def test_the_fastapi_example(tmp_path):
    """Answers stream, jobs are accepted and looked at, and each error becomes its status."""
    (block,) = [block for block in PYTHON if block.kind == "fastapi"]
    async with LocalService() as service:
        await check_python(block, tmp_path, scripted(service), DRIVE_FASTAPI)


async def test_the_fastapi_example_does_not_start_without_its_settings(tmp_path):
    """It says what is missing, all of it at once."""
    (block,) = [block for block in PYTHON if block.kind == "fastapi"]
    (tmp_path / "app.py").write_text(block.text, encoding="utf-8")
    serve = (sys.executable, "-m", "uvicorn", "app:app", "--port", "0")
    status, _, err = await run(*serve, cwd=tmp_path, env=child_environment(MINTLIFY_DOMAIN="acme-docs"))
    assert status == 3
    assert "3 settings are missing or wrong" in err
    for name in ("MINTLIFY_ADMIN_API_KEY", "MINTLIFY_PROJECT_ID", "MINTLIFY_ASSISTANT_API_KEY"):
        assert name in err


async def test_the_relay_example(tmp_path):
    """A page that is signed in gets its answer as events; nothing of the service's thread is in it."""
    (block,) = [block for block in PYTHON if block.kind == "relay"]
    async with LocalService() as service:
        await check_python(block, tmp_path, service, DRIVE_RELAY)


def scripted(service: LocalService) -> LocalService:
    """Let the second question be refused for a day, and the third be cut after its first words."""
    service.script.ask(times=1)
    service.script.ask(status=429, headers={"Retry-After": "86400"})
    service.script.ask(
        events=[
            {"type": "start"},
            {"type": "text-start", "id": "1"},
            {"type": "text-delta", "id": "1", "delta": "a"},
        ],
        done=False,
    )
    return service


async def test_the_examples_of_tests_pass(tmp_path):
    """Saved as they are printed, with the configuration that is printed above them, all of them pass."""
    (configuration,) = [block.text for block in blocks() if block.language == "toml"]
    (tmp_path / "pyproject.toml").write_text(configuration, encoding="utf-8")
    examples = [block.text for block in PYTHON if block.kind == "pytest"]
    assert len(examples) == 3
    for number, text in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(text, encoding="utf-8")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    status, out, err = await run(*command, cwd=tmp_path, env=child_environment(PYTHONWARNINGS=None))
    assert status == 0, out + err
    assert re.search(r"^5 passed in", out, re.MULTILINE), out


def commands() -> list[str]:
    """Return every ``mintlify-async …`` line of the README's blocks."""
    text = "\n".join(block.text for block in blocks() if block.language in ("bash", "text"))
    return sorted(set(re.findall(r"^mintlify-async (\w+(?: create)?)", text, re.MULTILINE)))


@pytest.mark.parametrize("command", commands())
async def test_each_command_exists(command, tmp_path):
    """Each command that the README names has a help text."""
    args = (sys.executable, "-m", "mintlify_async", *command.split(), "--help")
    status, out, err = await run(*args, cwd=tmp_path, env=child_environment())
    assert (status, err) == (0, "")
    assert "usage: mintlify-async" in out


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(#([\w-]+)\)", README))))
def test_each_link_inside_leads_somewhere(link):
    """An anchor is a heading, in the way that code hosts spell it."""
    headings = re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert link in anchors


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\((?!https?:|#)([^)#]+)", README))))
def test_each_file_that_is_linked_exists(path):
    """Pictures and files are there."""
    assert (ROOT / path).exists()


def test_every_assumption_has_its_row():
    """Each line that is marked in the code is told to the reader."""
    marked = set()
    for path in PACKAGE.rglob("*.py"):
        marked |= set(re.findall(r"# assumption: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE))
    table = README[README.index("## What we assume") : README.index("## Security")].lower()
    missing = [words for words in marked if words.strip().lower() not in table]
    assert not missing
    assert marked


def test_every_error_has_its_row():
    """Every error at the root has a row in the table."""
    table = README[README.index("## Errors") : README.index("## Timeouts")]
    every = {name: getattr(mintlify_async, name) for name in mintlify_async.__all__}
    names = [
        name for name, thing in every.items() if isinstance(thing, type) and issubclass(thing, Exception)
    ]
    general = {"MintlifyError", "APIStatusError", "StreamError", "CauseSummary"}
    assert not [name for name in names if name not in general and f"`{name}`" not in table]


async def test_the_first_command_in_an_empty_environment(tmp_path):
    """The README's one line, in a fresh copy: exit status 0, a thread id, a completed job."""
    if os.environ.get("MINTLIFY_ASYNC_REQUIRE_REAL") != "1" or not (ROOT / "mintlify_async").is_dir():
        pytest.skip("it installs from the package index: only `tox -e real` runs it")
    line = next(block.text for block in blocks() if block.language == "bash").strip()
    left_out = shutil.ignore_patterns(".git", ".tox", ".venv", "node_modules", "__pycache__")
    where = Path(shutil.copytree(ROOT, tmp_path / "clone", ignore=left_out))
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MINTLIFY_", "PYTHON", "VIRTUAL"))
    }
    status, out, err = await run("bash", "-c", line, cwd=where, env=kept)
    assert status == 0, out + err
    assert re.search(r"thread id: \S+", out)
    assert "completed" in out
