"""Stream stores of the relay: how long an answer goes on without a reader, and can be read after its end."""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from mintlify_async.checks import LARGEST, check_field, check_number
from mintlify_async.habits import helpful
from mintlify_async.storage.store import NothingToClose

GRACE_SECONDS: Final = 60.0
"""For how many seconds an answer continues without a reader, by default."""

KEEP_SECONDS: Final = 60.0
"""For how many seconds an answer can be read after its end, by default."""


@helpful
@frozen(kw_only=True)
class MemoryStreamStore(NothingToClose):
    """Running answers in the memory of this process, for an app with one worker.

    Args:
        grace: Seconds for which an answer continues without a reader. Then it is stopped at the service.
        keep: Seconds for which an answer can be read after its end, by a page that was being reloaded then.

    Raises:
        ConfigurationError: An argument is below 0 or no finite number.
    """

    grace: float = field(default=GRACE_SECONDS, validator=check_field(check_number, least=0, most=LARGEST))
    keep: float = field(default=KEEP_SECONDS, validator=check_field(check_number, least=0, most=LARGEST))
