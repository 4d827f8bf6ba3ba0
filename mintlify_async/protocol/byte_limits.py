"""Maximum number of bytes that are read from the service: answers, events, refusals, headers."""

from typing import Final

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a line, and of the lines of an event together. A tool's result has 50 to 100 KB on one
line. A line without an end must not fill the memory."""

MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of an answer to a question."""

ANSWER_MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a response with a job. A job's record has a dozen short fields."""

ERROR_MAX_BYTES: Final = 64 * 1024
"""Maximum number of bytes that are read from a refusal. The start of an error page has its message."""

HEADER_MAX_BYTES: Final = 64 * 1024
"""Maximum length of a header line. Gateways add long policies, and aiohttp's own limit is 8,190 bytes."""
