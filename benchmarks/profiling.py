"""An answer in; out: where an event's time goes, layer by layer and function by function."""

from __future__ import annotations

import asyncio
import cProfile
import io
import json
import pstats
import time
from collections.abc import Callable

from .bodies import answer
from .rounds import figure
from .server import running
from .streams import check
from .subjects import OURS

__all__ = ["layers", "profile"]


def layers(rounds: int = 15) -> dict[str, float]:
    """Return microseconds of CPU an event for each layer on its own, everything already in memory."""
    from mintlify_async.assistant.decode import parse_event
    from mintlify_async.assistant.message_builder import MessageBuilder
    from mintlify_async.assistant.sse import SSEDecoder
    from mintlify_async.assistant.stream import MessageStream

    real = answer("real")
    read = json.JSONDecoder().raw_decode
    data = [event for event in SSEDecoder().feed(real.body) if event != "[DONE]"]
    events = [parse_event(event) for event in data]
    assert len(events) == real.events

    def fold() -> None:
        message = MessageBuilder()
        for event in events:
            message.apply(event)

    def whole() -> None:
        stream = MessageStream()
        stream.feed(real.body)
        while stream.next_event() is not None:
            pass
        assert stream.message.text == real.text

    runs: dict[str, Callable[[], object]] = {
        "framing": lambda: SSEDecoder().feed(real.body),
        "JSON alone": lambda: [read(event) for event in data],
        "parsing, JSON included": lambda: [parse_event(event) for event in data],
        "folding": fold,
        "the whole stream, without I/O": whole,
    }
    return {name: figure([cost(run) for _ in range(rounds)]).median / len(data) for name, run in runs.items()}


def cost(run: Callable[[], object], times: int = 10) -> float:
    """Return the microseconds of CPU of one *run*."""
    start = time.process_time()
    for _ in range(times):
        run()
    return 1e6 * (time.process_time() - start) / times


async def replies(shape: str, times: int) -> str:
    """Profile *times* whole replies in *shape*; return the table of functions."""
    profiler = cProfile.Profile()
    with running() as server:
        async with OURS.opened(server, shape) as read:
            check(await read(), answer("real"))
            profiler.enable()
            for _ in range(times):
                await read()
            profiler.disable()
    out = io.StringIO()
    pstats.Stats(profiler, stream=out).sort_stats("tottime").print_stats(30)
    return out.getvalue()


def profile(shape: str = "burst") -> str:
    """Return both views as text."""
    lines = [f"  {name:<32}{value:8.3f} µs an event" for name, value in layers().items()]
    return "\n".join(["CPU an event, by layer", *lines, "", asyncio.run(replies(shape, 40))])
