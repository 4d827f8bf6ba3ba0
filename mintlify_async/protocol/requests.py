"""The requests of the four operations. Each request is a :class:`Call`, made from checked arguments."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from urllib.parse import quote

from attrs import define, evolve, field

from ..argument_checks import (
    check_current_path,
    check_extra_body,
    check_fp,
    check_headers,
    check_job_id,
    check_json,
    check_page_size,
    check_prompt,
    check_seconds,
    check_segment,
)
from ..errors import ConfigurationError, printable
from ..messages import MESSAGES_DEPTH, Message, Question, coerce_messages
from ..model.context_and_filter import ContextItem, SearchFilter, context_fields, filter_fields
from ..model.operation import ASK, CREATE_JOB, GET_JOB, SEND_MESSAGE, Operation
from ..model.secret import Secret
from ..model.thread import Thread
from ..model.wire_value import EMPTY, MISSING, Missing, without_halves
from ..settings.options import Options, Timeouts

if TYPE_CHECKING:
    from ..quota.quota import Quota


class RequestOptions(TypedDict, total=False):
    """Options of every request except a poll. If an option is missing, the session's option is used."""

    timeout: float | None
    headers: Mapping[str, str] | None
    extra_body: Mapping[str, Any] | None


class TurnOptions(RequestOptions, total=False):
    """Options of one question. ``session.ask`` documents each option."""

    retrieval_page_size: float | Missing | None
    filter: SearchFilter | Mapping[str, Any] | None
    context: Sequence[ContextItem | Mapping[str, Any]] | None
    current_path: str | None


class AskOptions(TurnOptions, total=False):
    """All options of ``session.ask``. A conversation sets the following three itself."""

    thread: Thread | str | None
    fp: str | None
    domain: str | None


_TURN_OPTIONS = TurnOptions.__optional_keys__
_OF_CONVERSATION = {
    "fp": "session.conversation(fp=…) names the user: make one conversation for each user",
    "thread": "the conversation keeps its thread",
    "domain": "session.with_options(domain=…).conversation(…) asks about another site",
}


SHORTEST_SECONDS = 0.001
"""The time of a call whose limit has already passed, in seconds."""


@define(kw_only=True, eq=False)  # not frozen, because making a frozen call takes twice as long
class Call:
    """One request, without the key and the host.

    Args:
        operation: The operation.
        path: The path, percent-encoded.
        route: The template of the path. Logs show it.
        timeouts: The limits of the request's steps.
        seconds: The limit of the complete call: of an answer to a question, or of an agent request with all
            attempts and pauses. Infinity means no limit.
        limited: Whether the caller set this limit with ``timeout=``. Then it also limits waits for a slot.
        headers: Additional headers.
        body: The JSON body, or None.
        project_id: The project of an agent operation.
        job_id: The job of an operation on a job.
        domain: The domain of a question.
        thread: The thread that a question continues, if any.
        fp: The user of a question, as the service gets it.
        prompt: The prompt of an agent job.
        extra_body: The fields of the body that the interface does not document.
        messages: The messages of a question.
    """

    operation: Operation
    path: str
    route: str
    timeouts: Timeouts
    seconds: float
    limited: bool = False
    headers: Mapping[str, str] = field(default=EMPTY, repr=False)
    body: bytes | None = field(default=None, repr=False)
    project_id: str | None = None
    job_id: str | None = None
    domain: str | None = None
    thread: Thread | None = None
    fp: str = ""
    prompt: str = field(default="", repr=False)
    extra_body: Mapping[str, Any] = field(default=EMPTY, repr=False)
    messages: Sequence[Message] = field(default=(), repr=False)

    @property
    def text(self) -> str:
        """The text of a question, which is the text of the user's last message."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def continued(self) -> Message | None:
        """The assistant's message that the answer to a question continues, or None."""
        return self.messages[-1] if self.messages and self.messages[-1].role == "assistant" else None

    @property
    def request_seconds(self) -> float:
        """The limit of the request without the waits for a slot, from *timeouts*, in seconds."""
        limit: float | None = getattr(self.timeouts, self.operation.limit)
        return math.inf if limit is None else limit

    def until(self, now: float) -> float:
        """Return when a call that starts *now* must have ended. Infinity if the caller set no limit."""
        return now + self.seconds if self.limited else math.inf

    def within(self, seconds: float) -> Call:
        """Return the same call with a limit of *seconds*. If they have passed, the limit is a millisecond."""
        return evolve(self, seconds=max(seconds, SHORTEST_SECONDS), limited=True)


def create_job_call(
    defaults: Options, prompt: str, *, project_id: str | None = None, **options: Unpack[RequestOptions]
) -> Call:
    """Return the call that creates a job.

    Raises:
        ConfigurationError: An argument is invalid, or there is no project.
    """
    body, project = {"prompt": check_prompt(prompt)}, defaults.project(project_id)
    return _call(defaults, CREATE_JOB, options, body, project_id=project, prompt=prompt)


def send_message_call(
    defaults: Options, project_id: str, job_id: str, prompt: str, **options: Unpack[RequestOptions]
) -> Call:
    """Return the call that sends a follow-up.

    Raises:
        ConfigurationError: An argument is invalid.
    """
    body = {"prompt": check_prompt(prompt)}
    return _call(defaults, SEND_MESSAGE, options, body, project_id=project_id, job_id=job_id, prompt=prompt)


