"""API keys: where they come from, which kinds there are, and what no header may hold."""

from __future__ import annotations

import pytest
from secret_guard import Keys
from wire_kit import JOB, sent

from mintlify_async import ConfigurationError, MintlifySession

KEYS = Keys()


@pytest.mark.parametrize(
    ("admin", "assistant"),
    [
        (KEYS.assistant, KEYS.admin),
        (KEYS.other_product, KEYS.other_product),
    ],
)
async def test_the_wrong_kind_of_key_is_caught_before_sending(web, admin, assistant):
    """An admin key never reaches the assistant's address, nor the other way round."""
    async with MintlifySession(
        project_id="p", domain="d", admin_key=admin, assistant_key=assistant
    ) as session:
        with pytest.raises(ConfigurationError, match="admin key") as caught:
            await session.create_job("x")
        assert caught.value.field == "admin_key"
        with pytest.raises(ConfigurationError, match="assistant key") as caught:
            await session.ask("x")
        assert caught.value.field == "assistant_key"
    assert not web.requests


async def test_the_check_of_kinds_can_be_switched_off(web):
    """check_key_kind=False accepts any key, in case the prefixes change."""
    web.post("https://api.mintlify.com/v2/agent/p/job", payload=JOB)
    async with MintlifySession(project_id="p", admin_key=KEYS.assistant, check_key_kind=False) as session:
        await session.create_job("x")


@pytest.mark.parametrize("key", ["", "a b", "a\r\nX: 1", "a\n", "ключ", "é", "\x00", 7, b"x"])
@pytest.mark.parametrize("which", ["admin_key", "assistant_key"])
def test_a_key_that_no_header_may_hold_is_refused_at_once(which, key):
    """The message does not repeat it."""
    with pytest.raises(ConfigurationError) as caught:
        MintlifySession(**{which: key})
    assert caught.value.field == which
    assert not isinstance(key, str) or not key.strip() or key not in str(caught.value)


@pytest.mark.parametrize("returned", [7, "", "a\nb", None])
async def test_a_key_from_a_function_is_checked_when_it_is_used(web, returned):
    """A key that a function returns is checked like a given one."""
    async with MintlifySession(project_id="p", admin_key=lambda: returned) as session:
        with pytest.raises(ConfigurationError) as caught:
            await session.create_job("x")
    assert caught.value.field == "admin_key"
    assert not web.requests


async def test_a_key_may_come_from_a_function_plain_or_async(web):
    """It is asked for each request, so that a key can be rotated."""
    keys = iter([KEYS.admin, KEYS.admin + "2"])

    async def rotate():
        return next(keys)

    web.post("https://api.mintlify.com/v2/agent/p/job", payload=JOB, repeat=True)
    async with MintlifySession(project_id="p", admin_key=rotate) as session:
        await session.create_job("x")
        await session.create_job("x")
    seen = [sent(web, index)["headers"]["Authorization"] for index in (0, 1)]
    assert seen == [f"Bearer {KEYS.admin}", f"Bearer {KEYS.admin}2"]
