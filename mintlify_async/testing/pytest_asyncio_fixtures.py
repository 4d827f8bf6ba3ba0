"""Service and session fixtures for tests run by pytest-asyncio: one pair per loop scope.

A service must live on the loop of its test, and pytest-asyncio chooses the loop of a fixture when the fixture
is defined.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Literal

import pytest_asyncio

if TYPE_CHECKING:
    from ..session import MintlifySession
    from .local_service import LocalService
    from .virtual_clock import VirtualClock

LoopScope = Literal["function", "class", "module", "package", "session"]


def _service(scope: LoopScope) -> Any:
    async def service(mintlify_clock: VirtualClock) -> AsyncGenerator[LocalService]:
        from .local_service import LocalService

        async with LocalService(clock=mintlify_clock) as running:
            yield running

    return pytest_asyncio.fixture(service, loop_scope=scope, name=f"_mintlify_asyncio_{scope}_service")


def _session(scope: LoopScope) -> Any:
    async def session(mintlify_service: LocalService) -> AsyncGenerator[MintlifySession]:
        async with mintlify_service.session() as one:
            yield one

    return pytest_asyncio.fixture(session, loop_scope=scope, name=f"_mintlify_asyncio_{scope}_session")


function_service, function_session = _service("function"), _session("function")
class_service, class_session = _service("class"), _session("class")
module_service, module_session = _service("module"), _session("module")
package_service, package_session = _service("package"), _session("package")
session_service, session_session = _service("session"), _session("session")
