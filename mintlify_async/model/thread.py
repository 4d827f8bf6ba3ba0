"""Threads: a conversation at the service, with its id and its secret key.

No repr and no pickle contains the key.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from ..argument_checks import check_characters, check_text, copying_slip
from ..errors import ConfigurationError, MintlifyError, NotFoundError
from .secret import MASK, hidden, type_name
from .strict_json import as_object

__all__ = ["Thread", "thread_is_lost"]

_NO_FIELD: Final = (
    "a Thread cannot be a field of a model or the result of a handler: without its key, which JSON "
    "for others must not contain, the service answers 404 later. Use thread.id to show the thread, "
    "and thread.to_json() to store it"
)


class Thread:
    """A conversation at the service: its id, and the key that gives access to it.

    The key is a secret that the service sends once, with the first answer. If a later message has the
    thread's id without the key, the service responds with 404. Store both: :meth:`to_json` writes a thread as
    JSON, :meth:`from_json` reads it. The repr does not show the key. **Pickling drops the key on purpose**,
    because pickles often get into logs and queues. Copying keeps the key.

    Args:
        id: The thread's id.
        key: The thread's key, or None.

    Raises:
        ConfigurationError: *id* is empty, or *id* or *key* is not a string.
    """

    __slots__ = ("_id", "_key")

    def __init__(self, id: str, key: str | None = None) -> None:
        secret = cast(object, hidden(key))
        del key  # a traceback can show the locals of a frame
        self._id = check_text(id, "thread.id")
        if secret is not None and not isinstance(secret, str):
            raise ConfigurationError(
                f"thread.key must be a string, not {type_name(secret)}", field="thread.key"
            )
        self._key = str(secret) if secret else None

    @classmethod
    def of(cls, value: object) -> Thread | None:
        """Return *value* as a thread. It may be a thread, None, or a thread's id.

        Raises:
            ConfigurationError: *value* is another object, or its id was copied with blanks or quotes.
        """
        if value is None:
            return None
        thread = value
        if isinstance(value, str) and value.strip() and not value.lstrip().startswith(("{", "Thread(")):
            thread = cls(value)
        if not isinstance(thread, Thread):  # a stored thread's JSON would be sent as an id, and shown
            raise ConfigurationError(
                f"thread must be a Thread, a thread's id, or None; got {type(value).__name__}. "
                "Pass answer.thread, or Thread.from_json(…) of a stored one",
                field="thread",
            )
        if slip := copying_slip(check_characters(thread.id, "thread.id")):
            raise ConfigurationError(f"the thread's id {slip}", field="thread")
        check_characters(thread.key or "", "thread.key")
        return thread

    @property
    def id(self) -> str:
        """The thread's id."""
        return self._id

    @property
    def key(self) -> str | None:
        """The thread's key, a secret, or None."""
        return self._key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Thread):
            return NotImplemented
        return (self._id, self._key) == (other._id, other._key)

    def __hash__(self) -> int:
        return hash((Thread, self._id))

    def __repr__(self) -> str:
        if not hasattr(self, "_key"):  # a traceback shows the repr of a thread whose arguments were refused
            return "<Thread without id>"
        return f"Thread(id={self._id!r}, key={MASK!r})" if self._key else f"Thread(id={self._id!r})"

    def __reduce__(self) -> tuple[type[Thread], tuple[str]]:
        return Thread, (self._id,)

    def __copy__(self) -> Thread:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Thread:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> NoReturn:
        """Raise an error, because a pydantic model would write the key."""
        raise TypeError(_NO_FIELD)

    if not TYPE_CHECKING:

        def keys(self):
            """Raise an error, because FastAPI writes a handler's result with ``dict()``."""
            raise TypeError(_NO_FIELD)

    def to_dict(self) -> dict[str, str]:
        """Return ``threadId``, and ``threadKey`` if there is a key. The key is in plain text."""
        return {"threadId": self._id} if self._key is None else {"threadId": self._id, "threadKey": self._key}

    to_wire = to_dict

    @classmethod
    def from_dict(cls, stored: object) -> Thread:
        """Read the result of :meth:`to_dict`.

        Raises:
            ConfigurationError: *stored* is not an object with a ``threadId``.
        """
        fields = as_object(stored)
        if fields is None:
            raise ConfigurationError("a stored thread must be an object with threadId", field="thread")
        return cls(fields.get("threadId", ""), fields.get("threadKey"))

    from_wire = from_dict

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text. The key is in plain text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, stored: str) -> Thread:
        """Read the result of :meth:`to_json`.

        Raises:
            ConfigurationError: *stored* is not a JSON object with a ``threadId``.
        """
        try:
            fields: object = json.loads(stored)
        except (TypeError, ValueError, RecursionError):
            fields = None
        return cls.from_dict(fields)


def thread_is_lost(error: MintlifyError) -> bool:
    """Return whether *error*, from a question in a thread, means that the service lost the thread (404)."""
    return isinstance(error, NotFoundError)