def get_job_call(defaults: Options, project_id: str, job_id: str, *, timeout: float | None = None) -> Call:
    """Return the call that polls a job, for *timeout* seconds at most. Its path is not documented."""
    if timeout is not None:
        timeout = min(timeout, defaults.timeouts.request)
    return _call(defaults, GET_JOB, {"timeout": timeout}, project_id=project_id, job_id=job_id)


def ask_call(defaults: Options, question: Question, options: AskOptions) -> Call:
    """Return the call that asks a question. If an optional field is None, it is not sent.

    Raises:
        ConfigurationError: An argument is invalid, or there is no domain.
    """
    domain, fp = defaults.asked_domain(options.get("domain")), options.get("fp")
    thread = Thread.of(options.get("thread"))
    messages = coerce_messages(question, new_message_id)
    fp = defaults.fp if fp is None else check_fp(fp)
    if defaults.quota is not None:
        fp = _counted_user(defaults, defaults.quota, fp, options)
    size = options.get("retrieval_page_size", MISSING)
    size = defaults.retrieval_page_size if size is MISSING else check_page_size(size)
    body: dict[str, Any] = {"fp": fp, "messages": [message.to_wire() for message in messages]}
    if size is not None:
        body["retrievalPageSize"] = size
    if thread is not None:
        body |= {name: Secret(value) for name, value in thread.to_dict().items()}
    for name, wire_name, fields_of in _FIELDS:
        if (option := options.get(name)) is not None:
            body[wire_name] = fields_of(option)
    return _call(defaults, ASK, options, body, domain=domain, thread=thread, fp=fp, messages=messages)


def _counted_user(defaults: Options, quota: Quota, fp: str, options: AskOptions) -> str:
    """Return the user that is sent and counted, which is *fp* or the field of the body that replaces it."""
    for fields in (defaults.extra_body, options.get("extra_body") or EMPTY):
        fp = fields.get("fp", fp)
    quota.check_user(fp)
    return fp


def check_turn_options(options: Mapping[str, Any]) -> None:
    """Check the names of the options of one question of a conversation.

    Raises:
        ConfigurationError: The conversation sets this option.
        TypeError: The option does not exist.
    """
    for name in _OF_CONVERSATION.keys() & options.keys():
        raise ConfigurationError(
            f"ask() of a conversation has no {name}=: {_OF_CONVERSATION[name]}", field=name
        )
    if unknown := options.keys() - _TURN_OPTIONS:
        name = printable(repr(min(unknown)), 40)
        raise TypeError(f"ask() has no option {name}; it takes {', '.join(sorted(_TURN_OPTIONS))}")


def _call(
    defaults: Options,
    operation: Operation,
    options: RequestOptions,
    body: dict[str, Any] | None = None,
    *,
    project_id: str | None = None,
    job_id: str | None = None,
    domain: str | None = None,
    thread: Thread | None = None,
    fp: str = "",
    prompt: str = "",
    messages: Sequence[Message] = (),
) -> Call:
    """Return the call with *body*, and with the *options* that all requests have."""
    headers, further_fields, timeout = defaults.headers, defaults.extra_body, options.get("timeout")
    if (own_fields := options.get("extra_body")) is not None:
        further_fields = {**further_fields, **check_extra_body(own_fields)}
    if (own_headers := options.get("headers")) is not None:
        headers = {**headers, **check_headers(own_headers)}
    if timeout is not None:
        check_seconds(timeout, "timeout", none="means no limit of its own")
    route: str = getattr(defaults.assumptions, f"{operation.name}_path")
    limit: float | None = getattr(defaults.timeouts, operation.limit) if timeout is None else timeout
    return Call(
        operation=operation,
        path=_path(route, project_id, job_id, domain),
        route=route,
        timeouts=defaults.timeouts,
        seconds=math.inf if limit is None else max(limit, SHORTEST_SECONDS),
        limited=timeout is not None,
        headers=headers,
        body=None if body is None else _encoded(body, further_fields),
        project_id=project_id,
        job_id=job_id,
        domain=domain,
        thread=thread,
        fp=fp,
        prompt=prompt,
        extra_body=further_fields,
        messages=messages,
    )


def _encoded(body: dict[str, Any], further_fields: Mapping[str, Any]) -> bytes:
    """Return *body* as JSON. *further_fields* replace fields of the same name."""
    text = _ENCODER.encode({**body, **further_fields} if further_fields else body)
    # The text contains a lone surrogate, or an emoji, which JSON writes as two surrogates.
    if "\\ud" in text and "messages" in body:
        # In an answer, lone surrogates from the service are replaced.
        body["messages"] = [
            without_halves(message) if message["role"] == "assistant" else message
            for message in body["messages"]
        ]
        check_json(body["messages"], "messages", sent=True, depth=MESSAGES_DEPTH)
        text = _ENCODER.encode({**body, **further_fields})
    return text.encode("ascii")


@lru_cache(maxsize=128)
def _path(template: str, project_id: str | None, job_id: str | None, domain: str | None) -> str:
    return template.format(
        project_id=project_id and quote(check_segment(project_id, "project_id"), safe=""),
        job_id=job_id and quote(check_job_id(job_id), safe=""),
        domain=domain and quote(check_segment(domain, "domain"), safe=""),
    )


_FIELDS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("filter", "filter", filter_fields),
    ("context", "context", context_fields),
    ("current_path", "currentPath", check_current_path),
)
_ENCODER = json.JSONEncoder(check_circular=False, allow_nan=False, separators=(",", ":"))


def new_message_id() -> str:
    """Return a random id for a message."""
    return f"msg_{os.urandom(16).hex()}"
