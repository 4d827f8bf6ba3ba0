"""The MCP example with the real client, in memory and over stdio."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="mcp is not installed")

import mcp_server
from mcp import Client, StdioServerParameters

from mintlify_async.testing import JobLife, LocalService
from tests.support.child_process import child_environment

pytestmark = pytest.mark.real

PROGRAM = Path(mcp_server.__file__).read_bytes()
PAGES = Path(__file__).parents[1] / "support" / "pages"


@pytest.fixture
async def service(bare, tmp_path):
    async with LocalService(docs=PAGES, life=JobLife(looks=["completed"])) as service:
        for name, value in service.environment.items():
            bare.setenv(name, value)
        bare.setattr(mcp_server, "LEDGER", tmp_path / "ledger.sqlite")
        yield service


async def call(client, tool, **arguments):
    """Call a tool; return whether it failed, and the text that the model reads."""
    result = await client.call_tool(tool, arguments)
    return result.is_error, result.structured_content or result.content[0].text


async def test_cancelling_the_call_stops_the_answer(service):
    """The connection to the service is closed, and the next question is answered."""
    service.script.ask(text="word " * 500, pause=0.05)
    async with Client(mcp_server.server, mode="legacy") as client:
        asking = asyncio.create_task(client.call_tool("ask_docs", {"question": "Hm?"}))
        await service.until(lambda service: service.requests.of("ask"))
        asking.cancel()
        await asyncio.wait([asking])
        await service.until(lambda service: service.requests[0].client_left)
        failed, answer = await call(client, "ask_docs", question="How do I log in?")
    assert (failed, bool(answer["text"])) == (False, True)
    assert len(service.requests[-1].json["messages"]) == 1  # nothing of the question that was cancelled


async def test_a_repeated_call_creates_no_second_job(service):
    """Neither beside the first one, nor in another process later."""
    async with Client(mcp_server.server) as client:
        results = await asyncio.gather(
            *(call(client, "change_docs", instruction="Fix the typos") for _ in range(2))
        )
    async with Client(mcp_server.server) as client:
        results.append(await call(client, "change_docs", instruction="Fix the typos"))
        await call(client, "change_docs", instruction="Explain SSO")
    assert len({str(result) for result in results}) == 1
    assert "job_1 completed: https://" in str(results[0])
    prompts = [request.json["prompt"] for request in service.requests.of("create_job")]
    assert prompts == ["Fix the typos", "Explain SSO"]


async def test_it_runs_over_stdio(service, tmp_path):
    """As an agent starts it: a process whose standard output has nothing but the protocol."""
    program = tmp_path / "mcp_server.py"  # the ledger lies beside it
    program.write_bytes(PROGRAM)
    env = child_environment(service, PYTHONWARNINGS=None)
    async with Client(StdioServerParameters(command=sys.executable, args=[str(program)], env=env)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        failed, answer = await call(client, "ask_docs", question="How do I wait for a job?")
        _, said = await call(client, "change_docs", instruction="Fix the typos")
    assert set(tools) == {"ask_docs", "change_docs"}
    assert list(tools["ask_docs"].input_schema["properties"]) == ["question"]
    assert tools["ask_docs"].output_schema["required"] == ["text", "sources"]
    assert not failed
    assert "Wait for a job" in answer["text"]
    assert answer["sources"]["https://docs.example/agent-jobs"] == "Agent jobs"
    assert "job_1 completed" in str(said)
    assert (tmp_path / "mcp-jobs.sqlite").exists()


async def test_an_answer_that_the_service_ends_early_is_a_failure(service):
    """An `abort` raises no error, so the tool looks at `aborted`. The model reads a failure."""
    service.script.ask(events=[{"type": "start"}, {"type": "abort", "reason": "too long"}])
    async with Client(mcp_server.server) as client:
        failed, read = await call(client, "ask_docs", question="How do I log in?")
    assert failed
    assert "the service ended the answer early" in read
