"""A bare HTTP client of the local service, for the tests of what the service sends and records."""

from __future__ import annotations

import json

import aiohttp
import pytest
from yarl import URL

from mintlify_async.testing import LocalService

JOBS = "/v2/agent/acme/job"
ASK = "/discovery/v2/assistant/acme-docs/message"


class Client:
    """A bare client: four calls, no rules of its own. Each returns the status, the body and the headers."""

    def __init__(self, service, http):
        self.service, self.http = service, http

    def request(self, method, path, key=None, **kwargs):
        """Return aiohttp's request, for a test that reads the response itself."""
        headers = {"Authorization": f"Bearer {key or self.service.admin_key}"} | kwargs.pop("headers", {})
        url = URL(self.service.base_url + path, encoded=True)
        return self.http.request(method, url, headers=headers, **kwargs)

    async def call(self, method, path, key=None, **kwargs):
        async with self.request(method, path, key, **kwargs) as response:
            text = await response.text()
        body = json.loads(text) if text.startswith(("{", "[")) else text
        return response.status, body, response.headers

    async def create(self, prompt="Fix the typos", **kwargs):
        return await self.call("POST", JOBS, json={"prompt": prompt}, **kwargs)

    async def look(self, job_id="job_1", **kwargs):
        return (await self.call("GET", f"{JOBS}/{job_id}", **kwargs))[:2]

    async def send(self, prompt="And the guide", job_id="job_1", **kwargs):
        return await self.call("POST", f"{JOBS}/{job_id}/message", json={"prompt": prompt}, **kwargs)

    async def ask(self, *questions, key=None, **body):
        messages = [
            {"id": f"m{number}", "role": "user", "parts": [{"type": "text", "text": text}]}
            for number, text in enumerate(questions)
        ]
        body = {"fp": "anonymous", "messages": messages} | body
        return await self.call("POST", ASK, key or self.service.assistant_key, json=body)


@pytest.fixture
async def make(virtual):
    """Start services with other settings; each gets a client."""
    open_now = []

    async def start(**settings):
        service = await LocalService(**settings).__aenter__()
        timeout = aiohttp.ClientTimeout(total=3600)  # only against a broken test, which would not end
        http = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
        open_now.append((service, http))
        return Client(service, http)

    yield start
    for service, http in open_now:
        await http.close()
        await service.stop()


@pytest.fixture
async def client(make):
    return await make()


@pytest.fixture
async def service(client):
    """The service of ``client``."""
    return client.service
