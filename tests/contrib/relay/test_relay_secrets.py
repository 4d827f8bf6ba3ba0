"""Every byte between page, app and service is searched for what must not be in it."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("fastapi")

from relay_desk import HEAD, TURN, Desk, desk
from relay_kit import pseudonym, thread_token, user_message

from mintlify_async.testing import ThreadStyle, faults

USER = "ada.lovelace@example.com"
PLACES = ["header", "finish", "metadata", "data"]


async def day(here: Desk) -> None:
    """Ask, go on, be refused, be cut, and see errors that tell more than they should."""
    script, page = here.service.script, here.page
    first = await page.ask(user_message("How do I log in?"))
    token = thread_token(first)
    await page.ask(user_message("And by SSO?"), threadId=token)
    (thread,) = here.service.threads.values()
    leaks = f"{here.service.assistant_key} {thread.id} {thread.key}"
    tool = {"toolCallId": "c", "toolName": "t", "input": {"thread": thread.id}}
    script.ask(
        events=[
            *HEAD,
            {"type": "tool-input-available", **tool},
            {"type": "tool-output-error", "toolCallId": "c", "errorText": f"refused: {leaks}"},
            {"type": "source-url", "sourceId": thread.id, "url": f"/a?key={here.service.assistant_key}"},
            {"type": "data-x", "data": {"threadId": thread.id, "note": [leaks]}},
            {"type": "next-years", "key": here.service.assistant_key, thread.id: 1},
            {"type": "error", "errorText": leaks},
        ]
    )
    await page.ask(user_message("q"), threadId=token)
    script.ask(fault=faults.Cut(-120))
    await page.ask(user_message("q"), threadId=token)
    for status in (400, 401, 404, 429, 500):
        script.ask(status=status, json={"message": leaks}, headers={"Retry-After": "9"})
        if status == 404:  # the thread may be lost: the question is asked again without it
            script.ask(status=status)
        assert (await page.post({"messages": [user_message("q")], "threadId": token}))[0] != 200
    for body in ({"messages": []}, b"{"):
        assert (await page.post(body))[0] == 400
    script.ask(events=TURN)
    await page.ask(user_message("q"), threadId=f"{token}x")
    script.ask(events=TURN)
    await page.ask(user_message("q"), threadId=token)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", ["safe", "modern"])
async def test_page_traffic_holds_no_secret(place, mode, caplog):
    """Neither the key, nor a thread's id or key, nor the user's own name crosses; the log has no secret."""
    style = ThreadStyle(id_in={place}, key_in={place})
    async with desk(service={"threads": style}, mode=mode, user=lambda request: USER) as here:
        await day(here)
        (thread, *_) = here.service.threads.values()
        keys = [here.service.assistant_key, here.service.admin_key, thread.key or thread.id]
        seen = here.page.seen
        assert len(seen) > 5_000
        assert [secret for secret in (*keys, thread.id, USER) if secret.encode() in seen] == []
        assert [key for key in keys[:2] if key in caplog.text] == []


async def test_the_service_does_not_learn_who_asks():
    """All that goes upstream, in any request, names the user by the pseudonym alone."""
    async with desk(user=lambda request: USER) as here:
        await day(here)
        assert {request.json["fp"] for request in here.service.requests} == {pseudonym(USER)}
        for request in here.service.requests:
            sent = json.dumps([request.path, dict(request.headers), request.json])
            assert "lovelace" not in sent
