"""Reads a reader's verdict on an answer. Any client can send one, so only few values are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from attrs import frozen

from .json_values import is_id
from .refusals import RelayRefusal

if TYPE_CHECKING:
    from starlette.requests import Request

    from .request_body import BodyReader

MAX_BODY_BYTES = 4096


@frozen(kw_only=True)
class RelayFeedback:
    """A reader's verdict on an answer; the argument of the relay's ``on_feedback``.

    The ids are those that the page sent. The relay does not know whether such an answer exists, or to which
    user it belongs. Compare them with what your ``on_finish`` stored. A reader may send a verdict again to
    change it.

    Attributes:
        user: The user's id, as your ``user`` function returned it.
        chat_id: The id that the page gave the chat, or None; at most 200 printable characters.
        message_id: The id of the answer in the page; 1 to 200 printable characters.
        value: 1 for a good answer, -1 for a bad one.
    """

    user: str
    chat_id: str | None
    message_id: str
    value: Literal[1, -1]


async def read_feedback(request: Request, user: str, bodies: BodyReader) -> RelayFeedback:
    """Read the verdict in *request*.

    Raises:
        RelayRefusal: The request is not JSON, too large, too slow, or not a verdict.
        ClientDisconnect: The reader left before the whole request had arrived.
    """
    body = await bodies.read(request, "feedback", most=MAX_BODY_BYTES)
    chat_id, message_id, value = body.get("chatId"), body.get("messageId"), body.get("value")
    sign = _VALUES.get(value) if type(value) is int else None  # True and 1.0 are equal to 1
    if sign and is_id(message_id) and (chat_id is None or is_id(chat_id)):
        return RelayFeedback(user=user, chat_id=chat_id, message_id=message_id, value=sign)
    raise RelayRefusal(400, "Feedback needs a messageId, and 1 or -1 as its value.")


_VALUES: Mapping[int, Literal[1, -1]] = {1: 1, -1: -1}
