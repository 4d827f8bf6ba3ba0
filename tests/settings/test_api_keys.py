"""API keys: where they come from, which kinds there are, and what no header may hold."""

from __future__ import annotations

import pytest

from mintlify_async import Assumptions, ConfigurationError, MintlifySession
from tests.support.secret_guard import Keys

KEYS = Keys()
PLACE = {"project_id": "p", "domain": "d"}


def authorized(service):
    return [request.headers["authorization"].removeprefix("Bearer ") for request in service.requests]


async def refused(kind, session, match="_key "):
    """Make the call that needs the key of *kind*, and see that it is refused with the field's name."""
    with pytest.raises(ConfigurationError, match=match) as caught:
        await (session.create_job("x") if kind == "admin" else session.ask("x"))
    assert caught.value.field == f"{kind}_key"


@pytest.mark.parametrize(
    ("admin", "assistant"), [(KEYS.assistant, KEYS.admin), (KEYS.other_product, KEYS.other_product)]
)
async def test_the_wrong_kind_of_key_is_caught_before_sending(service, admin, assistant):
    """An admin key never reaches the assistant's address, nor the other way round."""
    async with service.session(admin_key=admin, assistant_key=assistant) as session:
        await refused("admin", session)
        await refused("assistant", session)
    assert not service.requests


BAD_KEYS = ["", "a b", "a\r\nX: 1", "a\n", "ключ", "é", "\x00", 7, b"x"]
FORMS = [" {}", "{}\n", '"{}"', "'{}'", "Bearer {}"]


@pytest.mark.parametrize("key", [*BAD_KEYS, *FORMS])
@pytest.mark.parametrize("kind", ["admin", "assistant"])
async def test_a_key_that_no_header_may_hold_is_refused(service, bare, kind, key):
    """At once from the argument and from its variable, and at the call from a function; it is not shown."""
    if key in FORMS:
        key = key.format(getattr(KEYS, kind))
    name, variable = f"{kind}_key", f"MINTLIFY_{kind.upper()}_API_KEY"
    with pytest.raises(ConfigurationError, match=f"^{name} ") as caught:
        MintlifySession(**{name: key})
    assert caught.value.field == name
    assert not isinstance(key, str) or not key.strip() or key not in str(caught.value)
    async with service.session(**{name: lambda: key}) as session:
        await refused(kind, session)
    if isinstance(key, str) and key.strip("\x00"):
        bare.setenv(variable, key)
        with pytest.raises(ConfigurationError, match=f"^{variable}: {name} ") as caught:
            MintlifySession()
        assert caught.value.field == name
    assert not service.requests


async def test_a_key_may_come_from_a_function_plain_or_async(service):
    """It is asked for each request, so that a key can be rotated."""
    keys = iter([KEYS.admin, KEYS.admin + "2"])

    async def rotate():
        return next(keys)

    async with service.session(admin_key=rotate) as session:
        for _ in range(2):
            with pytest.raises(Exception, match="401"):
                await session.create_job("x")
    assert authorized(service) == [KEYS.admin, KEYS.admin + "2"]


@pytest.mark.parametrize("kind", ["admin", "assistant"])
async def test_the_shared_variable_is_the_key_that_its_prefix_names(service, bare, kind):
    """``MINTLIFY_API_KEY`` is used for one of the two operations; the other says what it holds."""
    bare.setenv("MINTLIFY_API_KEY", getattr(KEYS, kind))
    async with MintlifySession(base_url=service.base_url, **PLACE) as session:
        with pytest.raises(Exception, match="401"):
            await (session.create_job("x") if kind == "admin" else session.ask("x"))
        other = "assistant" if kind == "admin" else "admin"
        await refused(other, session, f"MINTLIFY_API_KEY holds an {kind} key")
    assert authorized(service) == [getattr(KEYS, kind)]
    for form in FORMS[:4]:  # a prefix behind "Bearer" shows no kind: the variable is left alone
        bare.setenv("MINTLIFY_API_KEY", form.format(getattr(KEYS, kind)))
        with pytest.raises(ConfigurationError, match=f"^MINTLIFY_API_KEY: {kind}_key "):
            MintlifySession()


async def test_our_own_names_win_over_the_shared_variable(service, bare):
    """The argument first, then our variable; an empty variable counts as unset."""
    bare.setenv("MINTLIFY_API_KEY", KEYS.admin + "3")
    for argument, own in ((KEYS.admin + "1", "x"), (None, KEYS.admin + "2"), (None, "")):
        bare.setenv("MINTLIFY_ADMIN_API_KEY", own)
        async with MintlifySession(base_url=service.base_url, admin_key=argument, **PLACE) as session:
            with pytest.raises(Exception, match="401"):
                await session.create_job("x")
    assert authorized(service) == [f"{KEYS.admin}{number}" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("key", "words"),
    [(KEYS.other_product, "another product's key"), ("sk-1234567890", "not known"), ('"', "not known")],
)
async def test_a_shared_variable_of_another_kind_is_left_alone(service, bare, key, words):
    """It is no error by itself, and never sent; a missing key says what it is."""
    bare.setenv("MINTLIFY_API_KEY", key)
    async with MintlifySession(base_url=service.base_url, **PLACE) as session:
        for kind in ("admin", "assistant"):
            await refused(kind, session, f"MINTLIFY_API_KEY holds .*{words}")
    assert not service.requests


async def test_prefixes_can_be_corrected(service, bare):
    """``Assumptions`` says how keys begin, for the shared variable, too. An empty prefix accepts any key."""
    bare.setenv("MINTLIFY_API_KEY", "ml-admin-1234567890")
    for key, prefix in ((None, "ml-admin-"), (KEYS.assistant, "")):
        assumptions = Assumptions(admin_key_prefix=prefix)
        async with service.session(admin_key=key, assumptions=assumptions) as session:
            with pytest.raises(Exception, match="401"):
                await session.create_job("x")
    assert authorized(service) == ["ml-admin-1234567890", KEYS.assistant]
