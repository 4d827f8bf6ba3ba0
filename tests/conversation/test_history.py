"""What is sent with a question, without a store and without I/O."""

from __future__ import annotations

import pytest

from mintlify_async.conversation.history import Contents, messages_to_send
from mintlify_async.conversation.turns import ConversationKeys, changes_of, newest_turns
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


def test_turns_are_numbered():
    """From 0; a question begins a turn, and replacing one gives its number to the new one."""
    three = contents(3)
    assert ([turn.number for turn in three.turns], three.end) == ([0, 1, 2], 3)
    before = three.before("a1")
    assert (before.end, before.thread) == (1, None)
    assert before.with_turn(QUESTION, turn(9)[1], None).turns[-1].number == 1


def test_a_step_writes_the_head_and_what_changes():
    """New turns are added, those behind the end are dropped, and the others are not touched."""
    keys = ConversationKeys("ada", "a/b")
    changes = changes_of(keys, b"head", {2: b"new"}, turns=3, stored_turns=5)
    assert changes == {keys.head: b"head", keys.turn(2): b"new", keys.turn(3): None, keys.turn(4): None}
    assert len({key.partition("/")[0] for key in changes}) == 1


def test_turns_before_a_gap_have_expired():
    """A store may keep turns for a time; what is left is one piece."""
    zero, one, two = contents(3).turns
    assert newest_turns([zero, None, two]) == (two,)
    assert newest_turns([None, one, two]) == (one, two)
    assert newest_turns([zero, one, None]) == ()
