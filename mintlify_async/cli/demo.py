"""``demo``: every operation against a local service that it starts, each step with its Python code."""

from __future__ import annotations

import argparse

import mintlify_async as mintlify
from mintlify_async.testing import AnswerStyle, JobLife, LocalService

from .ask import stream
from .exit_status import DONE
from .job import line
from .terminal import Terminal

PAUSE_SECONDS = 0.015
"""Between two pieces of an answer, so that it is seen to stream."""

JOB_SECONDS = 3.0
"""How long a job runs."""


INTRODUCTION = """
A local service stands in for the real one: same paths, same streams.

    # base_url={service.base_url!r}; keys come from the environment
    session = MintlifySession(project_id={service.project_id!r}, domain={service.domain!r})
"""

JOB = """
1. An agent job. It is sent at most once: a second could open a second change.

    job = await session.create_job("Fix the typos in the quickstart")
    async for seen in job.watch():      # polls, and yields on each change
        print(seen.id, seen.status, seen.pr_link)
"""

FOLLOW_UP = """
2. A follow-up. Its wait ends with its own result, not with the first turn's.

    turn = await job.send("Mention the command line, too")
    done = await turn
"""

QUESTION = """
3. A question. The answer streams in as typed events.

    async with session.ask("How do I create an agent job?") as reply:
        async for text in reply.text_stream:
            print(text, end="")
"""

SECOND_QUESTION = """
4. A second question on the same thread: the assistant knows the first.

    more = session.ask("And how do I send it a follow-up?", thread=reply.thread)
    print((await more).text, more.sources)
"""

END = """
That was the whole interface. With keys set, the same calls reach the real
service: see `mintlify-async doctor`. And `mintlify-async serve` keeps the local
service running, for your own code."""


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Show a job, a follow-up, a question, and a second question on the same thread."""
    service = LocalService(life=JobLife(seconds=JOB_SECONDS), answers=AnswerStyle(pause=PAUSE_SECONDS))
    poll = mintlify.PollPolicy(initial=1.0, factor=1.0, settle_seconds=service.settle_seconds)
    async with service, service.session(poll=poll) as session:
        terminal.write(INTRODUCTION.format(service=service))
        terminal.write(JOB)
        job = await session.create_job("Fix the typos in the quickstart")
        await _watch(job, terminal)
        terminal.write(FOLLOW_UP)
        await _watch(await job.send("Mention the command line, too"), terminal)
        terminal.write(QUESTION)
        first = session.ask("How do I create an agent job?")
        await _answer(first, terminal)
        terminal.write(SECOND_QUESTION)
        await _answer(session.ask("And how do I send it a follow-up?", thread=first.thread), terminal)
    terminal.write(END)
    return DONE


async def _watch(job: mintlify.JobHandle, terminal: Terminal) -> None:
    async for seen in job.watch():
        terminal.write("    " + line(seen))


async def _answer(reply: mintlify.Reply, terminal: Terminal) -> None:
    await stream(reply, terminal)
    terminal.write(f"\n    thread id: {reply.thread_id}")
