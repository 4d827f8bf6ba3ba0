"""What of a conversation is sent with a question, and what is kept of it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async.conversation.history import Contents, HistoryBounds, fills, messages_to_send
from mintlify_async.errors import ConfigurationError
from mintlify_async.messages import FilePart, Message, ReasoningPart, StepStartPart, TextPart, ToolPart

QUESTION = (Message.user("?", id="q"),)


def message(role: str, text: str = "x", id: str = "m") -> Message:
    return Message(id=id, role=role, parts=(TextPart(text=text),))


histories = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "system"]), st.text(max_size=12)), max_size=12
).map(lambda said: tuple(message(role, text, id=f"m{n}") for n, (role, text) in enumerate(said)))
bounds = st.one_of(st.none(), st.integers(1, 40))


@given(history=histories, most=bounds, longest=bounds)
def test_what_is_sent_fits(history, most, longest):
    """System messages first, then the end of the rest, then the question; never an answer to begin with."""
    rules = HistoryBounds(max_messages=most, max_characters=longest)
    sent = messages_to_send(Contents().with_messages(history), QUESTION, rules)
    system = [one for one in history if one.role == "system"]
    assert sent[: len(system)] == system
    assert tuple(sent[-1:]) == QUESTION
    rest = sent[len(system) : -1]
    spoken = [one for one in history if one.role != "system" and one.text]
    assert rest == spoken[len(spoken) - len(rest) :]
    if len(rest) < len(spoken) and rest:
        assert rest[0].role == "user"
    if most is not None:
        assert len(rest) + 1 <= most
    if longest is not None and rest:
        assert sum(len(one.text) for one in (*rest, *QUESTION)) <= longest


@given(history=histories)
def test_without_bounds_everything_is_sent(history):
    """What has no words is nothing to send."""
    spoken = [one for one in history if one.role != "system"]
    sent = messages_to_send(Contents().with_messages(spoken), QUESTION, HistoryBounds())
    assert [one.id for one in sent[:-1]] == [one.id for one in history if one.text and one.role != "system"]


@given(history=histories, most=st.integers(1, 14))
def test_what_is_kept_is_whole_turns(history, most):
    """Never the half of a turn; the last turn always. System messages are sent all the same."""
    contents = Contents().with_messages(history)
    kept = contents.newest(most)
    assert history[len(history) - len(kept.messages) :] == kept.messages
    assert kept.turns == contents.turns[len(contents.turns) - len(kept.turns) :]
    assert kept.complete
    assert len(kept.messages) <= max(most, *(len(turn.messages) for turn in contents.turns[-1:]), 0)
    assert contents.newest(None) is contents
    if history:
        assert kept.turns
        assert kept.turns[0].number >= contents.first_kept(most)
    assert kept.system_messages == tuple(one for one in history if one.role == "system")


@given(history=histories)
def test_turns_are_counted_by_their_messages(history):
    """A turn begins with each question; its number says how many messages came before."""
    contents = Contents().with_messages(history)
    assert contents.messages == history
    for turn in contents.turns:
        assert turn.messages == history[turn.number : turn.number + len(turn.messages)]
        assert all(one.role != "user" or two.role == "user" for one, two in pairwise(turn.messages[::-1]))
    assert contents.end == len(history)
    left = contents.without_last_turn()
    if left is None:
        assert all(one.role != "user" for one in history)
    else:
        assert left.messages == history[: left.end]
        assert history[left.end].role == "user"
        assert [one.id for one in left.system_messages] == [
            one.id for one in left.messages if one.role == "system"
        ]


@given(history=histories, most=bounds, longest=bounds, unread=st.integers(0, 12))
def test_with_enough_of_the_history_the_same_is_sent(history, most, longest, unread):
    """What fills the bounds need not be read further; what is sent is the same."""
    rules = HistoryBounds(max_messages=most, max_characters=longest)
    whole = Contents().with_messages(history)
    read = evolve(whole, turns=whole.turns[unread:], complete=unread == 0)
    if read.complete or fills(read, rules):
        assert messages_to_send(read, QUESTION, rules) == messages_to_send(whole, QUESTION, rules)
    assert messages_to_send(read, QUESTION, rules)[-1] is QUESTION[0]


def test_only_words_of_earlier_messages():
    """Tools, reasoning and metadata stay here; the question goes as it is."""
    parts = (
        StepStartPart(),
        ReasoningPart(text="hm"),
        ToolPart(tool_name="search", tool_call_id="c", state="output-available", output={"results": []}),
        TextPart(text="Here."),
        FilePart(media_type="text/plain", url="data:,x"),
    )
    answer = Message(id="a", role="assistant", parts=parts, metadata={"threadId": "t"})
    (sent, question) = messages_to_send(Contents().with_messages([answer]), (answer,), HistoryBounds())
    assert [part.type for part in sent.parts] == ["text", "file"]
    assert sent.metadata is None
    assert question is answer
    (sent, _) = messages_to_send(Contents().with_messages([answer]), QUESTION, HistoryBounds(parts=None))
    assert sent.parts == parts


def test_a_file_counts_by_its_address():
    """A data: URL is as long as the file."""
    file = Message(id="f", role="user", parts=(FilePart(media_type="text/plain", url="data:," + "x" * 94),))
    assert (
        len(messages_to_send(Contents().with_messages([file]), QUESTION, HistoryBounds(max_characters=101)))
        == 2
    )
    assert (
        len(messages_to_send(Contents().with_messages([file]), QUESTION, HistoryBounds(max_characters=100)))
        == 1
    )


@pytest.mark.parametrize("name", ["max_messages", "max_characters"])
@pytest.mark.parametrize("bound", [0, -1, True, 1.5, "9"])
def test_bounds_are_whole_numbers(name, bound):
    """Of at least 1: the question is always sent."""
    with pytest.raises(ConfigurationError) as caught:
        HistoryBounds(**{name: bound})
    assert caught.value.field == name
