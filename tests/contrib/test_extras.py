"""Parts that need an extra, in an environment without it: the error has the line that installs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.child_process import child_environment

CASES = [
    ("starlette,fastapi,cryptography", "import mintlify_async.contrib.relay", "relay"),
    ("cryptography", "from mintlify_async.contrib.relay.seal import ThreadSeal", "relay"),
    (
        "fastapi",
        "from mintlify_async import MintlifySession; from mintlify_async.contrib.relay import Relay; "
        "Relay(MintlifySession(domain='d'), secrets=['s' * 32], user=print).router()",
        "relay",
    ),
    ("opentelemetry", "import mintlify_async.contrib.otel", "otel"),
    ("redis", "import mintlify_async.contrib.redis", "redis"),
    ("asyncpg", "import mintlify_async.contrib.postgres", "postgres"),
    *(
        (
            module,
            "import asyncio; from mintlify_async.contrib.store_urls import open_store; "
            f"asyncio.run(open_store('{url}').__aenter__())",
            extra,
        )
        for module, url, extra in [
            ("redis", "redis://h", "redis"),
            ("asyncpg", "postgresql://h/app", "postgres"),
        ]
    ),
]

PROGRAM = """
import json, os, sys, traceback
from importlib.abc import MetaPathFinder

class Without(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing.split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
for missing, statement, _ in json.loads(sys.argv[1]):
    if os.fork() == 0:  # what one case has imported is not there for the next
        try:
            exec(statement)
        except ModuleNotFoundError:
            print(traceback.format_exc(), end="\\0", flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.real
def test_a_part_without_its_extra_names_the_line_that_installs_it():
    """The last line of the traceback has the missing module and the command."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(CASES)]
    ended = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=True)
    for text, (_, _, extra) in zip(ended.stdout.split("\0")[:-1], CASES, strict=True):
        last = text.strip().splitlines()[-1]
        assert last.startswith("ModuleNotFoundError: No module named ")
        assert f'pip install "mintlify-async[{extra}]"' in last
        assert "The above exception" not in text
