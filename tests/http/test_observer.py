"""Observers and hooks: when they are called, and what their errors do."""

from __future__ import annotations

import sys

import pytest
from secret_guard import Keys

from mintlify_async import APIConnectionError, MintlifySession, RetryPolicy

KEYS = Keys()


async def test_hooks_are_called_outside_of_any_error():
    """Hooks run outside of any except block, so that their errors have no context of ours."""
    contexts = []
    async with MintlifySession(
        domain="acme",
        assistant_key=KEYS.assistant,
        base_url="http://127.0.0.1:9",
        retry=RetryPolicy(attempts=1),
        on_response=lambda event: contexts.append(sys.exc_info()),
    ) as session:
        with pytest.raises(APIConnectionError):
            await session.ask("x")
    assert contexts == [(None, None, None)]


async def test_an_observer_that_fails_does_not_lock_the_reply(service):
    """Each try to read raises the observer's error, and none says that another task reads."""

    class Observer:
        def start(self, operation, facts):
            raise ValueError("mine")

    async with service.session(observer=Observer()) as session:
        reply = session.ask("x")
        for _ in range(2):
            with pytest.raises(ValueError, match="mine"):
                await anext(reply)
