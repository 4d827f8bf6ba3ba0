"""The rows about chats: a turn of a long conversation, and a chat message that grows."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from .bodies import MARKDOWN_KINDS, script
from .measuring import CONTROL, OURS, Effort, Row, in_process, row_of
from .server import running
from .subjects import CLIENTS, QUESTION


async def converse(server: str, turns: int) -> dict[str, list[float]]:
    """Take *turns* turns of 55 KB; return what :func:`compared` says of them, and of plain questions."""
    async with CLIENTS[OURS](server) as ours:
        chat = ours.session.conversation(domain="burst", max_messages=8)
        plain = await compared(lambda: ours.session.ask(QUESTION), 12)  # no history: the control
        found = await compared(lambda: chat.ask(QUESTION), turns)
    assert len(chat.messages) == 2 * (turns + 5)
    return {OURS: found, CONTROL: plain}


async def compared(ask: Callable[[], Any], turns: int) -> list[float]:
    """Return the CPU of the last five turns ÷ that of the third to seventh, and the longest stop in ms."""
    costs = []
    for _ in range(turns):
        gc.collect()
        start = time.process_time()
        assert (await ask()).text == script("burst").text
        costs.append(time.process_time() - start)
    growth = statistics.median(costs[-5:]) / statistics.median(costs[2:7])
    return [growth, 1e3 * statistics.median([await longest_stop(ask()) for _ in range(5)])]


async def longest_stop(reply: Any) -> float:
    """Read an answer to its end; return the seconds of CPU that the loop's longest turn took."""
    loop, turns = asyncio.get_running_loop(), [time.thread_time()]

    def turn() -> None:
        nonlocal next_turn
        turns.append(time.thread_time())
        next_turn = loop.call_soon(turn)  # the loop never sleeps: from one call to the next is one turn

    gc.collect()
    next_turn = loop.call_soon(turn)
    await reply
    next_turn.cancel()
    return max(later - earlier for earlier, later in pairwise(turns))


def conversation(effort: Effort) -> Iterator[Row]:
    """Measure how a conversation's turn grows over a hundred turns."""
    with running() as server:
        turns = 8 if effort.small else 100
        found = [in_process(converse, server=server, turns=turns) for _ in range(effort.rounds)]
    both = [{name: [each[name][place] for each in found] for name in (OURS, CONTROL)} for place in (0, 1)]
    yield row_of("conversation", "CPU of a turn after 100 turns ÷ the fifth", "times", both[0], None)
    yield row_of("conversation-stop", "longest stop of the loop in such a turn", "ms", both[1], None)


async def edit(server: str, kind: str, size: int) -> float:
    """Show one growing answer as edits of a chat message; return the p99 of a step's CPU, in ms."""
    shape, steps = f"{kind}~{size}~markdown", []
    async with CLIENTS[OURS](server) as ours:
        start = time.process_time()
        async for shown in ours.session.ask(QUESTION, domain=shape).edits(every=0.0, limit=size + 200):
            steps.append(1e3 * (time.process_time() - start))
            start, text = time.process_time(), shown.text
    assert script(shape).text.strip() in text
    return sorted(steps)[len(steps) * 99 // 100]


def message(effort: Effort) -> Iterator[Row]:
    """Measure the steps of a chat message that grows, reading included, for each kind of Markdown."""
    for size in (4_096, 10_000):
        given = {"size": size // 100 if effort.small else size}
        with running() as server:
            samples = {
                kind: [in_process(edit, server=server, kind=kind, **given) for _ in range(effort.rounds)]
                for kind in MARKDOWN_KINDS
            }
        title = f"CPU of a step of a chat message that grows to {size:,} characters, p99"
        yield row_of(f"message-{size}", title, "ms", samples, None)
