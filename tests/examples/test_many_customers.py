"""The example of many customers: each request has its own customer's domain, key and user."""

from __future__ import annotations

import sys

import pytest

from mintlify_async.testing import Customer, LocalService
from tests.support.child_process import ROOT, child_environment, run_to_end

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


async def test_an_answer_that_the_service_ends_early_is_a_failure(service):
    """An `abort` raises no error, so the program looks at `aborted`, and exits with 1."""
    keys = {f"CUSTOMER_KEY_{name.upper()}": key for name, key in KEYS.items()}
    env = child_environment(service, MINTLIFY_ASSISTANT_API_KEY=None, MINTLIFY_DOMAIN=None, **keys)
    service.script.ask(events=[{"type": "start"}, {"type": "abort", "reason": "too long"}], times=None)
    program = str(ROOT / "examples" / "many_customers.py")
    with pytest.raises(AssertionError, match="status 1") as failed:
        await run_to_end(sys.executable, program, "How do I install it?", env=env)
    assert "the service ended it early" in str(failed.value)
    assert "# acme" not in str(failed.value)
