"""A process that runs ``ci`` once per line of standard input, and may be killed at one step of it.

``python ci_worker.py [STEP]``: each line is the arguments of ``ci`` as a JSON list, and each line of output
the exit status and what was printed. STEP is ``before N`` or ``after N``: the process kills itself before or
after its N-th call of git; or ``before POST`` or ``after POST``.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import signal
import sys
from typing import Any

import mintlify_async
from mintlify_async.cli import ledgers, main
from mintlify_async.contrib.git import GitLedger
from mintlify_async.jobs import agent_api
from mintlify_async.options import Timeouts

STEP = " ".join(sys.argv[1:])
LIMIT = float(os.environ.get("LIMIT", "60"))  # seconds: a POST may last; a claim is waited for a second more


def die(step: str) -> None:
    if step == STEP:
        os.kill(os.getpid(), signal.SIGKILL)


class DeadlyLedger(GitLedger):
    """A ledger whose process is killed at one call of git."""

    calls = 0

    async def _run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        number = DeadlyLedger.calls = DeadlyLedger.calls + 1
        die(f"before {number}")
        done = await super()._run(*arguments, stdin=stdin)
        die(f"after {number}")
        return done


async def deadly_post(self: Any, *arguments: Any, post: Any = agent_api.AgentAPI.post, **further: Any) -> Any:
    die("before POST")
    job = await post(self, *arguments, **further)
    die("after POST")
    return job


if __name__ == "__main__":
    ledgers.GitLedger = DeadlyLedger  # type: ignore[misc]  # in this process only
    agent_api.AgentAPI.post = deadly_post  # type: ignore[method-assign]
    agent_api.LEASE_MARGIN = 1.0  # type: ignore[misc]
    mintlify_async.MintlifySession = functools.partial(  # type: ignore[misc]
        mintlify_async.MintlifySession, timeouts=Timeouts(request=LIMIT)
    )
    print("ready", flush=True)
    for line in sys.stdin:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = main(["ci", *json.loads(line)])
        print(json.dumps([status, said.getvalue()]), flush=True)
