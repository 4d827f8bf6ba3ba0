"""The sealed thread: what a page holds opens for its user only, unchanged, and for a time."""

from __future__ import annotations

import copy
import pickle
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from mintlify_async.contrib.relay import SealError, ThreadSeal
from mintlify_async.errors import ConfigurationError
from mintlify_async.model.thread import Thread

SECRET = "an old secret of more than thirty-two characters"
NEW_SECRET = "a new secret of more than thirty-two characters"
THREAD = Thread("thr_1", "key_1")


class WallClock:
    """Only the wall clock of a clock, set by hand."""

    def __init__(self, at: float = 1_700_000_000.0) -> None:
        self.at = at

    def wall(self) -> float:
        return self.at


def sealed(*secrets: str, clock: WallClock | None = None, ttl: float = 100) -> ThreadSeal:
    return ThreadSeal(secrets or [SECRET], ttl=ttl, clock=clock or WallClock())


def reason(seal: ThreadSeal, token: str, user: str = "ada") -> str:
    with pytest.raises(SealError) as caught:
        seal.open(token, user)
    return caught.value.reason


def test_a_seal_opens_for_its_user():
    """The thread comes back whole, its key included."""
    seal = sealed()
    assert seal.open(seal.seal(THREAD, "ada"), "ada") == THREAD
    assert seal.open(seal.seal(Thread("thr_2"), "ada"), "ada") == Thread("thr_2")


def test_a_seal_shows_nothing():
    """Neither the thread nor the user can be read off, and no two seals are alike."""
    seal = sealed()
    tokens = {seal.seal(THREAD, "ada_lovelace") for _ in range(5)}
    assert len(tokens) == 5
    for token in tokens:
        assert "thr_1" not in token
        assert "key_1" not in token
        assert "ada_lovelace" not in token


def test_another_users_seal_is_foreign():
    """The user is inside: to lend a seal is of no use."""
    seal = sealed()
    assert reason(seal, seal.seal(THREAD, "ada"), "bob") == "foreign"


def test_another_sites_seal_is_foreign():
    """The site is inside, too: its service's address and its domain."""
    seal = sealed()
    here = seal.at("https://api.example", "acme")
    token = here.seal(THREAD, "ada")
    assert here.open(token, "ada") == THREAD
    assert seal.at("https://api.example", "acme").open(token, "ada") == THREAD
    for base_url, domain in (("https://api.example", "other"), ("https://eu.example", "acme"), ("", "")):
        assert reason(seal.at(base_url, domain), token) == "foreign"
    assert reason(seal, token) == "foreign"


def test_a_pseudonym_names_one_user():
    """Always the same, another one with another first secret, and of one length."""
    seal, other = sealed(), sealed(NEW_SECRET)
    users = ["ada", "ada@example.com", "Ada", "a" * 10_000, "\u00e9", "\ud83d"]
    names = [seal.pseudonym(user) for user in users]
    assert names == [sealed(SECRET, NEW_SECRET).pseudonym(user) for user in users]
    assert len({*names, *map(other.pseudonym, users)}) == 2 * len(users)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", name)


@pytest.mark.parametrize("user", ["ada", "bob"])
def test_an_expired_seal_says_so(user):
    """A seal can be opened until its last second, and not after it."""
    clock = WallClock()
    seal = sealed(clock=clock)
    token = seal.seal(THREAD, "ada")
    clock.at += 99
    assert seal.open(token, "ada") == THREAD
    clock.at += 1
    assert reason(seal, token, user) == "expired"


def test_every_changed_character_is_noticed():
    """Also where Base64 has room to spare: a token is spelled one way."""
    seal = sealed()
    token = seal.seal(THREAD, "ada")
    alphabet = string.ascii_letters + string.digits + "-_"
    for place, letter in enumerate(token):
        for other in ("A", "B", "_", alphabet[(alphabet.find(letter) + 1) % len(alphabet)]):
            if other != letter:
                assert reason(seal, token[:place] + other + token[place + 1 :]) == "changed"


@pytest.mark.parametrize(
    "spoil", ["{}!", "{} ", "\n{}", "{}=", "é{}", "", "thr_1", "=", "A", "AAAA", "{0}" * 300]
)
def test_what_is_no_seal_of_ours_is_refused(spoil):
    """Stray characters that a Base64 decoder overlooks, too."""
    seal = sealed()
    assert reason(seal, spoil.format(seal.seal(THREAD, "ada"))) == "changed"


@given(st.text(max_size=300))
def test_any_text_is_refused_quietly(text):
    """Whatever a page sends, the answer is a reason and no other error."""
    assert reason(sealed(), text) == "changed"


def test_secrets_rotate():
    """The first secret seals, all of them open."""
    old, both, new = sealed(SECRET), sealed(NEW_SECRET, SECRET), sealed(NEW_SECRET)
    assert both.open(old.seal(THREAD, "ada"), "ada") == THREAD
    assert new.open(both.seal(THREAD, "ada"), "ada") == THREAD
    assert reason(new, old.seal(THREAD, "ada")) == "changed"


@pytest.mark.parametrize("secrets", [[], ["short"], SECRET, [SECRET, ""], [SECRET, None], [b"x" * 40]])
def test_bad_secrets_are_refused_at_once(secrets):
    """The field is named, and no secret is repeated."""
    with pytest.raises(ConfigurationError) as caught:
        ThreadSeal(secrets)
    assert caught.value.field == "secrets"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf")])
def test_a_seal_lives_for_some_time(ttl):
    """Seconds, and at least one."""
    with pytest.raises(ConfigurationError) as caught:
        ThreadSeal([SECRET], ttl=ttl)
    assert caught.value.field == "seal_ttl"


def test_the_secrets_stay_inside():
    """Not in the repr, not in a pickle."""
    seal = sealed()
    assert SECRET not in repr(seal)
    with pytest.raises(TypeError):
        pickle.dumps(seal)
    assert copy.copy(seal) is seal
    assert copy.deepcopy(seal) is seal
