"""The README's blocks that want a Redis: scripts run as they stand, recipes are the tested files."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from redis_server import RedisServer

from mintlify_async.testing import JobLife, LocalService

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RECIPES = ROOT / "tests" / "recipes"
SCRIPTS = re.findall(r"^<!-- run: redis -->\n```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COPIES = re.findall(r"^<!-- run: recipe_(\w+) -->\n```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_readme_shows_both():
    """A pattern that finds nothing would test nothing."""
    assert SCRIPTS
    assert COPIES


@pytest.mark.parametrize("script", SCRIPTS)
async def test_each_script_runs_as_it_stands(script: str, redis_server: RedisServer, tmp_path: Path):
    """With the settings of the local service and a Redis, it ends well and prints something."""
    (tmp_path / "app.py").write_text(script, encoding="utf-8")
    async with LocalService(life=JobLife(seconds=0.5)) as service:
        settings = {
            "REDIS_URL": redis_server.url,
            "MINTLIFY_BASE_URL": service.base_url,
            "MINTLIFY_PROJECT_ID": service.project_id,
            "MINTLIFY_DOMAIN": service.domain,
            "MINTLIFY_ADMIN_API_KEY": service.admin_key,
            "MINTLIFY_ASSISTANT_API_KEY": service.assistant_key,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "app.py",
            cwd=tmp_path,
            env={**os.environ, **settings, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    assert out.strip()


@pytest.mark.parametrize(("name", "text"), COPIES)
def test_each_recipe_is_the_tested_file(name: str, text: str):
    """What the README shows is what test_queues runs."""
    assert text == (RECIPES / f"{name}.py").read_text(encoding="utf-8")
