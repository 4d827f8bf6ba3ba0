"""What is sent with a question, without a store and without I/O."""

from __future__ import annotations

import pytest

from mintlify_async.conversation.history import Contents, messages_to_send
from mintlify_async.messages import Message


def turn(number: int) -> list[Message]:
    question = Message.user(f"q{number}", id=f"q{number}")
    return [question, Message(id=f"a{number}", role="assistant", parts=question.parts)]


def contents(turns: int) -> Contents:
    return Contents().with_messages([message for number in range(turns) for message in turn(number)])


QUESTION = [Message.user("now", id="now")]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (None, ["q0", "a0", "q1", "a1", "q2", "a2", "now"]),
        (7, ["q0", "a0", "q1", "a1", "q2", "a2", "now"]),
        (6, ["q1", "a1", "q2", "a2", "now"]),
        (3, ["q2", "a2", "now"]),
        (2, ["now"]),
        (1, ["now"]),
    ],
)
def test_the_newest_messages_are_sent(most, expected):
    """The question always; never an answer whose question is left out."""
    assert [message.id for message in messages_to_send(contents(3), QUESTION, most)] == expected
