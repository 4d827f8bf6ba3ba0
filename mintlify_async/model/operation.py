"""The four operations of the interface, and all differences between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from attrs import frozen

OperationName = Literal["create_job", "send_message", "get_job", "ask"]
KeyKind = Literal["admin", "assistant"]


@frozen(kw_only=True, eq=False)
class Operation:
    """One operation of the service.

    Args:
        name: The name in logs, errors and traces.
        method: The HTTP method.
        key: The kind of key that the operation needs.
        accept: The ``Accept`` header.
        limit: The field of ``Timeouts`` that limits the complete operation.
        streams: Whether the response is a stream of events. Otherwise it is a job.
        costs: The costly thing that a second request would start again, such as ``"the job"``. Empty if none.
        counted: Whether a quota counts the operation.
        resend: Whether a request that may have been accepted is sent again: always, never, or by choice.
    """

    name: OperationName
    method: Literal["GET", "POST"] = "POST"
    key: KeyKind = "admin"
    accept: str = "application/json"
    limit: Literal["request", "total"] = "request"
    streams: bool = False
    costs: str = ""
    counted: bool = True
    resend: Literal["always", "by choice", "never"] = "never"

    def __str__(self) -> str:
        return self.name


# Each difference between the requests is a field, and the code that sends the requests reads that field. A
# fifth operation is one more entry here, with a path in ``Assumptions`` and a limit of the quota.

CREATE_JOB: Final = Operation(name="create_job", costs="the job")  # interface 4.1

SEND_MESSAGE: Final = Operation(name="send_message", costs="the follow-up")  # interface 4.2

ASK: Final = Operation(  # interface 4.3
    name="ask",
    key="assistant",
    accept="text/event-stream, */*",
    limit="total",
    streams=True,
    resend="by choice",
)

# Interface 4.4: no documented operation reads a job. This GET is an assumption.
GET_JOB: Final = Operation(name="get_job", method="GET", counted=False, resend="always")

OPERATIONS: Final[Mapping[str, Operation]] = {
    operation.name: operation for operation in (CREATE_JOB, SEND_MESSAGE, ASK, GET_JOB)
}
"""The operations by name."""
