"""Where the relay keeps running answers, so that they outlive their reader.

A store says how long answers are kept. :class:`MemoryStreamStore` keeps them in this process;
``RedisStreamStore`` also shows them to other workers.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from mintlify_async.checks import LARGEST, check_field, check_number
from mintlify_async.habits import helpful
from mintlify_async.runtime.closing import NothingToClose


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

    grace: float = field(default=60.0, validator=check_field(check_number, least=0, most=LARGEST))
    keep: float = field(default=60.0, validator=check_field(check_number, least=0, most=LARGEST))


@frozen
class SharedAnswer:
    """The newest answer of a chat in a shared store.

    Attributes:
        id: Its name.
        about: What its worker described it by: the question's id and the chat's progress.
        running: Whether it has not ended, and its worker lives.
    """

    id: str
    about: dict[str, Any]
    running: bool
