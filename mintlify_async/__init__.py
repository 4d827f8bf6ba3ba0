"""The asyncio client SDK for the Mintlify documentation service: agent jobs and the streaming assistant.

>>> from mintlify_async import MintlifySession, TextDelta, Finish

The documentation is in the folder ``docs`` of this package: ``llms.txt`` has a line for each page, and
``python -m mintlify_async docs WORD`` prints the pages that contain a text.

Each name is loaded from its module when it is first used (PEP 562), so
``import mintlify_async`` is fast. Type checkers read ``__init__.pyi``,
which names the same modules.
"""

from importlib import import_module as _import_module

from .version import __version__

_MODULES = {
    "APIConnectionError": "errors",
    "APIStatusError": "errors",
    "APITimeoutError": "errors",
    "Answer": "assistant.answer",
    "AnswerSource": "rendering.finding_sources",
    "AssistantError": "errors",
    "Assumptions": "settings.paths_and_headers",
    "AuthenticationError": "errors",
    "BadRequestError": "errors",
    "ConfigurationError": "errors",
    "ConflictError": "errors",
    "ContextItem": "model.context_and_filter",
    "Conversation": "conversation.conversation",
    "Finish": "events",
    "FollowUp": "jobs.handle",
    "Job": "model.job_record",
    "JobFailedError": "errors",
    "JobHandle": "jobs.handle",
    "JobRef": "model.job_ref",
    "JobStatus": "model.job_record",
    "JobTimeoutError": "errors",
    "Ledger": "jobs.ledger",
    "Limit": "quota.quota",
    "MemoryStore": "storage.memory_store",
    "Message": "messages",
    "MintlifyError": "errors",
    "MintlifySession": "session",
    "NotFoundError": "errors",
    "Observer": "settings.options",
    "OutcomeUnknownError": "errors",
    "PaymentRequiredError": "errors",
    "PermissionDeniedError": "errors",
    "PollPolicy": "settings.poll_policy",
    "Quota": "quota.quota",
    "QuotaExceededError": "errors",
    "RateLimitError": "errors",
    "Reply": "assistant.reply",
    "RetryPolicy": "settings.retry_policy",
    "SQLiteStore": "storage.sqlite_store",
    "SearchFilter": "model.context_and_filter",
    "ServerError": "errors",
    "StateError": "errors",
    "StoreConflictError": "errors",
    "StreamDecodeError": "errors",
    "StreamError": "errors",
    "StreamEvent": "events",
    "StreamInterruptedError": "errors",
    "StreamStateError": "errors",
    "TextDelta": "events",
    "Thread": "model.thread",
    "Timeouts": "settings.options",
    "UnexpectedResponseError": "errors",
    "answer_markdown": "rendering.answer_as_markdown",
    "as_completed": "jobs.wait_all",
    "extras_markdown": "rendering.answer_as_markdown",
    "sources_of": "rendering.finding_sources",
    "split_markdown": "rendering.growing_messages",
    "split_suggestions": "rendering.suggestions",
    "wait_all": "jobs.wait_all",
}

__all__ = [*_MODULES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll] - checkers read the stub


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise _import_module(".wrong_names", __name__).missing_name(__name__, name)
    value = getattr(_import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value  # the next use does not call this function
    return value


def __dir__() -> list[str]:
    return __all__
