"""The asyncio client SDK for the Mintlify documentation service: agent jobs and the streaming assistant.

>>> from mintlify_async import MintlifySession, TextDelta, Finish

Each name is loaded from its module when it is first used (PEP 562), so
``import mintlify_async`` takes next to no time. Type checkers read ``__init__.pyi``,
which names the same modules.
"""

from importlib import import_module as _import_module

from .version import __version__

_MODULES = {
    "APIConnectionError": "errors",
    "APIStatusError": "errors",
    "APITimeoutError": "errors",
    "AbortEvent": "events",
    "AnswerSource": "sources",
    "AssistantError": "errors",
    "Assumptions": "assumptions",
    "AuthenticationError": "errors",
    "ConfigurationError": "errors",
    "ContextItem": "question",
    "Conversation": "conversation",
    "Data": "events",
    "ErrorEvent": "events",
    "Finish": "events",
    "Job": "job",
    "JobFailedError": "errors",
    "JobHandle": "jobs",
    "JobRef": "refs",
    "JobStatus": "job",
    "JobTimeoutError": "errors",
    "Limit": "windows",
    "MemoryConversationStore": "stores",
    "MemoryLedger": "ledger",
    "Message": "parts",
    "MintlifyError": "errors",
    "MintlifySession": "session",
    "NotFoundError": "errors",
    "Observer": "hooks",
    "OutcomeUnknownError": "errors",
    "PollPolicy": "polling",
    "Quota": "quota",
    "QuotaExceededError": "errors",
    "RateLimitError": "errors",
    "ReasoningDelta": "events",
    "Reply": "assistant",
    "RequestSent": "hooks",
    "ResponseReceived": "hooks",
    "RetryPolicy": "retry",
    "RetryScheduled": "hooks",
    "SQLiteConversationStore": "stores",
    "SQLiteLedger": "ledger",
    "SearchFilter": "question",
    "SourceUrl": "events",
    "Start": "events",
    "StateError": "errors",
    "StoreConflictError": "errors",
    "StreamError": "errors",
    "StreamEvent": "events",
    "StreamInterruptedError": "errors",
    "TextDelta": "events",
    "Thread": "thread",
    "Timeouts": "timeouts",
    "ToolInputAvailable": "events",
    "ToolOutputAvailable": "events",
    "Turn": "jobs",
    "UnknownEvent": "events",
    "answer_markdown": "markdown",
    "as_completed": "groups",
    "extras_markdown": "markdown",
    "sources_of": "sources",
    "split_markdown": "cutting",
    "split_suggestions": "sources",
    "wait_all": "groups",
}

__all__ = [*_MODULES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll] - checkers read the stub


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(_import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = found  # the next use does not come here
    return found


def __dir__() -> list[str]:
    return __all__
