"""Time, service and session fixtures for tests run by pytest-asyncio, one set per loop scope.

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
    from .loop_time import VirtualTime

LoopScope = Literal["function", "class", "module", "package", "session"]


def _time(scope: LoopScope) -> Any:
    async def time() -> AsyncGenerator[VirtualTime | None]:
        from .loop_time import virtual_time_if_possible

        with virtual_time_if_possible() as virtual:
            yield virtual

    return pytest_asyncio.fixture(time, loop_scope=scope, name=f"_mintlify_asyncio_{scope}_time")


def _service(scope: LoopScope) -> Any:
    async def service() -> AsyncGenerator[LocalService]:
        from .local_service import LocalService

        async with LocalService() as running:
            yield running

    return pytest_asyncio.fixture(service, loop_scope=scope, name=f"_mintlify_asyncio_{scope}_service")


def _session(scope: LoopScope) -> Any:
    async def session(mintlify_service: LocalService) -> AsyncGenerator[MintlifySession]:
        async with mintlify_service.session() as one:
            yield one

    return pytest_asyncio.fixture(session, loop_scope=scope, name=f"_mintlify_asyncio_{scope}_session")


function_time, class_time, module_time = _time("function"), _time("class"), _time("module")
package_time, session_time = _time("package"), _time("session")
function_service, function_session = _service("function"), _session("function")
class_service, class_session = _service("class"), _session("class")
module_service, module_session = _service("module"), _session("module")
package_service, package_session = _service("package"), _session("package")
session_service, session_session = _service("session"), _session("session")
