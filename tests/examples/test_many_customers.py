"""The example of many customers: each request has its own customer's domain, key and user."""

from __future__ import annotations

import sys
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, Request

from mintlify_async import MemoryStore, MintlifySession, Quota, QuotaExceededError
from mintlify_async.testing import Customer, LocalService
from tests.support.child_process import ROOT, child_environment, run_to_end

httpx = pytest.importorskip("httpx", reason="httpx is not installed")
pytestmark = pytest.mark.real

KEYS = {"acme": "mint_dsc_of_acme_0123456789", "globex": "mint_dsc_of_globex_0123456789"}


@pytest.fixture
async def service():
    customers = [Customer(name, assistant_key=key) for name, key in KEYS.items()]
    async with LocalService(customers=customers) as service:
        yield service


async def test_each_customer_has_its_own_key(service):
    """Domain and key belong together in every request; links lead to the customer's own address."""
    keys = {f"CUSTOMER_KEY_{name.upper()}": key for name, key in KEYS.items()}
    env = child_environment(service, MINTLIFY_ASSISTANT_API_KEY=None, MINTLIFY_DOMAIN=None, **keys)
    program = str(ROOT / "examples" / "many_customers.py")
    output = await run_to_end(sys.executable, program, "How do I install it?", env=env)
    assert "# acme" in output
    assert "](https://help.globex.com/" in output
    seen = {
        request.params["domain"]: (request.key, request.json["fp"]) for request in service.requests.of("ask")
    }
    assert seen == {f"{name}-docs": (key, f"{name}-1") for name, key in KEYS.items()}


ACME, BETA = Customer("acme"), Customer("beta")
OPTIONS = ("project_id", "domain", "admin_key", "assistant_key")


def sync_dependency(request: Request, customer: str) -> MintlifySession:
    settings = {"acme": ACME, "beta": BETA}[customer]
    return request.app.state.session.with_options(**{name: getattr(settings, name) for name in OPTIONS})


async def async_dependency(request: Request, customer: str) -> MintlifySession:
    return sync_dependency(request, customer)


async def test_two_customers_in_one_app():
    """In sync and async dependencies, each has its key, its quota, and its own jobs in one ledger."""
    app = FastAPI()
    quota = Quota(create_job=1, ask_per_key=2, ask_per_organization=None, ask_per_address=None)

    @app.get("/ask")
    async def ask(session: Annotated[MintlifySession, Depends(sync_dependency)], user: str) -> str:
        return (await session.ask("How do I log in?", fp=user)).text

    @app.post("/jobs")
    async def create(
        session: Annotated[MintlifySession, Depends(async_dependency)], customer: str, name: str
    ) -> str:
        return (await session.create_job("Fix it", dedupe_key=f"{customer} {name}")).id

    async with (
        LocalService(customers=[ACME, BETA]) as service,
        service.session(ledger=MemoryStore(), quota=quota) as app.state.session,
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://web") as client,
    ):
        for customer in ("acme", "beta", "acme", "beta"):
            assert (await client.get("/ask", params={"customer": customer, "user": "1"})).status_code == 200
        jobs = []
        for customer in ("acme", "beta", "acme", "beta"):  # the second time is the same job, and uses no slot
            jobs.append((await client.post("/jobs", params={"customer": customer, "name": "typos"})).json())
        assert jobs == ["job_1", "job_2"] * 2
        for path, method in (("/ask", client.get), ("/jobs", client.post)):
            with pytest.raises(QuotaExceededError):
                await method(path, params={"customer": "acme", "user": "1", "name": "more"})
    keys = {(request.operation, *request.params.values(), request.key) for request in service.requests}
    assert keys == {
        ("ask", ACME.domain, ACME.assistant_key),
        ("ask", BETA.domain, BETA.assistant_key),
        ("create_job", "acme", ACME.admin_key),
        ("create_job", "beta", BETA.admin_key),
    }
