"""A local service for tests that start event loops themselves."""

from __future__ import annotations

import asyncio
import threading

from mintlify_async.testing import LocalService


class Served:
    """A local service on its own loop and thread, for tests that start loops themselves."""

    def __enter__(self):
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._ready.wait()
        return self

    async def _serve(self):
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        async with LocalService() as self.service:
            self._ready.set()
            await self._stop.wait()

    def __exit__(self, *error):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
