"""The conversation threads of the local service, with their ids, secret keys and questions."""

from __future__ import annotations

import secrets
from collections.abc import Collection

from attrs import define, field, frozen

from ..errors import ConfigurationError

PLACES = frozenset({"header", "finish", "metadata", "data"})


def _check_places(value: Collection[str]) -> tuple[str, ...]:
    if isinstance(value, str) or not set(value) <= PLACES:
        raise ConfigurationError(
            f"id_in and key_in must be collections of {', '.join(sorted(PLACES))}", field="id_in"
        )
    return tuple(sorted(value))


@frozen(kw_only=True)
class ThreadStyle:
    """The places of the thread's id and key in answers, and whether threads have keys.

    ::

        style = ThreadStyle(id_in={"metadata"}, key_in={"metadata"})
        LocalService(answers=AnswerStyle(thread=style))

    Args:
        id_in: The places of the thread's id: ``header`` (``X-Thread-Id``), ``finish`` (``threadId`` of the
            event), ``metadata`` (``messageMetadata`` of that event), ``data`` (an event ``data-thread``).
        key_in: The places of the thread's key, from the same list. Only the first answer has the key.
        keys: Whether threads have a key. A request without the key, or with another one, gets a 404.

    Raises:
        ConfigurationError: A place is unknown.
    """

    id_in: tuple[str, ...] = field(default=("finish", "header"), converter=_check_places)
    key_in: tuple[str, ...] = field(default=("header",), converter=_check_places)
    keys: bool = True


@define(kw_only=True)
class LocalThread:
    """One thread of the service.

    Attributes:
        id: The id of the thread.
        domain: The domain of the thread's customer.
        key: The key of the thread, or None if the service has no keys.
        questions: The questions, oldest first.
    """

    id: str
    domain: str
    key: str | None = field(repr=False)
    questions: list[str] = field(factory=list[str])


class LocalThreads(dict[str, LocalThread]):
    """``service.threads`` contains the threads of a service, by id."""

    def begin(self, domain: str, *, keys: bool) -> LocalThread:
        """Start a thread. With *keys*, it gets a key."""
        key = f"thread_key_{secrets.token_hex(12)}" if keys else None
        thread = LocalThread(id=f"thread_{len(self) + 1}", domain=domain, key=key)
        self[thread.id] = thread
        return thread

    def open(self, thread_id: str, key: str | None) -> LocalThread | None:
        """Return the thread, or None if there is no such thread or the key is wrong."""
        thread = self.get(thread_id)
        if thread is None or (thread.key is not None and thread.key != key):
            return None
        return thread
