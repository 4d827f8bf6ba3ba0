"""The example that asks a list of questions: what it lets pass, and what fails."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="pyyaml is not installed")

import docs_questions

import mintlify_async
from mintlify_async.testing import LocalService

pytestmark = pytest.mark.real

SAMPLE = Path(docs_questions.__file__).with_suffix(".yaml")
DOCS = Path(mintlify_async.__file__).parent / "docs"


@pytest.fixture
async def service(bare):
    async with LocalService(docs=DOCS) as service:
        for name, value in service.environment.items():
            bare.setenv(name, value)
        yield service


async def check(tmp_path, text):
    path = tmp_path / "questions.yaml"
    path.write_text(text)
    return await docs_questions.main(path)


async def test_the_sample_passes(service, capsys):
    """The local service answers it from the pages that come with the package."""
    assert await docs_questions.main(SAMPLE) == 0
    assert capsys.readouterr().out.endswith("2 of 2 questions are answered\n")
    assert {request.json["fp"] for request in service.requests} == {"ci"}


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("{ask: Hm, says: [PRESS, jump]}", "does not say 'jump'"),
        ("{ask: Hm, cites: [/login, /logout]}", "does not cite /logout"),
        ("{ask: Hm, cites: [/log]}", "does not cite /log"),
    ],
)
async def test_what_is_lost_fails(service, tmp_path, capsys, question, says):
    """The question and what it lost are printed; the others are still asked."""
    service.script.ask(text="Press the button.", sources=["/login"], times=2)
    assert await check(tmp_path, f"- {question}\n- ask: Hm\n") == 1
    out = capsys.readouterr().out
    assert f"LOST\n      Hm\n      {says}\n" in out
    assert "ok    Hm\n" in out
    assert out.endswith("1 of 2 questions are answered\n")
