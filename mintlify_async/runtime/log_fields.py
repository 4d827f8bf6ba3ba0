"""The fields of log records about requests, for logs in JSON. They contain no text and no secret."""

from __future__ import annotations

import logging

from ..errors import printable

__all__ = ["log_fields"]


def log_fields(
    operation: str, *, job_id: str | None = None, request_id: str | None = None, attempt: int | None = None
) -> dict[str, object]:
    """Return the ``extra=`` of a log record.

    A field that the program's own record factory sets is left out, because ``logging`` refuses a second one.
    """
    job_id = None if job_id is None else printable(job_id)
    fields: dict[str, object] = {
        "operation": operation,
        "job_id": job_id,
        "request_id": request_id,
        "attempt": attempt,
    }
    factory = logging.getLogRecordFactory()
    if factory is logging.LogRecord:
        return fields
    own_record = factory("mintlify_async", logging.DEBUG, "", 0, "", (), None)
    return {name: value for name, value in fields.items() if name not in own_record.__dict__}
