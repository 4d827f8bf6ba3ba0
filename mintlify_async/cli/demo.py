"""``demo`` runs every operation with its own local service, and shows the Python code of each step."""

from __future__ import annotations

import argparse

import mintlify_async as mintlify
from mintlify_async.testing import AnswerStyle, JobLife, LocalService

from .exit_status import DONE
from .job import record_line
from .show_answer import show_answer
from .terminal import Terminal

PAUSE_SECONDS = 0.015
"""Seconds between two pieces of an answer, so that the streaming is visible."""

JOB_SECONDS = 1.5
"""Duration of a job, in seconds."""

INTRODUCTION = """
A local service stands in for the real one: same paths, same streams.

    # base_url={service.base_url!r}; keys come from the environment
    session = MintlifySession(project_id={service.project_id!r}, domain={service.domain!r})
"""

QUESTION = """
1. A question. The answer streams in.

    async with session.ask("How do I create an agent job?") as reply:
        async for text in reply.text_stream:
            print(text, end="")
"""

SECOND_QUESTION = """
2. A second question in the same thread: the assistant knows the first.

    more = session.ask("And how do I send it a follow-up?", thread=reply.thread)
    print((await more).text, more.sources)
"""

JOB = """
3. An agent job. It is sent at most once: a second one could open a second
   pull request.

    job = await session.create_job("Fix the typos in the quickstart")
    async for record in job.watch():      # polls, and yields on each change
        print(record.id, record.status, record.pr_link)
"""

FOLLOW_UP = """
4. A follow-up. Its wait ends with its own result, not with the first one's.

    follow_up = await job.send("Mention the command line, too")
    done = await follow_up
"""

END = """
With keys set, the same calls reach the real service: see `mintlify-async doctor`.
`mintlify-async serve` keeps the local service running, for your own code."""


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Show a question, a second question in its thread, a job, and a follow-up."""
    service = LocalService(life=JobLife(seconds=JOB_SECONDS), answers=AnswerStyle(pause=PAUSE_SECONDS))
    poll = mintlify.PollPolicy(initial=0.5, factor=1.0, settle_seconds=service.settle_seconds)
    async with service, service.session(poll=poll) as session:
        terminal.write(INTRODUCTION.format(service=service))
        terminal.write(QUESTION)
        reply = session.ask("How do I create an agent job?")
        await _answer(reply, terminal)
        terminal.write(SECOND_QUESTION)
        await _answer(session.ask("And how do I send it a follow-up?", thread=reply.thread), terminal)
        terminal.write(JOB)
        job = await session.create_job("Fix the typos in the quickstart")
        await _watch(job, terminal)
        terminal.write(FOLLOW_UP)
        await _watch(await job.send("Mention the command line, too"), terminal)
    terminal.write(END)
    return DONE


async def _watch(job: mintlify.JobHandle, terminal: Terminal) -> None:
    with terminal.progress(f"job {job.ref.id}"):
        async for record in job.watch():
            terminal.write("    " + record_line(record, job.ref))


async def _answer(reply: mintlify.Reply, terminal: Terminal) -> None:
    await show_answer(reply, terminal)
    terminal.write(f"\n    thread id: {reply.thread_id}")
