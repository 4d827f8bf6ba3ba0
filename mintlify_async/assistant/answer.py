"""A complete answer of the assistant as a value. Warnings and errors for replies that are read wrongly."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from attrs import frozen

from ..argument_checks import check_bool, check_number, check_optional_text, check_site, check_text
from ..errors import ConfigurationError, StateError
from ..messages import Message
from ..model.pydantic_fields import InModels, object_schema, or_null, schema_of
from ..model.response_info import ResponseInfo
from ..model.strict_json import as_object
from ..model.thread import Thread
from ..model.wire_value import without_halves
from ..rendering.answer_as_markdown import HasAnswer, answer_markdown
from ..rendering.finding_sources import AnswerSource, sources_of
from ..rendering.readable_text import text_after
from ..rendering.suggestions import Suggestion, suggestions_of
from ..runtime.logs import Place, line_of
from ..wrong_names import helpful
from .event_stream import MessageStream

HOW_TO_READ: Final = (
    "`await` it, or read it with `async for event in reply`, or with "
    "`async with reply: async for text in reply.text_stream`"
)


class _Known(HasAnswer, Protocol):
    """The attributes that :class:`Extras` reads."""

    @property
    def thread(self) -> Thread | None: ...

    @property
    def response(self) -> ResponseInfo | None: ...


class Extras:
    """The content of an answer or a reply in addition to its text."""

    __slots__ = ()

    @property
    def sources(self: HasAnswer) -> list[AnswerSource]:
        """The answer's source pages in the order of the answer, each page once, with its sections."""
        return sources_of(message, site=self.site) if (message := self.message) is not None else []

    @property
    def suggestions(self: HasAnswer) -> list[Suggestion]:
        """The pages that the answer suggests to read next. Each page appears once."""
        return suggestions_of(message, site=self.site) if (message := self.message) is not None else []

    @property
    def thread_id(self: _Known) -> str | None:
        """The thread's id, or None."""
        return thread.id if (thread := self.thread) is not None else None

    @property
    def request_id(self: _Known) -> str | None:
        """The request id, or None. Include it when you report a problem."""
        return response.request_id if (response := self.response) is not None else None


