"""How much is read of what the service sends, in bytes: answers, events, refusals, headers."""

from typing import Final

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""Largest size of a line, and of the lines of an event together. A tool's result is 50 to 100 KB on one line,
and a line that never ends must not fill the memory."""

MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
"""Largest answer to a question."""

ANSWER_MAX_BYTES: Final = 4 * 1024 * 1024
"""Largest response with a job. Its record has a dozen short fields."""

ERROR_MAX_BYTES: Final = 64 * 1024
"""How much is read of a refusal: an error page says what matters at its beginning."""

HEADER_MAX_BYTES: Final = 64 * 1024
"""Longest line of headers. Gateways add long policies, and aiohttp's own limit is 8,190 bytes."""
