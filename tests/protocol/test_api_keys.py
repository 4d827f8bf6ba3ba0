"""API keys: where they come from, which kinds there are, and what no header may hold."""

from __future__ import annotations

import pytest

from mintlify_async import Assumptions, ConfigurationError, MintlifySession
from tests.support.secret_guard import Keys
from tests.support.wire_kit import ASK, JOB, STREAM, sent

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
    """An empty prefix accepts any key, in case the prefixes change."""
    web.post("https://api.mintlify.com/v2/agent/p/job", payload=JOB)
    assumptions = Assumptions(admin_key_prefix="")
    async with MintlifySession(project_id="p", admin_key=KEYS.assistant, assumptions=assumptions) as session:
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


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (" {}", "begins or ends with a blank or a line break; remove it"),
        ("{}\n", "begins or ends with a blank or a line break; remove it"),
        ('"{}"', "has quotation marks around it; leave them out"),
        ("'{}'", "has quotation marks around it; leave them out"),
        ("Bearer {}", "begins with the word Bearer, which the package adds; leave it out"),
    ],
)
@pytest.mark.parametrize("kind", ["admin", "assistant"])
async def test_a_key_that_was_copied_badly_is_refused_at_once(web, bare, kind, form, says):
    """From the argument, from its variable, from the shared one; a function's at the call."""
    key = form.format(getattr(KEYS, kind))
    with pytest.raises(ConfigurationError, match=f"^{kind}_key {says}"):
        MintlifySession(**{f"{kind}_key": key})
    async with MintlifySession(**{f"{kind}_key": lambda: key}, project_id="p", domain="d") as session:
        with pytest.raises(ConfigurationError, match=f"^{kind}_key {says}"):
            await (session.create_job("x") if kind == "admin" else session.ask("x"))
    variables = [f"MINTLIFY_{kind.upper()}_API_KEY"]
    if not form.startswith("Bearer"):  # its prefix shows no kind: the shared variable is left alone
        variables.append("MINTLIFY_API_KEY")
    for variable in variables:
        bare.setenv(variable, key)
        with pytest.raises(ConfigurationError, match=f"^{variable}: {kind}_key {says}") as caught:
            MintlifySession()
        assert caught.value.field == f"{kind}_key"
        bare.delenv(variable)
    assert not web.requests


@pytest.mark.parametrize("kind", ["admin", "assistant"])
async def test_the_shared_variable_is_the_key_that_its_prefix_names(web, bare, kind):
    """``MINTLIFY_API_KEY`` is used for one of the two operations; the other says what it holds."""
    bare.setenv("MINTLIFY_API_KEY", getattr(KEYS, kind))
    web.post("https://api.mintlify.com/v2/agent/p/job", payload=JOB)
    web.post(ASK, body=STREAM)
    async with MintlifySession(project_id="p", domain="acme-docs") as session:
        calls = {"admin": lambda: session.create_job("x"), "assistant": lambda: session.ask("x").run()}
        await calls.pop(kind)()
        ((other, call),) = calls.items()
        with pytest.raises(ConfigurationError) as caught:
            await call()
    variable = f"MINTLIFY_{other.upper()}_API_KEY"
    assert f"set {variable}; MINTLIFY_API_KEY holds an {kind} key" in str(caught.value)
    assert sent(web)["headers"]["Authorization"] == f"Bearer {getattr(KEYS, kind)}"
    assert len(web.requests) == 1


async def test_our_own_names_win_over_the_shared_variable(web, bare):
    """The argument first, then our variable; an empty variable counts as unset."""
    web.post("https://api.mintlify.com/v2/agent/p/job", payload=JOB, repeat=True)
    bare.setenv("MINTLIFY_API_KEY", KEYS.admin + "3")
    async with MintlifySession(project_id="p", admin_key=KEYS.admin + "1") as session:
        await session.create_job("x")
    for value in (KEYS.admin + "2", ""):
        bare.setenv("MINTLIFY_ADMIN_API_KEY", value)
        async with MintlifySession(project_id="p") as session:
            await session.create_job("x")
    seen = [sent(web, index)["headers"]["Authorization"] for index in range(3)]
    assert seen == [f"Bearer {KEYS.admin}{number}" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (KEYS.other_product, "another product's key"),
        ("sk-1234567890", "a key whose prefix is not known"),
        ('"', "a key whose prefix is not known"),
    ],
)
async def test_a_shared_variable_of_another_kind_is_left_alone(web, bare, key, words):
    """It is no error by itself, and never sent; a missing key says what it is."""
    bare.setenv("MINTLIFY_API_KEY", key)
    async with MintlifySession(project_id="p", domain="d") as session:
        for call in (session.create_job("x"), session.ask("x").run()):
            with pytest.raises(ConfigurationError, match=f"MINTLIFY_API_KEY holds {words}"):
                await call
    assert not web.requests


async def test_prefixes_that_were_corrected_count_for_the_shared_variable(web, bare):
    """``Assumptions`` says how keys begin."""
    bare.setenv("MINTLIFY_API_KEY", "ml-admin-1234567890")
    web.post("https://api.mintlify.com/v2/agent/p/job", payload=JOB)
    assumptions = Assumptions(admin_key_prefix="ml-admin-")
    async with MintlifySession(project_id="p", assumptions=assumptions) as session:
        await session.create_job("x")
