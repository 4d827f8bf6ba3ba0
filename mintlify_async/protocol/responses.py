"""Reads the service's responses: a job, and the request id in the headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import define, field

from ..errors import UnexpectedResponseError, printable
from ..model.job_record import Job, job_without_keys
from ..model.response_info import Headers, ResponseInfo
from ..model.secret import THREAD_KEY, mask_keys, mask_text
from ..model.strict_json import EXCERPT_CHARACTERS, DecodeProblem, decode_json, whole_characters
from ..model.wire_value import without_halves
from ..settings.paths_and_headers import Assumptions
from .failure_words import is_web_page

WEB_PAGE: Final = "a web page answered, not the API: a proxy or a firewall?"


@define(eq=False, repr=False, match_args=False)
class WholeResponse:
    """A complete response, with its status, its headers in lower case and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def is_success(self) -> bool:
        """Whether the service accepted the request. A status of 101 does not mean this."""
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
    """Return the id of the request in the service's logs, or None."""
    for name in assumptions.request_id_headers:
        if name in headers:
            return whole_characters(headers[name])  # bytes that are not UTF-8 come as surrogates
    return None


def read_job(
    assumptions: Assumptions, answer: WholeResponse, attempts: int = 1, *, id_is_enough: bool = False
) -> Job:
    """Return the job in *answer*, a successful response.

    With *id_is_enough*, a job without a status gets an empty status. The service has accepted the job, and
    the next poll shows the rest.

    Raises:
        UnexpectedResponseError: The body is not a job.
    """
    text = answer.text
    # Without an escape, the name of a key stands in the JSON text as it is, and there is no lone surrogate.
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
    raise unexpected_response(f"the answer ({answer.status}) is not a job", answer, info)


def unexpected_response(message: str, answer: WholeResponse, info: ResponseInfo) -> UnexpectedResponseError:
    """Return the error for *answer*, whose body is not as documented."""
    text = mask_text(answer.text)
    if is_web_page(text):
        message += f" ({WEB_PAGE})"
    return UnexpectedResponseError(
        f"{message}: {printable(text) or 'it is empty'}",
        excerpt=text[:EXCERPT_CHARACTERS],
        status=answer.status,
        headers=info.headers,
        request_id=info.request_id,
    )
