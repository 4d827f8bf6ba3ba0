"""HTTP endpoints under ``/_local``, with which tests in other languages inspect and script the service.

Python tests use the attributes of ``LocalService``; a Node or Go test that talks to ``serve`` uses
these. They are not part of the service's interface and need no key.

==========================  ==============================================================
``GET /_local/requests``    everything received, without keys
``GET /_local/jobs``        every job, with its prompts and its proposed edit
``POST /_local/script``     queues answers; the body is that of a script file
``DELETE /_local``          forgets what was received and what was queued
==========================  ==============================================================
"""

from __future__ import annotations

import json
from typing import Any

from attrs import frozen

from ..errors import ConfigurationError
from .http_answer import Answer, json_answer
from .local_jobs import LocalJob, LocalJobs
from .request_log import RecordedRequest, RequestLog
from .script import Script
from .script_file import queue_answers

__all__ = ["PREFIX", "Inspection"]

PREFIX = "/_local"


@frozen(kw_only=True)
class Inspection:
    """Answers requests under ``/_local``.

    Attributes:
        requests: The received requests.
        script: The scripted answers.
        jobs: The jobs.
    """

    requests: RequestLog
    script: Script
    jobs: LocalJobs

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Return the answer to a request under the prefix."""
        wanted = (method, path.removeprefix(PREFIX))
        if wanted == ("GET", "/requests"):
            return json_answer(200, [request_document(request) for request in self.requests])
        if wanted == ("GET", "/jobs"):
            return json_answer(200, [job_document(job) for job in self.jobs.values()])
        if wanted == ("POST", "/script"):
            return self._queue(body)
        if wanted == ("DELETE", ""):
            self.requests.clear()
            self.script.clear()
            return Answer(status=204)
        return json_answer(404, {"error": f"no such inspection endpoint: {method} {path}"})

    def _queue(self, body: bytes) -> Answer:
        try:
            rules = queue_answers(json.loads(body), self.script)
        except (ConfigurationError, ValueError) as error:
            return json_answer(400, {"error": str(error)})
        return json_answer(200, {"queued": len(rules)})


def request_document(request: RecordedRequest) -> dict[str, Any]:
    headers = {name: value for name, value in request.headers.items() if name != "authorization"}
    return {
        "operation": request.operation,
        "method": request.method,
        "path": request.path,
        "headers": headers,
        "json": request.json,
        "status": request.status,
        "finished": request.finished,
        "clientLeft": request.client_left,
    }


def job_document(job: LocalJob) -> dict[str, Any]:
    return {**job.record(), "prompts": job.prompts, "diff": job.diff}
