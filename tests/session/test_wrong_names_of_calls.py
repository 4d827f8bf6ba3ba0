"""What people write by habit, from other clients: one line says what to write here, and nothing is sent."""

from __future__ import annotations

import inspect
import traceback

import pytest

from mintlify_async import ConfigurationError, MintlifySession, StateError, as_completed, wait_all


def test_a_subclass_may_have_an_argument_of_that_name():
    class Ours(MintlifySession):
        def __init__(self, api_key: str) -> None:
            super().__init__(admin_key=api_key)

    assert not Ours(api_key="mint_0123456789").closed


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
