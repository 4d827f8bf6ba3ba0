"""The asyncio client SDK for the Mintlify documentation service: agent jobs and the streaming assistant.

>>> from mintlify_async import MintlifySession, TextDelta, Finish

Importing the package loads nothing else; each name is loaded from its room when
it is first used (PEP 562), so that ``import mintlify_async`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .version import __version__

if TYPE_CHECKING:
    from .assistant import Reply as Reply
    from .assumptions import Assumptions as Assumptions
    from .clock import Clock as Clock
    from .clock import SystemClock as SystemClock
    from .conversation import AskOptions as AskOptions
    from .conversation import Conversation as Conversation
    from .cutting import Edit as Edit
    from .cutting import split_markdown as split_markdown
    from .edits import Edits as Edits
    from .errors import APIConnectionError as APIConnectionError
    from .errors import APIStatusError as APIStatusError
    from .errors import APITimeoutError as APITimeoutError
    from .errors import AssistantError as AssistantError
    from .errors import AuthenticationError as AuthenticationError
    from .errors import BadRequestError as BadRequestError
    from .errors import ConfigurationError as ConfigurationError
    from .errors import ConflictError as ConflictError
    from .errors import JobFailedError as JobFailedError
    from .errors import JobTimeoutError as JobTimeoutError
    from .errors import MintlifyError as MintlifyError
    from .errors import NotFoundError as NotFoundError
    from .errors import OutcomeUnknownError as OutcomeUnknownError
    from .errors import PermissionDeniedError as PermissionDeniedError
    from .errors import QuotaExceededError as QuotaExceededError
    from .errors import RateLimitError as RateLimitError
    from .errors import ServerError as ServerError
    from .errors import StateError as StateError
    from .errors import StoreConflictError as StoreConflictError
    from .errors import StreamDecodeError as StreamDecodeError
    from .errors import StreamError as StreamError
    from .errors import StreamInterruptedError as StreamInterruptedError
    from .errors import StreamStateError as StreamStateError
    from .errors import UnexpectedResponseError as UnexpectedResponseError
    from .events import AbortEvent as AbortEvent
    from .events import Custom as Custom
    from .events import Data as Data
    from .events import ErrorEvent as ErrorEvent
    from .events import File as File
    from .events import Finish as Finish
    from .events import FinishStep as FinishStep
    from .events import MessageMetadata as MessageMetadata
    from .events import ReasoningDelta as ReasoningDelta
    from .events import ReasoningEnd as ReasoningEnd
    from .events import ReasoningFile as ReasoningFile
    from .events import ReasoningStart as ReasoningStart
    from .events import ResetStep as ResetStep
    from .events import SourceDocument as SourceDocument
    from .events import SourceUrl as SourceUrl
    from .events import Start as Start
    from .events import StartStep as StartStep
    from .events import SteeringMessage as SteeringMessage
    from .events import StreamEvent as StreamEvent
    from .events import TextDelta as TextDelta
    from .events import TextEnd as TextEnd
    from .events import TextStart as TextStart
    from .events import ToolApprovalRequest as ToolApprovalRequest
    from .events import ToolApprovalResponse as ToolApprovalResponse
    from .events import ToolInputAvailable as ToolInputAvailable
    from .events import ToolInputDelta as ToolInputDelta
    from .events import ToolInputError as ToolInputError
    from .events import ToolInputStart as ToolInputStart
    from .events import ToolOutputAvailable as ToolOutputAvailable
    from .events import ToolOutputDenied as ToolOutputDenied
    from .events import ToolOutputError as ToolOutputError
    from .events import UnknownEvent as UnknownEvent
    from .groups import as_completed as as_completed
    from .groups import wait_all as wait_all
    from .hooks import Observation as Observation
    from .hooks import Observer as Observer
    from .hooks import RequestSent as RequestSent
    from .hooks import ResponseReceived as ResponseReceived
    from .hooks import RetryScheduled as RetryScheduled
    from .jobs import JobHandle as JobHandle
    from .jobs import JobWatch as JobWatch
    from .jobs import Turn as Turn
    from .ledger import Claim as Claim
    from .ledger import Ledger as Ledger
    from .ledger import MemoryLedger as MemoryLedger
    from .ledger import SQLiteLedger as SQLiteLedger
    from .markdown import answer_markdown as answer_markdown
    from .markdown import extras_markdown as extras_markdown
    from .message import Suggestion as Suggestion
    from .message import sources_of as sources_of
    from .message import split_suggestions as split_suggestions
    from .models import ContextItem as ContextItem
    from .models import Job as Job
    from .models import JobStatus as JobStatus
    from .models import ResponseInfo as ResponseInfo
    from .models import SearchFilter as SearchFilter
    from .models import Source as Source
    from .models import Thread as Thread
    from .parts import CustomPart as CustomPart
    from .parts import DataPart as DataPart
    from .parts import DynamicToolPart as DynamicToolPart
    from .parts import FilePart as FilePart
    from .parts import Message as Message
    from .parts import MessagePart as MessagePart
    from .parts import ReasoningFilePart as ReasoningFilePart
    from .parts import ReasoningPart as ReasoningPart
    from .parts import SourceDocumentPart as SourceDocumentPart
    from .parts import SourceUrlPart as SourceUrlPart
    from .parts import SteeringMessagePart as SteeringMessagePart
    from .parts import StepStartPart as StepStartPart
    from .parts import TextPart as TextPart
    from .parts import ToolApproval as ToolApproval
    from .parts import ToolPart as ToolPart
    from .parts import UnknownPart as UnknownPart
    from .quota import Limit as Limit
    from .quota import MemoryQuotaStore as MemoryQuotaStore
    from .quota import Quota as Quota
    from .quota import QuotaRemaining as QuotaRemaining
    from .quota import QuotaScope as QuotaScope
    from .quota import QuotaStore as QuotaStore
    from .refs import JobRef as JobRef
    from .retry import PollPolicy as PollPolicy
    from .retry import RetryPolicy as RetryPolicy
    from .session import MintlifySession as MintlifySession
    from .sources import AnswerSource as AnswerSource
    from .stores import ConversationStore as ConversationStore
    from .stores import MemoryConversationStore as MemoryConversationStore
    from .stores import SQLiteConversationStore as SQLiteConversationStore
    from .stores import StoredConversation as StoredConversation
    from .stores import check_name as check_name
    from .stores import check_revision as check_revision
    from .stores import first_revision as first_revision
    from .stores import store_conflict as store_conflict
    from .timeouts import Timeouts as Timeouts

_ROOMS = {
    "conversation": (
        "AskOptions",
        "Conversation",
    ),
    "assistant": ("Reply",),
    "clock": (
        "Clock",
        "SystemClock",
    ),
    "cutting": (
        "Edit",
        "split_markdown",
    ),
    "edits": ("Edits",),
    "errors": (
        "APIConnectionError",
        "APIStatusError",
        "APITimeoutError",
        "AssistantError",
        "AuthenticationError",
        "BadRequestError",
        "ConfigurationError",
        "ConflictError",
        "JobFailedError",
        "JobTimeoutError",
        "MintlifyError",
        "NotFoundError",
        "OutcomeUnknownError",
        "PermissionDeniedError",
        "QuotaExceededError",
        "RateLimitError",
        "ServerError",
        "StateError",
        "StoreConflictError",
        "StreamDecodeError",
        "StreamError",
        "StreamInterruptedError",
        "StreamStateError",
        "UnexpectedResponseError",
    ),
    "events": (
        "AbortEvent",
        "Custom",
        "Data",
        "ErrorEvent",
        "File",
        "Finish",
        "FinishStep",
        "MessageMetadata",
        "ReasoningDelta",
        "ReasoningEnd",
        "ReasoningFile",
        "ReasoningStart",
        "ResetStep",
        "SourceDocument",
        "SourceUrl",
        "Start",
        "StartStep",
        "SteeringMessage",
        "StreamEvent",
        "TextDelta",
        "TextEnd",
        "TextStart",
        "ToolApprovalRequest",
        "ToolApprovalResponse",
        "ToolInputAvailable",
        "ToolInputDelta",
        "ToolInputError",
        "ToolInputStart",
        "ToolOutputAvailable",
        "ToolOutputDenied",
        "ToolOutputError",
        "UnknownEvent",
    ),
    "groups": (
        "as_completed",
        "wait_all",
    ),
    "hooks": (
        "Observation",
        "Observer",
        "RequestSent",
        "ResponseReceived",
        "RetryScheduled",
    ),
    "jobs": (
        "JobHandle",
        "JobWatch",
        "Turn",
    ),
    "ledger": (
        "Claim",
        "Ledger",
        "MemoryLedger",
        "SQLiteLedger",
    ),
    "markdown": (
        "answer_markdown",
        "extras_markdown",
    ),
    "message": (
        "Suggestion",
        "sources_of",
        "split_suggestions",
    ),
    "models": (
        "ContextItem",
        "Job",
        "JobStatus",
        "ResponseInfo",
        "SearchFilter",
        "Source",
        "Thread",
    ),
    "parts": (
        "CustomPart",
        "DataPart",
        "DynamicToolPart",
        "FilePart",
        "Message",
        "MessagePart",
        "ReasoningFilePart",
        "ReasoningPart",
        "SourceDocumentPart",
        "SourceUrlPart",
        "SteeringMessagePart",
        "StepStartPart",
        "TextPart",
        "ToolApproval",
        "ToolPart",
        "UnknownPart",
    ),
    "assumptions": ("Assumptions",),
    "quota": (
        "Limit",
        "MemoryQuotaStore",
        "Quota",
        "QuotaRemaining",
        "QuotaScope",
        "QuotaStore",
    ),
    "refs": ("JobRef",),
    "retry": (
        "PollPolicy",
        "RetryPolicy",
    ),
    "session": ("MintlifySession",),
    "sources": ("AnswerSource",),
    "stores": (
        "ConversationStore",
        "MemoryConversationStore",
        "SQLiteConversationStore",
        "StoredConversation",
        "check_name",
        "check_revision",
        "first_revision",
        "store_conflict",
    ),
    "timeouts": ("Timeouts",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "APIConnectionError",
    "APIStatusError",
    "APITimeoutError",
    "AbortEvent",
    "AnswerSource",
    "AskOptions",
    "AssistantError",
    "Assumptions",
    "AuthenticationError",
    "BadRequestError",
    "Claim",
    "Clock",
    "ConfigurationError",
    "ConflictError",
    "ContextItem",
    "Conversation",
    "ConversationStore",
    "Custom",
    "CustomPart",
    "Data",
    "DataPart",
    "DynamicToolPart",
    "Edit",
    "Edits",
    "ErrorEvent",
    "File",
    "FilePart",
    "Finish",
    "FinishStep",
    "Job",
    "JobFailedError",
    "JobHandle",
    "JobRef",
    "JobStatus",
    "JobTimeoutError",
    "JobWatch",
    "Ledger",
    "Limit",
    "MemoryConversationStore",
    "MemoryLedger",
    "MemoryQuotaStore",
    "Message",
    "MessageMetadata",
    "MessagePart",
    "MintlifyError",
    "MintlifySession",
    "NotFoundError",
    "Observation",
    "Observer",
    "OutcomeUnknownError",
    "PermissionDeniedError",
    "PollPolicy",
    "Quota",
    "QuotaExceededError",
    "QuotaRemaining",
    "QuotaScope",
    "QuotaStore",
    "RateLimitError",
    "ReasoningDelta",
    "ReasoningEnd",
    "ReasoningFile",
    "ReasoningFilePart",
    "ReasoningPart",
    "ReasoningStart",
    "Reply",
    "RequestSent",
    "ResetStep",
    "ResponseInfo",
    "ResponseReceived",
    "RetryPolicy",
    "RetryScheduled",
    "SQLiteConversationStore",
    "SQLiteLedger",
    "SearchFilter",
    "ServerError",
    "Source",
    "SourceDocument",
    "SourceDocumentPart",
    "SourceUrl",
    "SourceUrlPart",
    "Start",
    "StartStep",
    "StateError",
    "SteeringMessage",
    "SteeringMessagePart",
    "StepStartPart",
    "StoreConflictError",
    "StoredConversation",
    "StreamDecodeError",
    "StreamError",
    "StreamEvent",
    "StreamInterruptedError",
    "StreamStateError",
    "Suggestion",
    "SystemClock",
    "TextDelta",
    "TextEnd",
    "TextPart",
    "TextStart",
    "Thread",
    "Timeouts",
    "ToolApproval",
    "ToolApprovalRequest",
    "ToolApprovalResponse",
    "ToolInputAvailable",
    "ToolInputDelta",
    "ToolInputError",
    "ToolInputStart",
    "ToolOutputAvailable",
    "ToolOutputDenied",
    "ToolOutputError",
    "ToolPart",
    "Turn",
    "UnexpectedResponseError",
    "UnknownEvent",
    "UnknownPart",
    "__version__",
    "answer_markdown",
    "as_completed",
    "check_name",
    "check_revision",
    "extras_markdown",
    "first_revision",
    "sources_of",
    "split_markdown",
    "split_suggestions",
    "store_conflict",
    "wait_all",
]


def __getattr__(name: str) -> object:
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f".{room}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
