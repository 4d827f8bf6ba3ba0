"""HTTP endpoints under ``/_local``, with which tests in other languages inspect and script the service.

Python tests use the attributes of ``LocalService``; a Node or Go test that talks to ``serve`` uses these.
They are not part of the service's interface and need no key.

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

from ..errors import ConfigurationError
from .http_answer import Answer, json_answer
from .local_jobs import LocalJob, LocalJobs
from .request_log import RecordedRequest, RequestLog
from .script import Script
from .script_file import queue_answers

PREFIX = "/_local"


def inspect(
    method: str, path: str, body: bytes, *, requests: RequestLog, script: Script, jobs: LocalJobs
) -> Answer:
    """Return the answer to a request under the prefix."""
    match method, path.removeprefix(PREFIX):
        case "GET", "/requests":
            return json_answer(200, [_request_document(request) for request in requests])
        case "GET", "/jobs":
            return json_answer(200, [_job_document(job) for job in jobs.values()])
        case "POST", "/script":
            return _queue(body, script)
        case "DELETE", "":
            requests.clear()
            script.clear()
            return Answer(status=204)
        case _:
            return json_answer(404, {"error": f"no such inspection endpoint: {method} {path}"})


def _queue(body: bytes, script: Script) -> Answer:
    try:
        rules = queue_answers(json.loads(body), script)
    except (ConfigurationError, ValueError) as error:
        return json_answer(400, {"error": str(error)})
    return json_answer(200, {"queued": len(rules)})


def _request_document(request: RecordedRequest) -> dict[str, Any]:
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


def _job_document(job: LocalJob) -> dict[str, Any]:
    return {**job.record(), "prompts": job.prompts, "diff": job.diff}
