"""Threads: a conversation at the service, by its id and its secret key.

The key shows in no repr and no pickle.
"""

from __future__ import annotations

import json
from typing import Any

from attrs import field, frozen

from ..errors import ConfigurationError
from .json_text import MASK, as_object, require_text


def _is_id(instance: object, attribute: Any, value: Any) -> None:
    require_text(value, "thread.id")


def _is_key(instance: object, attribute: Any, value: Any) -> None:
    if value is not None:
        require_text(value, "thread.key", empty=True)


@frozen(repr=False, match_args=False)
class Thread:
    """Names a conversation at the service: its id, and the key that opens it.

    The key is a secret that the service sends once, with the first answer. If a later message names the
    thread without the key, the service answers 404. Keep both: :meth:`to_json` writes a thread as JSON,
    :meth:`from_json` reads it. The repr does not show the key, and **pickling drops it on purpose**, since
    pickles end up in logs and queues. Copying keeps it.

    Args:
        id: The thread's id.
        key: The thread's key, or None.

    Raises:
        ConfigurationError: The id is empty, or one of them is not a string.
    """

    id: str = field(validator=_is_id)
    key: str | None = field(default=None, validator=_is_key)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or None)

    def __repr__(self) -> str:
        return f"Thread(id={self.id!r}, key={MASK!r})" if self.key else f"Thread(id={self.id!r})"

    def __reduce__(self) -> tuple[type[Thread], tuple[str]]:
        return Thread, (self.id,)

    def __copy__(self) -> Thread:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Thread:
        return self

    def to_dict(self) -> dict[str, str]:
        """Return ``threadId`` and ``threadKey``, if there is one. The key is in plain text."""
        return {"threadId": self.id} if self.key is None else {"threadId": self.id, "threadKey": self.key}

    to_wire = to_dict

    @classmethod
    def from_dict(cls, stored: object) -> Thread:
        """Read what :meth:`to_dict` returned.

        Raises:
            ConfigurationError: It is not an object with a ``threadId``.
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
        """Read what :meth:`to_json` returned.

        Raises:
            ConfigurationError: It is not a JSON object with a ``threadId``.
        """
        try:
            fields: object = json.loads(stored)
        except (TypeError, ValueError, RecursionError):
            fields = None
        return cls.from_dict(fields)
