"""What people read of an answer is the same in every view of it, growing or whole."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async.assistant.event_stream import MessageStream
from mintlify_async.errors import StreamInterruptedError
from mintlify_async.events import Start, StartStep, TextDelta, TextEnd, TextStart
from mintlify_async.messages import Message, TextPart
from mintlify_async.rendering.answer_as_markdown import answer_markdown, extras_markdown
from mintlify_async.rendering.readable_text import ReadableText, text_after, text_of
from mintlify_async.testing import Cut


def part(id: str, *deltas: str) -> list[dict]:
    """Return the events of one text part."""
    return [
        {"type": "text-start", "id": id},
        *({"type": "text-delta", "id": id, "delta": delta} for delta in deltas),
        {"type": "text-end", "id": id},
    ]


async def collect(stream, pieces: list[str]) -> None:
    """Add each piece to *pieces*, so that what came before an error is there."""
    async for piece in stream:
        pieces.append(piece)


FINISH = {"type": "finish", "finishReason": "stop"}
TWO_TEXTS = [*part("a", "Let me look ", "that up."), *part("b", "## Log ", "in\n"), FINISH]
SUGGESTED = [*part("a", "Press it.\n\n"), *part("b", "```sugg", "estions\n(SSO)[/sso]\n", "```\n"), FINISH]
RESET = [
    {"type": "start-step"},
    *part("a", "Kept."),
    {"type": "start-step"},
    *part("b", "Void so far\n\n```sugg")[:-1],
    {"type": "reset-step"},
    *part("b", "Void, too."),
    *part("c", "Half\ud83d")[:-1],
    {"type": "reset-step"},
    *part("c", "Instead."),
    FINISH,
]
RESET_FIRST = [*part("a", "```sugg")[:-1], {"type": "reset-step"}, *part("b", "Instead."), FINISH]
OTHER_MESSAGE = [
    {"type": "start", "messageId": "m1"},
    *part("a", "Void."),
    {"type": "start", "messageId": "m2"},
    *part("b", "Instead."),
    FINISH,
]
TWO_AT_ONCE = [
    {"type": "text-start", "id": "a"},
    {"type": "text-start", "id": "b"},
    {"type": "text-delta", "id": "b", "delta": "Second."},
    {"type": "text-delta", "id": "a", "delta": "First."},
    {"type": "text-end", "id": "b"},
    {"type": "text-end", "id": "a"},
    FINISH,
]

LINKS = [*part("a", "See [a](", "/b", ")."), FINISH]

READ = {
    "two texts": (TWO_TEXTS, "Let me look that up.\n\n## Log in"),
    "suggestions in a part of their own": (SUGGESTED, "Press it."),
    "two texts at once": (TWO_AT_ONCE, "First.\n\nSecond."),
    "a text without its end": ([*TWO_TEXTS[:-2], FINISH], "Let me look that up.\n\n## Log in"),
    "links, with the session's site": (LINKS, "See [a](https://docs.acme.com/b)."),
}


@pytest.mark.parametrize(("events", "text"), READ.values(), ids=READ)
async def test_every_view_reads_the_same(service, session, events, text):
    """``text``, ``text_stream``, ``edits`` and Markdown, with links completed; the message is exact."""
    service.script.ask(events=events, times=None)
    session = session.with_options(site="https://docs.acme.com")
    answer = await session.ask("x")
    assert answer.text == text
    async with session.ask("x") as reply:
        pieces = [piece async for piece in reply.text_stream]
        assert all(pieces)
        assert "".join(pieces) == reply.text == reply.answer.text == text
        assert reply.suggestions == answer.suggestions
    edits = [edit.text async for edit in session.ask("x").edits(every=0, tail=extras_markdown)]
    assert edits[-1] == answer_markdown(answer)
    assert answer_markdown(answer).startswith(text)
    suggested = ["https://docs.acme.com/sso"] if events is SUGGESTED else []
    assert [page.path for page in answer.suggestions] == suggested
    assert all(event["delta"] in answer.message.text for event in events if event["type"] == "text-delta")


@pytest.mark.parametrize(
    ("events", "text", "shown"),
    [
        (RESET, "Kept.\n\nInstead.", "Kept.\n\nVoid so far\n\nVoid, too.\n\nHalf\n\nInstead."),
        (RESET_FIRST, "Instead.", "Instead."),
    ],
    ids=["reset-step", "reset-step first"],
)
async def test_what_is_void_is_no_part_of_the_text(service, session, events, text, shown):
    """A view that grows keeps what it has shown, drops what it held back, and goes on in a new paragraph."""
    service.script.ask(events=events, times=None)
    answer = await session.ask("x")
    assert answer.text == answer_markdown(answer) == text
    async with session.ask("x") as reply:
        assert "".join([piece async for piece in reply.text_stream]) == shown
        assert reply.text == text
    assert [edit.text async for edit in session.ask("x").edits(every=0)][-1] == shown


@pytest.mark.parametrize("site", [None, "https://docs.acme.com"])
@pytest.mark.parametrize(
    ("first", "text"),
    [
        (part("a", "One."), "One.\n\nTwo."),
        (part("a", "One")[:-1], "One\n\nTwo."),
        (part("a", "One.\n\n```sugg")[:-1], "One.\n\nTwo."),
        (
            [
                {"type": "start", "messageId": "n1"},
                *part("a", "One."),
                {"type": "start", "messageId": "n2"},
                *part("a", "x"),
            ],
            "One.\n\nx\n\nTwo.",
        ),
        ([{"type": "start", "messageId": "n1"}, {"type": "start-step"}], "Two."),
        (RESET[:-1], "Kept.\n\nInstead.\n\nTwo."),
    ],
)
async def test_a_second_message_follows_the_text_of_the_first(service, session, first, text, site):
    """Text that was shown stays in every view; ``message`` is the second one, as the AI SDK has it."""
    events = [*first, {"type": "start", "messageId": "m2"}, *part("b", "Two."), FINISH]
    service.script.ask(events=events, times=None)
    session = session.with_options(site=site)
    answer = await session.ask("x")
    assert answer.text == answer_markdown(answer) == text
    assert answer.message.text == text_of(answer.message) == "Two."
    assert pickle.loads(pickle.dumps(answer)) == answer
    assert pickle.loads(pickle.dumps(answer)).text == text
    async with session.ask("x") as reply:
        shown = "".join([piece async for piece in reply.text_stream])
        assert reply.text == reply.answer.text == text
        assert shown == text or "reset-step" in str(events)
    assert [edit.text async for edit in session.ask("x").edits(every=0)][-1] == shown


async def test_another_message_than_the_one_to_continue_is_alone(service, session):
    """The answer did not show the text of the message that it was to continue."""
    begun = Message(id="m", role="assistant", parts=(TextPart(text="It begins."),))
    service.script.ask(events=[{"type": "start", "messageId": "n"}, *part("a", "New."), FINISH])
    async with session.ask([Message.user("x"), begun]) as reply:
        assert [piece async for piece in reply.text_stream] == ["New."]
        assert reply.text == reply.answer.text == "New."


async def test_an_interrupted_second_message_has_the_text_of_the_first(service, session):
    service.script.ask(body=[*OTHER_MESSAGE[:-1]], fault=Cut(at=-1))
    with pytest.raises(StreamInterruptedError) as caught:
        await session.ask("x")
    assert caught.value.text == "Void.\n\nInstead."
    assert caught.value.partial.text == "Instead."


@pytest.mark.parametrize("site", [None, "https://docs.acme.com"])
@pytest.mark.parametrize(
    "events",
    [RESET, RESET_FIRST, OTHER_MESSAGE, TWO_AT_ONCE, TWO_TEXTS, SUGGESTED, LINKS],
    ids=["reset-step", "reset-step first", "start", "two at once", "two texts", "suggestions", "links"],
)
async def test_text_read_at_each_event_is_the_text_of_these_events(service, session, events, site):
    """As if it were read once, after them: what is void is left out, what may change is held back."""
    service.script.ask(events=events, times=None)
    session = session.with_options(site=site)
    async with session.ask("x") as often:
        texts = [often.text async for _ in often]
    for number, text in enumerate(texts, 1):
        async with session.ask("x") as once:
            for _ in range(number):
                await anext(once)
            assert text == once.text


async def test_reading_the_text_costs_what_is_new(service, session, monkeypatch):
    """A page that shows it at each event does not make all of it again."""
    read, feed = [], ReadableText.feed
    monkeypatch.setattr(
        ReadableText, "feed", lambda text, piece: read.append(len(piece)) or feed(text, piece)
    )
    service.script.ask(events=[*part("a", *["word "] * 500), FINISH])
    async with session.ask("x") as reply:
        async for _ in reply:
            assert reply.text.endswith("word ") or not reply.text
    assert sum(read) <= 3 * len("word " * 500)


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        (["Half an answ"], "Half an answ"),
        (["Half.\n\n```sugg"], "Half.\n\n```sugg"),
        (["Half.\n\n```suggestions\n(SS"], "Half."),
        (["Half \ud83d"], "Half \ufffd"),
        (["Half [a](", "/b)"], "Half [a](https://docs.acme.com/b)"),
    ],
)
async def test_all_that_arrived_is_read_before_a_cut_is_raised(service, session, deltas, text):
    """What was held back is handed out; the error has the same text."""
    service.script.ask(body=part("a", *deltas)[:-1], fault=Cut(at=-1), times=None)
    session = session.with_options(site="https://docs.acme.com")
    reply, pieces = session.ask("x"), []
    with pytest.raises(StreamInterruptedError) as caught:
        await collect(reply.text_stream, pieces)
    assert "".join(pieces) == caught.value.text == reply.text == text
    with pytest.raises(StreamInterruptedError) as caught:
        await session.ask("x")
    assert caught.value.text == text


async def test_a_view_that_begins_in_the_middle_goes_on_exactly(service, session):
    """What was held back then is handed out by it, and nothing twice."""
    service.script.ask(events=[*part("a", "One.\n", "\n```py", "\nx = 1\n", "```\n"), *TWO_TEXTS], times=None)
    whole = (await session.ask("x")).text
    for events in range(12):
        async with session.ask("x") as reply:
            for _ in range(events):
                await anext(reply)
            before = reply.text
            assert before + "".join([piece async for piece in reply.text_stream]) == whole


async def test_an_answer_that_continues_a_message_continues_its_text(service, session):
    """The stream has what is new, apart from what was there by a blank line."""
    begun = Message(id="m", role="assistant", parts=(TextPart(text="It begins."),))
    service.script.ask(events=[*part("a", "It goes on."), FINISH])
    async with session.ask([Message.user("x"), begun]) as reply:
        assert reply.text == "It begins."
        assert [piece async for piece in reply.text_stream] == ["\n\nIt goes on."]
        assert reply.message.id == "m"
        assert reply.text == "It begins.\n\nIt goes on."


# Any events ------------------------------------------------------------------------------------

WORDS = ["text", "A b", " ", "sugg", "estions", "```", "`", "é", "\ud83d", "\ude00", ""]
LINES = ["\n", "\n\n", "\r\n", "```suggestions\n", "(A)[/a]\n", "~~~\n", "```py\n"]
pieces_of_text = st.sampled_from([*WORDS, *LINES, "```suggestions\n(B)[/b]\n```\n"])
ids = st.sampled_from("abc")
deltas = st.builds(lambda id, delta: TextDelta(id=id, delta=delta), ids, pieces_of_text)
several = st.lists(
    st.one_of(
        deltas,
        deltas,
        deltas,
        st.builds(lambda id: TextStart(id=id), ids),
        st.builds(lambda id: TextEnd(id=id), ids),
        st.just(StartStep()),
        st.builds(lambda id: Start(message_id=id), ids),
    ),
    max_size=40,
)


def legal(events: list) -> list:
    """Return *events* without those that name a part that is not open."""
    kept, opened, message_id = [], set(), None
    for event in events:
        if isinstance(event, TextStart):
            opened.add(event.id)
        elif isinstance(event, TextDelta | TextEnd) and event.id not in opened:
            continue
        elif isinstance(event, TextEnd):
            opened.remove(event.id)
        elif isinstance(event, Start) and event.message_id != message_id:
            opened, message_id = set(), event.message_id
        kept.append(event)
    return kept


def streamed(events: list, site: str | None = None) -> MessageStream:
    """Return a stream that has these events before it."""
    stream = MessageStream(site=site)
    frames = [f"data: {json.dumps(event.to_wire())}\n\n" for event in events]
    stream.feed("".join([*frames, 'data: {"type":"finish"}\n\ndata: [DONE]\n\n']).encode())
    stream.feed_eof()
    return stream


@given(events=several, site=st.sampled_from([None, "https://docs.acme.com"]))
def test_the_text_so_far_is_what_was_streamed_so_far(events, site):
    """After each event, so that a view may begin at any of them."""
    stream = streamed(legal(events), site)
    growing, shown = stream.growing_text(), ""
    while (event := stream.next_event()) is not None:
        shown += growing.after(event)
        assert shown == stream.text
    assert (
        shown + growing.close()
        == stream.partial_text
        == text_after(stream.earlier_text, stream.message, site)
    )
