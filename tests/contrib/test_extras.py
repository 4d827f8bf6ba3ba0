"""Parts that need an extra, in an environment without it: the error has the line that installs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.child_process import child_environment

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Without(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
"""


@pytest.mark.real
@pytest.mark.parametrize(
    ("missing", "statement", "extra"),
    [
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
    ],
)
def test_a_part_without_its_extra_names_the_line_that_installs_it(missing, statement, extra):
    """The last line of the traceback has the missing module and the command."""
    command = [sys.executable, "-c", WITHOUT + statement, missing]
    ended = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=False)
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: No module named ")
    assert f'pip install "mintlify-async[{extra}]"' in last
    assert "The above exception" not in ended.stderr
