"""The pydantic-ai example with the framework's own models for tests: what the tools return, and send."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai_tool import Request, agent

from mintlify_async import SQLiteStore
from mintlify_async.testing import LocalService

pytestmark = pytest.mark.real

PAGES = Path(__file__).parents[1] / "support" / "pages"


@pytest.fixture
async def service(virtual):
    async with LocalService(docs=PAGES) as service:
        yield service


@pytest.fixture
async def session(service, tmp_path):
    async with service.session(ledger=SQLiteStore(tmp_path / "requests.sqlite")) as session:
        yield session


def request(session, name="ticket-17"):
    return Request(name, session, session.conversation(fp="agent", busy="queue"))


class Calls:
    """A model that calls tools, one after the other, and keeps what they returned."""

    def __init__(self, *calls: tuple[str, dict[str, str]]) -> None:
        self.calls = list(calls)
        self.returned: list[object] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.returned += [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if not self.calls:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(*self.calls.pop(0))])


async def run(session, *calls, name="ticket-17"):
    model = Calls(*calls)
    await agent.run("Go", deps=request(session, name), model=FunctionModel(model))
    return model.returned


async def test_the_frameworks_own_test_model_calls_both_tools(session, service):
    """Its schema of both is one that a model can fill in."""
    result = await agent.run("Go", deps=request(session), model=TestModel())
    assert "pull" in result.output
    assert [service.requests.count(name) for name in ("ask", "create_job")] == [1, 1]


async def test_no_repetition_creates_a_second_job(session, service):
    """Neither a repeated call, nor one in other words, nor a repeated run; another request has its own."""
    fix = ("change_docs", {"instruction": "Explain SSO"})
    first, again, reworded = await run(session, fix, fix, ("change_docs", {"instruction": "Explain SSO!"}))
    (later,) = await run(session, fix)
    assert first == again == later == "completed: https://github.com/acme/docs/pull/1"
    assert "has a job already" in reworded
    await run(session, fix, name="ticket-18")
    assert service.requests.count("create_job") == 2


async def test_an_answer_that_the_service_ends_early_is_a_failure(session, service):
    """An `abort` raises no error, so the tool looks at `aborted`. The model reads a failure."""
    service.script.ask(events=[{"type": "start"}, {"type": "abort", "reason": "too long"}])
    (returned,) = await run(session, ("ask_docs", {"question": "How do I log in?"}))
    assert returned == {"failed": "the service ended the answer early"}
