"""Reads the service's responses: a job, the text of an error, the ids in the headers."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from attrs import define, field

from ..errors import APIStatusError, NotFoundError, UnexpectedResponseError, printable, status_error_class
from ..model.job_record import Job, job_without_keys
from ..model.operation import ASK, CREATE_JOB, GET_JOB, SEND_MESSAGE
from ..model.response_info import Headers, ResponseInfo
from ..model.strict_json import (
    EXCERPT_CHARACTERS,
    THREAD_KEY,
    DecodeProblem,
    decode_json,
    mask_keys,
    mask_text,
    whole_characters,
)
from ..model.wire_value import without_halves
from ..settings.assumptions import Assumptions
from .calls import Call
from .failure_words import is_web_page, server_words


@define(eq=False, repr=False, match_args=False)
class WholeResponse:
    """A complete response, with its status, its headers in lower case and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def is_success(self) -> bool:
        """Whether the service accepted the request. 101 does not say so."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text. JSON is UTF-8, so a declared charset is ignored."""
        return self.body.decode("utf-8", "replace").removeprefix("\ufeff")


def response_info(
    assumptions: Assumptions, status: int, headers: Mapping[str, str], attempts: int = 1, body: bytes = b""
) -> ResponseInfo:
    """Return the data of a response, with the thread's key masked in its headers."""
    safe_names = Headers(headers, assumptions.thread_key_header)
    id = request_id(assumptions, headers)
    return ResponseInfo(status=status, headers=safe_names, request_id=id, attempts=attempts, body=body)


def request_id(assumptions: Assumptions, headers: Mapping[str, str]) -> str | None:
    """Return the id by which the service's logs know a request, or None."""
    for name in assumptions.request_id_headers:
        if name in headers:
            return whole_characters(headers[name])  # bytes that are not UTF-8 come as halves of pairs
    return None


def read_job(
    assumptions: Assumptions, answer: WholeResponse, attempts: int = 1, *, id_is_enough: bool = False
) -> Job:
    """Return the job in *answer*, a success.

    Where *id_is_enough*, a job without a status has an empty one, because it was accepted and the next poll
    shows the rest.

    Raises:
        UnexpectedResponseError: The body is not a job.
    """
    text = answer.text
    # Only an escape can write the name of a key, or half of a surrogate pair, in another way.
    has_escapes = "\\" in text
    may_have_key = has_escapes or THREAD_KEY in text
    body = (mask_text(text) if may_have_key else text).encode()
    info = response_info(assumptions, answer.status, answer.headers, attempts, body)
    try:
        value = decode_json(text)
        if has_escapes and ("\\ud" in text or "\\uD" in text):
            value = without_halves(value)
        if may_have_key:
            value = mask_keys(value)
        if value.__class__ is dict:
            if id_is_enough and value.get("id") and isinstance(value["id"], str) and not value.get("status"):
                return Job(id=value["id"], status="", raw=info)
            return job_without_keys(value, info)
    except (DecodeProblem, UnexpectedResponseError):
        pass
    raise _unexpected(f"the answer ({answer.status}) is not a job", answer, info)


def _unexpected(message: str, answer: WholeResponse, info: ResponseInfo) -> UnexpectedResponseError:
    text = mask_text(answer.text)
    if is_web_page(text):
        message += f" ({_WEB_PAGE})"
    return UnexpectedResponseError(
        f"{message}: {printable(text) or 'it is empty'}",
        excerpt=text[:EXCERPT_CHARACTERS],
        status=answer.status,
        headers=info.headers,
        request_id=info.request_id,
    )


_WEB_PAGE = "a web page answered, not the API: a proxy or a firewall?"
_HINTS = {
    401: "the key is wrong or has expired; make a new one on the API keys page of the dashboard",
    402: "the credits are used up; see the dashboard",
    403: "the key lacks the scope for this, or this IP address is not on its allow-list",
    429: "a limit of the service is used up",
}


def status_error(
    assumptions: Assumptions, call: Call, answer: WholeResponse, retry_after: float | None
) -> APIStatusError | UnexpectedResponseError:
    """Return the error for *answer*, which is not a success."""
    body, info = mask_text(answer.text), response_info(assumptions, answer.status, answer.headers)
    if answer.status < 200:
        return _unexpected(f"{call.operation}: status {answer.status} is not an answer", answer, info)
    words = server_words(body)
    hint = _hint(call, answer)
    if is_web_page(body) and not 300 <= answer.status < 400:
        hint = f"{_WEB_PAGE} If not, {hint}" if hint else _WEB_PAGE
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


def _hint(call: Call, answer: WholeResponse) -> str:
    if 300 <= answer.status < 400 and "location" in answer.headers:
        host = _host_of(answer.headers["location"]) or "the same host"
        return f"a redirect to {printable(host, 80)}, which is never followed: check base_url"
    if status_error_class(answer.status) is NotFoundError:
        return _not_found_hint(call)
    return _HINTS.get(answer.status, "")


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _not_found_hint(call: Call) -> str:
    if call.operation is ASK and call.thread is not None and call.thread.key is None:
        return (
            "the question named a thread without its key, which the service answers with 404; "
            "the key comes once, with the thread's first answer: keep reply.thread, not its id alone"
        )
    return _MISSING[call.operation]


_NO_JOB = "no such job in this project: check the job's id and project_id="
_MISSING = {
    ASK: "no such domain, or no such thread: check domain=",
    CREATE_JOB: "no such project: check project_id=",
    SEND_MESSAGE: _NO_JOB,
    GET_JOB: f"{_NO_JOB}; this path is assumed, and Assumptions(get_job_path=…) changes it",
}
"""What a 404 may mean, by the operation."""