@helpful
@frozen(kw_only=True, repr=False)
class Answer(Extras, InModels):
    """A complete answer. ``await`` of a :class:`~mintlify_async.assistant.reply.Reply` returns it.

    It can be a field of a pydantic model and the result of a FastAPI handler. A notebook shows it as
    Markdown. It can be pickled, compared and used as a key of a dict. A pickled answer has no ``thread.key``,
    because no pickle of a thread contains the key.

    Attributes:
        message: The answer as a message with typed parts, as the service sent it. Only lone surrogates are
            replaced by U+FFFD, so that everything can be encoded.
        thread: The conversation's thread, or None. Pass it to the next ``ask``.
        finish_reason: The service's reason for the end: ``stop``, ``length``, …, or None if there is none.
        aborted: Whether the service ended the answer with an ``abort`` event.
        abort_reason: The service's reason for an abort, or None.
        response: Status, headers and request id of the response, or None.
        events_seen: The number of events of the answer.
        site: The site URL, or None. With it, paths in sources, suggestions and links of the text are full
            URLs.
        earlier_text: The text of messages that were replaced, because a second ``start`` had another id. This
            text was shown before, so ``text`` starts with it.
    """

    message: Message
    thread: Thread | None
    finish_reason: str | None
    aborted: bool
    abort_reason: str | None
    response: ResponseInfo | None
    events_seen: int
    site: str | None = None
    earlier_text: str = ""

    @classmethod
    def of(cls, stream: MessageStream, response: ResponseInfo | None, site: str | None) -> Self:
        """Return the complete answer of *stream*."""
        return cls(
            message=stream.message,
            thread=stream.thread,
            finish_reason=stream.finish_reason,
            aborted=stream.aborted,
            abort_reason=stream.abort_reason,
            response=response,
            events_seen=stream.events_seen,
            site=site,
            earlier_text=stream.earlier_text,
        )

    @property
    def text(self) -> str:
        """The answer's text for display, in Markdown.

        A blank line separates text parts, and the ``suggestions`` block is left out. With the session's
        ``site``, links to paths are full URLs. ``message`` has the complete text as the service sent it.
        """
        return text_after(self.earlier_text, self.message, self.site)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a JSON object, without the thread's key and the response's headers.

        It has ``text``, ``sources``, ``suggestions``, ``thread_id`` and ``message``, and the other attributes
        except ``response``. To continue the thread later, also store ``thread.to_json()``.
        """
        return {name: read(self) for name, read in _FIELDS.items()}

    if not TYPE_CHECKING:  # as in InModels, but without making the text again for each field

        def keys(self):
            """Return the names of the fields of the JSON object, for ``dict(value)``."""
            return _FIELDS.keys()

        def __getitem__(self, name):
            """Return the field *name* of the JSON object."""
            return without_halves(_FIELDS[name](self))

    @classmethod
    def from_dict(cls, stored: object) -> Self:
        """Read the result of :meth:`to_dict`. The thread has no key, and there is no response.

        Raises:
            ConfigurationError: *stored* is not the JSON of an answer. The error names the field.
        """
        fields = as_object(stored)
        if fields is None:
            raise ConfigurationError("answer must be an object, as to_dict() returns it", field="answer")
        values = {name: fields.get(name, default) for name, default in _STORED.items()}
        for name in ("thread_id", "finish_reason", "abort_reason"):
            check_optional_text(values[name], f"answer.{name}")
        check_bool(values["aborted"], "answer.aborted")
        check_number(values["events_seen"], "answer.events_seen", 0, whole=True)
        values["site"] = check_site(values["site"], "answer.site")
        check_text(values["earlier_text"], "answer.earlier_text", empty=True)
        thread_id = values.pop("thread_id")
        return cls(
            message=Message.from_wire(fields.get("message"), "answer.message"),
            thread=Thread(thread_id) if thread_id else None,
            response=None,
            **values,
        )

    @classmethod
    def _from_model(cls, content: object) -> Self:
        return cls.from_dict(content)

    _to_model = to_dict

    @classmethod
    def _model_schema(cls) -> dict[str, Any]:
        text = {"type": "string"}
        properties = {
            "text": text,
            "earlier_text": text,
            "sources": {"type": "array", "items": schema_of(AnswerSource)},
            "suggestions": {"type": "array", "items": schema_of(Suggestion)},
            **dict.fromkeys(("thread_id", "finish_reason", "abort_reason", "site"), or_null(text)),
            "aborted": {"type": "boolean"},
            "events_seen": {"type": "integer"},
            "message": schema_of(Message),
        }
        return object_schema(properties, list(properties))

    def _repr_markdown_(self) -> str:
        """Return text, sources and suggestions, which a notebook shows."""
        return answer_markdown(self)

    def __hash__(self) -> int:
        """Hash the hashable fields. The parts of a message may contain dicts, which are not hashable."""
        return hash((self.message.id, self.thread, self.finish_reason, self.events_seen, self.text))

    def __repr__(self) -> str:
        """Show the number of events and the finish reason. The text is left out, because logs show reprs."""
        return f"<Answer {self.events_seen} events, finish_reason={self.finish_reason!r}>"

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report a loop over an answer

        def __aiter__(self):
            """Raise an error that says how to stream."""
            raise TypeError(
                "an Answer is complete and cannot be iterated over; to stream, leave out the await: "
                "`async for event in session.ask(…)`"
            )


_STORED: Final[Mapping[str, Any]] = {
    "thread_id": None,
    "finish_reason": None,
    "aborted": False,
    "abort_reason": None,
    "events_seen": 0,
    "site": None,
    "earlier_text": "",
}
"""The attributes that the JSON of an answer may omit, with their defaults."""

_FIELDS: Final[Mapping[str, Callable[[Answer], Any]]] = {
    "text": attrgetter("text"),
    "sources": lambda answer: [source.to_wire() for source in answer.sources],
    "suggestions": lambda answer: [suggestion.to_wire() for suggestion in answer.suggestions],
    **{name: attrgetter(name) for name in _STORED},
    "message": lambda answer: answer.message.to_wire(),
}
"""Maps each field of an answer's JSON object to the function that makes its value."""


def warn_unread(state: str, made_at: Place) -> None:
    """Warn about a reply that was not read, with the line that made it."""
    warnings.warn_explicit(f"a reply was {state}; {HOW_TO_READ}", ResourceWarning, *line_of(made_at))


def already_read() -> StateError:
    """Return the error for a second task that reads the same reply."""
    return StateError(
        "this reply is already being read by another task; read it in one task, or call ask() again"
    )


def ended(answer: Answer | None) -> StateError:
    """Return the error for reading an ended reply. *answer* is its complete answer, or None."""
    if answer is None:
        return StateError(
            "this reply has ended without a complete answer: it failed, or was closed early; ask again"
        )
    return StateError("this reply has ended, and is read only once: use `reply.answer`, or ask again")
