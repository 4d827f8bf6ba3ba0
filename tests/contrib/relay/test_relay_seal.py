"""The sealed thread: what a page holds opens for its user only, unchanged, and for a time."""

from __future__ import annotations

import itertools
import re
from string import ascii_letters, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from mintlify_async.contrib.relay.seal import SealError, ThreadSeal
from mintlify_async.errors import ConfigurationError
from mintlify_async.model.thread import Thread
from mintlify_async.runtime import clock

SECRET = "an old secret of more than thirty-two characters"
NEW_SECRET = "a new secret of more than thirty-two characters"
THREAD = Thread("thr_1", "key_1")


SITE = "https://api.example acme"
CHANGED = "changed or expired"
FOREIGN = "another user's or another site's"


def sealed(*secrets: str) -> ThreadSeal:
    return ThreadSeal(secrets or [SECRET])


def reason(seal: ThreadSeal, token: str, user: str = "ada", site: str = SITE) -> str:
    with pytest.raises(SealError) as caught:
        seal.open(token, user, site)
    return str(caught.value)


def test_a_seal_opens_for_its_user():
    """The thread comes back whole, its key included."""
    seal = sealed()
    assert seal.open(seal.seal(THREAD, "ada", SITE), "ada", SITE) == THREAD
    assert seal.open(seal.seal(Thread("thr_2"), "ada", SITE), "ada", SITE) == Thread("thr_2")


def test_a_seal_of_another_user_or_site_is_foreign():
    """Both are inside: to lend a seal is of no use. A site is its service's address and its domain."""
    seal = sealed()
    token = seal.seal(THREAD, "ada", SITE)
    assert reason(seal, token, "bob") == FOREIGN
    for site in ("https://api.example other", "https://eu.example acme", ""):
        assert reason(seal, token, site=site) == FOREIGN


def test_a_pseudonym_names_one_user():
    """Always the same, another one with another first secret, and of one length."""
    seal, other = sealed(), sealed(NEW_SECRET)
    users = ["ada", "ada@example.com", "Ada", "a" * 10_000, "\u00e9", "\ud83d"]
    names = [seal.pseudonym(user) for user in users]
    assert names == [sealed(SECRET, NEW_SECRET).pseudonym(user) for user in users]
    assert len({*names, *map(other.pseudonym, users)}) == 2 * len(users)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", name)


def test_an_expired_seal_does_not_open():
    """A seal can be opened for 30 days, and not after it."""
    seal, at = sealed(), 1_700_000_000.0
    with clock.read_from(lambda: at):
        token = seal.seal(THREAD, "ada", SITE)
        at += 30 * 24 * 3600
        assert seal.open(token, "ada", SITE) == THREAD
        at += 1
        assert reason(seal, token) == CHANGED


def token_padded_with(padding: str) -> str:
    """Return a token that ends with this padding, and has both characters that only URL-safe base64 has."""
    tokens = (sealed().seal(Thread("t" * length), "ada", SITE) for length in itertools.count(1, step=16))
    letters = "-_" + ascii_letters + digits
    return next(token for token in tokens if token.lstrip(letters) == padding and {"-", "_"} <= set(token))


@pytest.mark.parametrize("padding", ["", "=", "=="])
def test_a_changed_character_is_noticed(padding):
    """Wherever it is, the last one included, of which base64 does not use every bit."""
    seal, token = sealed(), token_padded_with(padding)
    for place in range(len(token)):
        other = "B" if token[place] == "A" else "A"
        assert reason(seal, token[:place] + other + token[place + 1 :]) == CHANGED


ODD = [*" \t\r\n\x00\x0b=+/*.,%", "==", "\u00e9", "\u0660", "\uff21", "\ud83d", "A", "AAAA"]


@pytest.mark.parametrize("odd", ODD, ids=ascii)
@pytest.mark.parametrize("padding", ["", "=", "=="])
def test_an_additional_character_is_noticed(padding, odd):
    """Python's decoder skips some characters, and warns about others. A token has one spelling only."""
    seal, token = sealed(), token_padded_with(padding)
    for place in (*range(0, len(token), 7), *range(len(token) - 4, len(token) + 1)):
        assert reason(seal, token[:place] + odd + token[place:]) == CHANGED


@pytest.mark.parametrize("padding", ["", "=", "=="])
def test_another_spelling_of_a_token_is_refused(padding):
    """The alphabet is the URL-safe one, the padding is complete, and a piece of a token is no token."""
    seal, token = sealed(), token_padded_with(padding)
    half = len(token) // 8 * 4
    spellings = {
        token.replace("-", "+"),
        token.replace("_", "/"),
        token.translate(str.maketrans("-_", "+/")),
        token.rstrip("=") + "=" * (len(padding) + 1),
        token.rstrip("=") + "=" * (len(padding) + 4),
        token[:half] + "====" + token[half:],
        token + token,
        token[:half],
        token[half:],
        token[1:],
        token[:-1],
        token.swapcase(),
        "",
        "=",
        "====",
        *([token.rstrip("=")] if padding else []),
    }
    assert {reason(seal, spelling) for spelling in spellings} == {CHANGED}


@given(st.integers(0, 400), st.text(min_size=1, max_size=8))
def test_any_text_in_a_token_is_noticed(place, text):
    """Whatever a page puts into its token."""
    seal = sealed()
    token = seal.seal(THREAD, "ada", SITE)
    assert reason(seal, token[:place] + text + token[place:]) == CHANGED


def test_secrets_rotate():
    """The first secret seals, all of them open."""
    old, both, new = sealed(SECRET), sealed(NEW_SECRET, SECRET), sealed(NEW_SECRET)
    assert both.open(old.seal(THREAD, "ada", SITE), "ada", SITE) == THREAD
    assert new.open(both.seal(THREAD, "ada", SITE), "ada", SITE) == THREAD
    assert reason(new, old.seal(THREAD, "ada", SITE)) == CHANGED


@pytest.mark.parametrize("secrets", [[], ["short"], SECRET, [SECRET, ""], [SECRET, None], [b"x" * 40]])
def test_bad_secrets_are_refused_at_once(secrets):
    """The field is named, and no secret is repeated."""
    with pytest.raises(ConfigurationError) as caught:
        ThreadSeal(secrets)
    assert caught.value.field == "secrets"
    assert SECRET not in str(caught.value)
