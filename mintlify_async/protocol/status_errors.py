"""The errors for refusals of the service (401, 404, 429, 5xx …), their texts, and the meaning of a status."""

from __future__ import annotations

from urllib.parse import urlsplit

from ..errors import (
    APIStatusError,
    AuthenticationError,
    BadRequestError,
    ConflictError,
    NotFoundError,
    PaymentRequiredError,
    PermissionDeniedError,
    RateLimitError,
    ServerError,
    UnexpectedResponseError,
    printable,
)
from ..model.operation import ASK, CREATE_JOB, GET_JOB, SEND_MESSAGE
from ..model.secret import mask_text
from ..settings.paths_and_headers import Assumptions
from .failure_words import is_web_page, server_words
from .requests import Call
from .responses import WEB_PAGE, WholeResponse, response_info, unexpected_response

_BY_STATUS: dict[int, type[APIStatusError]] = {
    400: BadRequestError,
    401: AuthenticationError,
    402: PaymentRequiredError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    422: BadRequestError,
    429: RateLimitError,
}
_HINTS = {
    401: "the key is wrong or has expired; make a new one on the API keys page of the dashboard",
    402: "the credits are used up; see the dashboard",
    403: "the key lacks the scope for this, or this IP address is not on its allow-list",
    429: "a limit of the service is used up",
}


def status_error(
    assumptions: Assumptions, call: Call, answer: WholeResponse, retry_after: float | None
) -> APIStatusError | UnexpectedResponseError:
    """Return the error for *answer*, whose status is not a success."""
    body, info = mask_text(answer.text), response_info(assumptions, answer.status, answer.headers)
    if answer.status < 200:
        return unexpected_response(f"{call.operation}: status {answer.status} is not an answer", answer, info)
    words = server_words(body)
    hint = _hint(call, answer)
    if is_web_page(body) and not 300 <= answer.status < 400:
        hint = f"{WEB_PAGE} If not, {hint}" if hint else WEB_PAGE
    message = f"{call.operation}: {answer.status}"
    message += f" ({hint})" if hint else ""
    message += f": {words}" if words else ""
    if answer.status == 429 and retry_after is not None:
        message += f"; retry after {retry_after:g} s"
    return status_error_class(answer.status)(
        message,
        status=answer.status,
        body=body,
        headers=dict(info.headers),
        request_id=info.request_id,
        retry_after=retry_after,
        operation=call.operation.name,
    )


def status_error_class(status: int) -> type[APIStatusError]:
    """Return the error class for an HTTP status."""
    if 500 <= status <= 599:
        return ServerError
    return _BY_STATUS.get(status, APIStatusError)


def _hint(call: Call, answer: WholeResponse) -> str:
    if 300 <= answer.status < 400 and "location" in answer.headers:
        host = _host_of(answer.headers["location"]) or "the same host"
        return f"a redirect to {printable(host, 80)}, which is never followed: check base_url"
    if answer.status == 404:
        if call.thread is not None and call.thread.key is None:
            return (
                "the question named a thread without its key, which the service answers with 404; "
                "the key comes once, with the thread's first answer: keep reply.thread, not its id alone"
            )
        return _MISSING[call.operation]
    return _HINTS.get(answer.status, "")


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


_NO_JOB = "no such job in this project: check the job's id and project_id="
_MISSING = {
    ASK: "no such domain, or no such thread: check domain=",
    CREATE_JOB: "no such project: check project_id=",
    SEND_MESSAGE: _NO_JOB,
    GET_JOB: f"{_NO_JOB}; this path is assumed, and Assumptions(get_job_path=…) changes it",
}
"""Maps each operation to the possible meaning of a 404."""
