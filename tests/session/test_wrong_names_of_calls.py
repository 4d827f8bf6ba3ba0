"""What people write by habit, from other clients: one line says what to write here, and nothing is sent."""

from __future__ import annotations

import inspect
import traceback

import pytest

from mintlify_async import ConfigurationError, MintlifySession, StateError, as_completed, wait_all

SESSION = ["api_key", "max_retries", "stream", "timeout", "idempotency_key", "thread_id"]


@pytest.mark.parametrize("name", SESSION)
def test_the_session_names_the_argument_to_write(name):
    with pytest.raises(ConfigurationError, match=f"{name}=:") as caught:
        MintlifySession(**{name: "mint_secret", "admin_key": "mint_secret"})
    assert caught.value.field == name
    own = [frame.f_locals for frame, _ in traceback.walk_tb(caught.value.__traceback__)][1:]
    assert own
    assert "mint_secret" not in repr(own)


def test_a_subclass_may_have_an_argument_of_that_name():
    class Ours(MintlifySession):
        def __init__(self, api_key: str) -> None:
            super().__init__(admin_key=api_key)

    assert not Ours(api_key="mint_0123456789").closed


VERBS = {"ask": "api_key", "create_job": "idempotency_key", "run_job": "max_retries"}


@pytest.mark.parametrize(("verb", "name"), [*VERBS.items(), ("conversation", "thread_id")])
async def test_a_verb_names_the_argument_to_write(service, session, verb, name):
    first = () if verb == "conversation" else ("a question",)
    with pytest.raises(ConfigurationError) as caught:
        await getattr(session, verb)(*first, **{name: "x"})
    assert caught.value.field == name
    assert not service.requests


def test_with_options_names_the_argument_to_write(bare):
    with pytest.raises(ConfigurationError, match="max_retries=: write retry=RetryPolicy"):
        MintlifySession().with_options(max_retries=3)


@pytest.mark.parametrize("name", ["proxy", "admin_key", "assistant_key"])
def test_with_options_shows_no_secret_of_its_arguments(bare, name):
    """The URL of a proxy may have a password, and a tracer may print the locals of the frames."""
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession().with_options(**{name: "http://user:mint_secret@proxy.test"}, retry=3)
    own = [frame.f_locals for frame, _ in traceback.walk_tb(caught.value.__traceback__)][1:]
    assert own
    assert "mint_secret" not in repr(own)


@pytest.mark.parametrize("name", ["proxy", "admin_key", "assistant_key"])
async def test_with_options_of_a_closed_session_shows_no_secret(session, name):
    """Its error is no mistake in an argument, so it keeps all its frames."""
    await session.close()
    with pytest.raises(StateError) as caught:
        session.with_options(**{name: "http://user:mint_secret@proxy.test"})
    own = [frame.f_locals for frame, _ in traceback.walk_tb(caught.value.__traceback__)][1:]
    assert own
    assert "mint_secret" not in repr(own)


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("history", "chat.messages"),
        ("send", "chat.ask"),
        ("clear", "chat.delete()"),
        ("reset", "chat.delete()"),
    ],
)
async def test_a_chat_of_another_library_is_answered(session, name, new):
    """The names that chats have elsewhere are an AttributeError that says what to write."""
    chat = session.conversation(fp="u")
    with pytest.raises(AttributeError) as missing:
        getattr(chat, name)
    assert new in str(missing.value)


async def test_other_names_are_pythons_own_error(session):
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        session.ask("q", colour=1)
    assert inspect.iscoroutinefunction(session.create_job)
    assert not inspect.iscoroutinefunction(session.ask)


async def test_for_and_with_say_that_they_are_async(session):
    job = await session.create_job("Fix it")
    reply = session.ask("q")
    with pytest.raises(TypeError, match="async with"), session:
        pass
    for iterable in (reply, reply.text_stream, as_completed([job])):
        with pytest.raises(TypeError, match="async for"):
            list(iterable)
    await reply.close()


async def test_jobs_one_by_one_and_records_as_handles(session):
    handle, other = await session.create_job("Fix it"), await session.create_job("And this")
    with pytest.raises(ConfigurationError) as caught:
        await wait_all(handle, other)
    assert caught.value.field == "timeout"  # where a type checker reports it, too
    record = await handle.refresh()
    for verb in ("send", "wait"):
        with pytest.raises(AttributeError, match=rf"session\.job\(job\)\.{verb}\(\)"):
            getattr(record, verb)
    assert not hasattr(record, "colour")
