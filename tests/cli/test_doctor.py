"""``doctor``: a mark for each check, and status 1 when something is missing or wrong."""

from __future__ import annotations

import re
from importlib import metadata

import pytest

from tests.support.command_line import run

NOTHING = "http://127.0.0.1:9"


async def doctor(service, *arguments, **env):
    """Run the command; return its status and its marks with their lines."""
    ended = await run("doctor", *arguments, service=service, **env)
    *lines, summary = ended.out.splitlines()
    assert summary
    assert all(re.match(r"(ok|missing|wrong|warning|-) +\S", line) for line in lines), ended.out
    assert service.admin_key not in ended.out + ended.err
    assert service.assistant_key not in ended.out + ended.err
    assert {request.method for request in service.requests} <= {"GET"}
    return ended.status, [tuple(line.split(None, 1)) for line in lines]


async def test_all_is_right(service):
    """Settings, versions and the service have the mark ok; one GET is sent."""
    status, checks = await doctor(service)
    assert status == 0
    assert {mark for mark, _ in checks} - {"warning"} == {"ok", "-"}  # some versions of aiohttp have a flaw
    text = "\n".join(line for mark, line in checks if mark == "ok")
    for name in ("MINTLIFY_ADMIN_API_KEY", "MINTLIFY_PROJECT_ID", "MINTLIFY_ASSISTANT_API_KEY"):
        assert name in text
    assert f"aiohttp {metadata.version('aiohttp')}" in text
    assert service.base_url in text
    assert [request.method for request in service.requests] == ["GET"]


@pytest.mark.parametrize(
    ("env", "mark", "says"),
    [
        ({"MINTLIFY_ADMIN_API_KEY": "mint_dsc_test_0123"}, "wrong", "MINTLIFY_ADMIN_API_KEY"),
        ({"MINTLIFY_ASSISTANT_API_KEY": "mint_test_0123"}, "wrong", "MINTLIFY_ASSISTANT_API_KEY"),
        ({"MINTLIFY_ASSISTANT_API_KEY": "sk-0123"}, "wrong", "MINTLIFY_ASSISTANT_API_KEY"),
        ({"MINTLIFY_ASSISTANT_API_KEY": '"mint_dsc_0123"'}, "wrong", "MINTLIFY_ASSISTANT_API_KEY"),
        ({"MINTLIFY_ASSISTANT_API_KEY": None}, "missing", "MINTLIFY_ASSISTANT_API_KEY"),
        ({"MINTLIFY_ADMIN_API_KEY": None}, "missing", "MINTLIFY_ADMIN_API_KEY"),
        ({"MINTLIFY_DOMAIN": "https://acme.example"}, "wrong", "MINTLIFY_DOMAIN"),
        ({"MINTLIFY_DOMAIN": None}, "missing", "MINTLIFY_DOMAIN"),
        ({"MINTLIFY_PROJECT_ID": ".."}, "wrong", "MINTLIFY_PROJECT_ID"),
        ({"MINTLIFY_PROJECT_ID": "other"}, "wrong", "project other"),
        ({"MINTLIFY_BASE_URL": "ftp://x"}, "wrong", "MINTLIFY_BASE_URL"),
        ({"MINTLIFY_BASE_URL": NOTHING}, "wrong", NOTHING.removeprefix("http://")),
        ({"MINTLIFY_BASE_URL": NOTHING, "MINTLIFY_ADMIN_API_KEY": None}, "wrong", NOTHING),
        ({"MINTLIFY_ADMIN_API_KEY": "mint_test_expired_0123456789abcdef"}, "wrong", "401"),
    ],
)
async def test_what_is_missing_or_wrong_is_status_1(service, env, mark, says):
    """Each has its mark and its name."""
    status, checks = await doctor(service, **env)
    assert status == 1
    assert [line for check, line in checks if check == mark and says in line]


@pytest.mark.parametrize(("use", "absent"), [("jobs", "ASSISTANT"), ("questions", "ADMIN")])
async def test_only_one_use_can_be_checked(service, use, absent):
    """A worker needs no assistant key, and a chatbot no admin key."""
    status, checks = await doctor(service, use, **{f"MINTLIFY_{absent}_API_KEY": None})
    assert status == 0
    assert not [line for _, line in checks if absent in line]


async def test_one_variable_may_hold_either_key(service):
    """MINTLIFY_API_KEY counts where the key's own variable is unset."""
    env = {"MINTLIFY_ADMIN_API_KEY": None, "MINTLIFY_API_KEY": service.admin_key}
    assert (await doctor(service, "jobs", **env))[0] == 0


@pytest.mark.parametrize(("installed", "warned"), [("3.13.5", True), ("3.14.3", False)])
async def test_an_unsafe_aiohttp_is_a_warning(service, monkeypatch, installed, warned):
    """It names the flaw; the status stays."""
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: installed if name == "aiohttp" else version(name))
    status, checks = await doctor(service)
    assert status == 0
    assert bool([line for mark, line in checks if mark == "warning" and "GHSA" in line]) is warned
