"""Three writers of one conversation, thousands of random steps: the history is always consistent.

Run it alone with ``pytest -m sweep tests/conversation/test_conversation_sweep.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from mintlify_async.errors import ConfigurationError, ServerError, StateError, StoreConflictError
from mintlify_async.messages import Message
from tests.support.conversation_kit import answer

pytestmark = pytest.mark.parametrize("store", ["memory", "sqlite", "redis"], indirect=True)
STEPS = ["ask"] * 6 + ["cancel", "fail", "undo", "replace", "load", "save", "delete", "at once"]


@pytest.fixture(autouse=True)
def clock():
    """Real time: Redis is another process."""


class Writers:
    """Three objects of one conversation, and what the store may have: the questions, one of some lists."""

    def __init__(self, service, session, store, seed: int) -> None:
        self.service, self.session, self.store = service, session, store
        self.pick = random.Random(seed)
        self.options = {"store": store, "id": f"c{seed}", "owner": "ada"}
        bounds = (None, 4, 7)
        self.chats = [
            session.conversation(**self.options, max_messages=most, busy="queue") for most in bounds
        ]
        self.number = 0
        self.questions: list[str] = []

    def question(self) -> Message:
        self.number += 1
        self.service.script.ask(events=answer(f"to q{self.number}", id=f"a{self.number}"))
        return Message.user(f"q{self.number}", id=f"q{self.number}")

    async def stored(self) -> list[str]:
        """Return the ids of the stored questions, after checking the history."""
        chat = await self.session.conversation(**self.options).load()
        roles = [message.role for message in chat.messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        ids = [message.id for message in chat.messages]
        assert len(set(ids)) == len(ids)
        for question, reply in zip(chat.messages[::2], chat.messages[1::2], strict=True):
            assert reply.text.strip() == f"to {question.text}"
        return ids[::2]

    async def step(self, kind: str) -> None:
        """Do one random step with one of the writers; check what the store has then."""
        chat, before = self.pick.choice(self.chats), self.questions
        allowed = [before]
        try:
            if kind == "ask":
                question = self.question()
                allowed = [[*before, question.id]]
                await chat.ask([question])
            elif kind == "cancel":
                question = self.question()
                allowed = [before, [*before, question.id]]
                task = asyncio.create_task(chat.ask([question]).run())
                await asyncio.sleep(self.pick.random() * 0.01)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                for _ in range(30):  # else its request could come late, and take the next question's answer
                    await asyncio.sleep(0)
            elif kind == "fail":
                self.service.script.ask(status=500)
                await chat.ask("lost", timeout=5)
            elif kind == "undo":
                allowed = [before[:-1]]
                await chat.undo()
            elif kind == "replace" and before:
                at, question = self.pick.randrange(len(before)), self.question()
                allowed = [[*before[:at], question.id]]
                await chat.ask([question], replacing=before[at])
            elif kind == "delete":
                allowed = [[]]
                await chat.delete()
            elif kind == "at once":
                questions = [self.question() for _ in self.chats]
                await asyncio.gather(
                    *(chat.ask([question]) for chat, question in zip(self.chats, questions, strict=True))
                )
                self.questions = await self.stored()
                assert self.questions[: len(before)] == before
                assert sorted(self.questions[len(before) :]) == sorted(question.id for question in questions)
                return
            elif kind in ("load", "save"):
                await getattr(chat, kind)()
        except StoreConflictError:
            allowed = [before]
            await chat.load()
        except (ServerError, ConfigurationError):
            allowed = [before]
        except StateError as error:  # there is nothing to take back
            if "no turn" not in str(error):
                raise
        finally:
            self.service.script.clear()
        self.questions = await self.stored()
        assert self.questions in allowed, kind
        if len(self.questions) > 30:
            await self.session.conversation(**self.options).delete()
            self.questions = []


@pytest.mark.parametrize("steps", [60, pytest.param(4000, marks=pytest.mark.sweep)])
async def test_three_writers_agree(service, session, store, steps: int) -> None:
    """A short run by default, and 4,000 steps on each of three stores in the sweep."""
    for seed in range(max(steps // 200, 1)):
        writers = Writers(service, session, store, seed)
        for _ in range(min(steps, 200)):
            await writers.step(writers.pick.choice(STEPS))
