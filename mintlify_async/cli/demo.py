"""``demo``: every operation against a local service that it starts, each step with its Python code."""

from __future__ import annotations

import argparse
import textwrap

import mintlify_async as mintlify
from mintlify_async.testing import AnswerStyle, JobLife, LocalService

from .ask import stream
from .exit_status import DONE
from .job import line
from .terminal import Terminal

__all__ = ["run"]

PAUSE_SECONDS = 0.015
"""Between two pieces of an answer, so that it is seen to stream."""

JOB_SECONDS = 3.0
"""How long a job runs."""


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Show a job, a follow-up, a question, and a second question on the same thread."""
    service = LocalService(life=JobLife(seconds=JOB_SECONDS), answers=AnswerStyle(pause=PAUSE_SECONDS))
    poll = mintlify.PollPolicy(initial=1.0, factor=1.0, settle_seconds=service.settle_seconds)
    async with service, service.session(poll=poll) as session:
        _step(
            terminal,
            "A local service stands in for the real one: same paths, same streams.",
            f"""
            # base_url={service.base_url!r}; keys come from the environment
            session = MintlifySession(project_id={service.project_id!r}, domain={service.domain!r})
            """,
        )
        job = await _create(session, terminal)
        await _follow_up(job, terminal)
        thread = await _ask(session, terminal)
        await _ask_again(session, thread, terminal)
    terminal.write("\nThat was the whole interface. With keys set, the same calls reach the real")
    terminal.write("service: see `mintlify-async doctor`. And `mintlify-async serve` keeps the local")
    terminal.write("service running, for your own code.")
    return DONE


def _step(terminal: Terminal, says: str, code: str) -> None:
    """Print what the next step does and its Python code."""
    terminal.write(f"\n{says}\n")
    terminal.write(textwrap.indent(textwrap.dedent(code).strip(), "    "))
    terminal.write("")


async def _create(session: mintlify.MintlifySession, terminal: Terminal) -> mintlify.JobHandle:
    _step(
        terminal,
        "1. An agent job. It is sent at most once: a second could open a second change.",
        """
        job = await session.create_job("Fix the typos in the quickstart")
        async for seen in job.watch():      # polls, and yields on each change
            print(seen.id, seen.status, seen.pr_link)
        """,
    )
    job = await session.create_job("Fix the typos in the quickstart")
    await _watch(job, terminal)
    return job


async def _watch(job: mintlify.JobHandle, terminal: Terminal) -> None:
    async for seen in job.watch():
        terminal.write("    " + line(seen))


async def _follow_up(job: mintlify.JobHandle, terminal: Terminal) -> None:
    _step(
        terminal,
        "2. A follow-up. Its wait ends with its own result, not with the first turn's.",
        """
        turn = await job.send("Mention the command line, too")
        done = await turn
        """,
    )
    turn = await job.send("Mention the command line, too")
    await _watch(turn, terminal)


async def _ask(session: mintlify.MintlifySession, terminal: Terminal) -> mintlify.Thread | None:
    _step(
        terminal,
        "3. A question. The answer streams in as typed events.",
        """
        async with session.ask("How do I create an agent job?") as reply:
            async for text in reply.text_stream:
                print(text, end="")
        """,
    )
    return await _answer(session.ask("How do I create an agent job?"), terminal)


async def _ask_again(
    session: mintlify.MintlifySession, thread: mintlify.Thread | None, terminal: Terminal
) -> None:
    _step(
        terminal,
        "4. A second question on the same thread: the assistant knows the first.",
        """
        more = session.ask("And how do I send it a follow-up?", thread=reply.thread)
        print((await more).text, more.sources)
        """,
    )
    await _answer(session.ask("And how do I send it a follow-up?", thread=thread), terminal)


async def _answer(reply: mintlify.Reply, terminal: Terminal) -> mintlify.Thread | None:
    await stream(reply, terminal)
    terminal.write(f"\n    thread id: {reply.thread_id}")
    return reply.thread
