"""Turns errors into refusals: a status and a short sentence for the web page, without the service's text."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from mintlify_async import (
    APIConnectionError,
    APITimeoutError,
    ConfigurationError,
    MintlifyError,
    QuotaExceededError,
    StateError,
    StoreConflictError,
    StreamInterruptedError,
)
from mintlify_async.model.secret import mask_service_keys
from mintlify_async.runtime.logs import log_fields

if TYPE_CHECKING:
    from starlette.responses import Response

log = logging.getLogger("mintlify_async.relay")

AT_FAULT_TEXT = "The assistant is not available at the moment."
BUSY_TEXT = "The assistant is busy at the moment. Please try again later."
REJECTED_TEXT = "The assistant does not accept this question."
TOO_LONG_TEXT = "This conversation is too long. Please start a new one."
# For the app's rate (relay), a quota (below), and the places of a user or an IP address (answer_lifetimes).
TOO_MANY_TEXT = "Too many questions. Please wait a moment and try again."
CUT_TEXT = "The answer was interrupted. Please try again."
FAILED_TEXT = "The assistant could not finish this answer. Please try again."
STEP_FAILED_TEXT = "This step of the answer failed."
SLOW_TEXT = "The assistant did not answer in time. Please try again."
AT_WORK_TEXT = "The assistant is still answering in this conversation. Please wait until it has finished."
CHANGED_TEXT = "This conversation was changed in another tab. Please reload the page."
UNREADABLE_TEXT = "This conversation cannot be opened at the moment. Please try again later."
GONE_TEXT = "This conversation is not there."
RESTARTING_TEXT = "The assistant is being restarted. Please try again."
NOT_JSON_TYPE_TEXT = "Send the question as application/json."
TOO_SLOW_TEXT = "The question took too long to arrive."
TOO_LARGE_TEXT = "The question is too large. Please start a new conversation."
NO_OBJECT_TEXT = "The question must be a JSON object."
NO_JSON_TEXT = "The question is not valid JSON."
NOT_KEPT_TEXT = "Conversations are not kept here."
SIGN_IN_TEXT = "Please sign in first."
NO_QUESTION_TEXT = "There is no such question to answer again. Please ask it as a new one."
UNSAVED_TEXT = "This answer could not be saved, so it will be gone after a reload. Please try again."


class RelayRefusal(HTTPException):
    """Refuses a web page's request. FastAPI and Starlette turn it into a response.

    Args:
        status_code: The HTTP status.
        detail: One short sentence for the user.
        headers: Additional headers, such as ``Retry-After``.
    """

    def __init__(self, status_code: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status_code, detail, dict(headers) if headers else None)

    def response(self, method: str = "POST") -> Response:
        """Return the refusal as plain text, which ``useChat`` shows unchanged. A line is logged."""
        log_refusal(self, method)
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff", **(self.headers or {})}
        return PlainTextResponse(self.detail, self.status_code, headers)


def log_refusal(refusal: RelayRefusal, method: str = "POST") -> None:
    """Write *refusal* to the log."""
    log.warning("a page's %s is refused with %d: %s", method, refusal.status_code, refusal.detail)


# Maps the service's statuses and the classes of errors to the status and the text for the page.
_REFUSALS: Mapping[object, tuple[int, str]] = {
    400: (400, REJECTED_TEXT),
    409: (409, BUSY_TEXT),
    413: (413, TOO_LONG_TEXT),
    422: (400, REJECTED_TEXT),
    429: (429, TOO_MANY_TEXT),
    503: (503, BUSY_TEXT),
    504: (504, SLOW_TEXT),
    QuotaExceededError: (429, TOO_MANY_TEXT),
    APITimeoutError: (504, SLOW_TEXT),
    StoreConflictError: (409, CHANGED_TEXT),
    StateError: (503, AT_FAULT_TEXT),
    ConfigurationError: (500, AT_FAULT_TEXT),
}


def refusal_for(error: MintlifyError) -> RelayRefusal:
    """Return the refusal for an error before the answer. If the page did not cause the error, log it."""
    if isinstance(error, ConfigurationError) and (error.field or "").startswith("messages"):
        return RelayRefusal(400, REJECTED_TEXT)  # the page sent messages, and the app set all other fields
    names = (getattr(error, "status", None), *type(error).__mro__)
    # All other errors mean that the key or domain is wrong, or that the service failed. No user can fix this.
    status, text = next((_REFUSALS[name] for name in names if name in _REFUSALS), (502, AT_FAULT_TEXT))
    level = logging.ERROR if status in (500, 502) else logging.WARNING
    fields = log_fields("ask", request_id=getattr(error, "request_id", None))
    reason = f"{type(error).__name__}: {mask_service_keys(str(error))}"
    log.log(level, "the assistant gave no answer: %s", reason, extra=fields)
    wait = getattr(error, "retry_after", None) if status in (429, 503) else None
    return RelayRefusal(status, text, retry_after_header(wait))


def retry_after_header(seconds: float | None) -> dict[str, str]:
    """Return the ``Retry-After`` header for *seconds*, rounded up. Without a known time, return no header."""
    if seconds is None or not math.isfinite(seconds):
        return {}
    return {"retry-after": str(max(1, math.ceil(seconds)))}


def cut_text(error: Exception) -> str:
    """Return the sentence for an answer that started and did not finish."""
    if isinstance(error, APITimeoutError):
        return SLOW_TEXT
    return CUT_TEXT if isinstance(error, StreamInterruptedError | APIConnectionError) else FAILED_TEXT
