"""The README's blocks that want a Redis, run as they stand."""

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
SCRIPTS = re.findall(r"^<!-- run: redis -->\n```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_readme_has_such_blocks():
    """A pattern that finds nothing would test nothing."""
    assert SCRIPTS


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
