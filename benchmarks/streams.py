"""The shape of an answer in; a row out: the CPU time that an event costs each client.

CPU time is the process's own (user and system); the server has another
process, so what is counted is the client and its share of the kernel.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from .bodies import SHAPES, Answer, script
from .rounds import Row, Work, figure, interleaved, ratios
from .server import ServerAddress, running
from .subjects import SUBJECTS, Heard, Reader, Subject, available

__all__ = ["ROWS", "check", "one_answer", "readers"]

OURS = "mintlify-async"

#: row → title, runs of an answer in a round, ratios to stay under
ROWS = {
    "burst": (
        "one HTTP chunk an event, written at once",
        8,
        {"aiohttp": 2.6, "httpx-sse": 0.28, "openai": 0.11},
    ),
    "one": ("the whole answer as one HTTP chunk", 8, {}),
    "packets": ("cut in packets, one a read", 2, {}),
    "trickled": ("one event a packet, one a read", 1, {}),
    "deltas": ("100,000 deltas", 1, {}),
    "event": ("one event of 1 MB", 4, {}),
}


def check(heard: Heard, expected: Answer) -> None:
    """Hold what a subject read against what was sent: one that skips work is fast."""
    if heard.body_bytes:
        assert heard.body_bytes == len(expected.body), heard
        return
    assert heard.events == expected.events, (heard.events, expected.events)
    assert heard.text is None or heard.text == expected.text, heard.text


async def readers(
    stack: AsyncExitStack, server: ServerAddress, shape: str, subjects: list[Subject]
) -> dict[str, tuple[Reader, Answer]]:
    """Open each subject on *shape* and let it read one answer, which is checked whole."""
    found = {}
    for subject in subjects:
        if shape in subject.unable:
            continue
        name = f"named-{shape}" if subject.named else shape
        read, expected = await stack.enter_async_context(subject.opened(server, name)), script(name).answer
        check(await read(keep=True), expected)
        found[subject.name] = read, expected
    return found


def checked(read: Reader, expected: Answer) -> Work:
    """Return *read* as work that asserts how many events it saw, each time."""

    async def work() -> None:
        check(await read(), expected)

    return work


async def one_answer(shape: str, *, rounds: int, quick: bool = False) -> Row:
    """Measure microseconds of CPU an event, over a whole answer in *shape*."""
    title, repeat, reach = ROWS[shape]
    served = f"{shape}-brief" if quick and f"{shape}-brief" in SHAPES else shape
    async with AsyncExitStack() as stack:
        server = stack.enter_context(running())
        found = await readers(stack, server, served, available(SUBJECTS))
        works = {name: checked(read, expected) for name, (read, expected) in found.items()}
        samples = await interleaved(works, rounds=rounds, repeat=1 if quick else repeat)
    events = script(served).answer.events
    costs = {name: figure([1e6 * cost / events for cost in each]) for name, each in samples.items()}
    return Row(shape, f"CPU an event: {title}", "µs", costs, ratios(samples, OURS), reach, {})
