"""Finds the thread of an answer: in its events, their metadata, and the response's headers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ..argument_checks import copying_slip
from ..model.secret import mask_text
from ..model.strict_json import whole_characters
from ..model.thread import Thread

THREAD_FIELDS: Final = frozenset(("threadId", "threadKey", "messageMetadata"))
"""The fields of an event that may contain its thread."""


class ThreadFinder:
    """Finds the thread of an answer: its id, and the key of the same id.

    The order of preference is: ``finish``, the metadata of ``finish``, any other event, its metadata, the
    headers. The id of the first place is used. A key is used if it came with the same id, or without an id.

    Attributes:
        thread: The thread, with the fields that are known.
        secret: The API key. No error may show it, even if the answer contains it.
    """

    def __init__(self, sent: Thread | None) -> None:
        self._sent = self.thread = sent
        self.secret: str | None = None
        self._ids: dict[int, str] = {}
        self._keys: dict[int, tuple[str, str | None]] = {}  # each place's key, and the id next to that key

    def look(self, content: dict[str, Any]) -> None:
        """Record the thread in *content*, an event with one of ``THREAD_FIELDS``."""
        metadata = content.get("messageMetadata")
        place = 0 if content.get("type") == "finish" else 2
        inside = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
        top_id, inner_id = content.get("threadId"), inside.get("threadId")
        self.note(place, top_id, content.get("threadKey"), inner_id)
        self.note(place + 1, inner_id, inside.get("threadKey"), top_id)

    def look_in_headers(self, headers: Mapping[str, str], names: tuple[str, str]) -> None:
        """Record the thread in *headers*. *names* are the names of the headers with its id and its key."""
        id, key = map(headers.get, names)
        if id or key:
            self.note(4, id, key)

    def note(self, place: int, id: object, key: object, other_id: object = None) -> None:
        """Record the *id* and the *key* of one place. *other_id* is the id in the place next to it."""
        name = _text_or_none(id)
        if name is not None and copying_slip(name):
            name = None  # no question can name this thread
        if name is not None:
            self._ids[place] = name
        secret = _text_or_none(key)
        if secret is not None:
            self._keys[place] = (secret, name or _text_or_none(other_id))
        self.thread = self._best()

    def _best(self) -> Thread | None:
        sent_thread = self._sent
        id = self._ids[min(self._ids)] if self._ids else sent_thread.id if sent_thread else None
        if id is None or (sent_thread is not None and sent_thread.id == id and sent_thread.key is not None):
            # The service returns the key only once, so the key in the request stays valid.
            return sent_thread
        matches = (self._keys[place][0] for place in sorted(self._keys) if self._keys[place][1] in (None, id))
        return Thread(id, next(matches, None))

    def mask(self, text: str) -> str:
        """Return *text* with all known keys masked."""
        sent_thread = self._sent.key if self._sent else None
        for key in {key for key, _ in self._keys.values()} | {sent_thread, self.secret}:
            text = mask_text(text, key)
        return text


def _text_or_none(content: object) -> str | None:
    return whole_characters(content) if isinstance(content, str) and content else None
