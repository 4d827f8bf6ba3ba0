"""Stream stores of the relay, which keep answers that run without a reader, or that have ended."""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from mintlify_async.argument_checks import LARGEST, check_field, check_number
from mintlify_async.storage.store import NothingToClose
from mintlify_async.wrong_names import helpful

GRACE_SECONDS: Final = 60.0
"""Default number of seconds for which an answer continues without a reader."""

KEEP_SECONDS: Final = 60.0
"""Default number of seconds for which an answer can be read after its end."""


@helpful
@frozen(kw_only=True)
class MemoryStreamStore(NothingToClose):
    """Running answers in the memory of this process, for an app with one worker.

    Args:
        grace: Seconds for which an answer continues without a reader. Then it is stopped at the service.
        keep: Seconds for which an answer can still be read after its end, by a web page that was reloaded.

    Raises:
        ConfigurationError: An argument is not a finite number of 0 or more.
    """

    grace: float = field(default=GRACE_SECONDS, validator=check_field(check_number, least=0, most=LARGEST))
    keep: float = field(default=KEEP_SECONDS, validator=check_field(check_number, least=0, most=LARGEST))
