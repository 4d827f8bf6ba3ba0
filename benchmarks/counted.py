"""A subject and a number in; an answer read that many times: the process whose instructions are counted.

Run under ``valgrind --tool=callgrind`` by :mod:`benchmarks.instructions`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import AsyncExitStack

from .bodies import script
from .calls import CALLERS
from .server import ServerAddress
from .streams import check
from .subjects import OURS, SUBJECTS, slow_motion

__all__: list[str] = []

WARM_UP = 20


async def streams(server: ServerAddress, subject: str, shape: str, times: int) -> None:
    """Read the answer in *shape*, *times* times."""
    chosen = next(one for one in SUBJECTS if one.name == subject)
    name = f"named-{shape}" if chosen.named else shape
    async with AsyncExitStack() as stack:
        read = await stack.enter_async_context(chosen.opened(server, name))
        for _ in range(times):
            check(await read(), script(name).answer)


async def calls(server: ServerAddress, subject: str, call: str, times: int) -> None:
    """Make the request *call*, *times* times."""
    chosen = next(one for one in CALLERS if one.name == subject)
    async with chosen.opened(server) as made:
        for _ in range(times):
            await made[call]()


async def firsts(server: ServerAddress, subject: str, shape: str, times: int) -> None:
    """Mark the request and the first event of an answer in *shape*, *times* times."""
    if subject == OURS.name:
        slow_motion()
    chosen = next(one for one in SUBJECTS if one.name == subject)
    async with chosen.opened(server, shape) as read:
        for _ in range(WARM_UP):
            await read()
        for _ in range(times):
            os.getloadavg()  # a mark for callgrind, see shapes.MARK
            await read(first=os.getloadavg)


KINDS = {"stream": streams, "call": calls, "first": firsts}


def main() -> None:
    """Do the work named on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("what")
    parser.add_argument("subject")
    parser.add_argument("times", type=int)
    parser.add_argument("base_url")
    options = parser.parse_args()
    work = KINDS[options.kind](ServerAddress(options.base_url), options.subject, options.what, options.times)
    asyncio.run(work)


if __name__ == "__main__":
    main()
