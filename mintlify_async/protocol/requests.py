"""The four requests of the interface, built from checked arguments."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, Literal

from attrs import define, field

from ..messages import Message
from ..model.job_ref import job_segment, path_segment
from ..model.json_text import require_json, require_whole
from ..model.question import ContextItem, SearchFilter
from ..model.thread import Thread
from .argument_checks import (
    ANONYMOUS,
    check_context,
    check_current_path,
    check_extra_body,
    check_filter,
    check_fp,
    check_headers,
    check_page_size,
    check_prompt,
)
from .assumptions import Assumptions
from .secret import Secret

Operation = Literal["create_job", "get_job", "send_message", "ask"]
KeyKind = Literal["admin", "assistant"]

DEFAULT_RETRIEVAL_PAGE_SIZE = 5  # interface 2.3


@define(eq=False, match_args=False)
class Request:
    """One request, ready to be sent: everything but the key and the host.

    Args:
        operation: Which of the four it is.
        method: The HTTP method.
        path: The path, percent-encoded.
        route: The path's template, which is what logs show.
        key_kind: Which key it needs.
        body: The JSON body, or None.
        headers: Further headers.
        project_id: For the agent operations.
        job_id: For the operations on a job.
        domain: For a question.
        thread: The thread that the body names, if any.
        prompt: The prompt, for an observer.
        prompt_sha256: Identifies the prompt without repeating it.
    """

    operation: Operation
    method: str
    path: str
    route: str
    key_kind: KeyKind
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(factory=dict[str, str], repr=False)
    project_id: str | None = None
    job_id: str | None = None
    domain: str | None = None
    thread: Thread | None = None
    prompt: str | None = field(default=None, repr=False)
    prompt_sha256: str | None = None

    @property
    def is_agent_post(self) -> bool:
        """Whether sending it twice would cost a second job or a second turn."""
        return self.operation in ("create_job", "send_message")

    @property
    def is_question(self) -> bool:
        """Whether the answer is a stream."""
        return self.operation == "ask"


def create_job_request(
    assumptions: Assumptions,
    project_id: str,
    prompt: str,
    *,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> Request:
    """Build the request of interface 4.1."""
    route = assumptions.create_job_path
    path = route.format(project_id=path_segment(project_id, "project_id"))
    return _prompt_request("create_job", route, path, prompt, headers, extra_body, project_id)


def get_job_request(
    assumptions: Assumptions, project_id: str, job_id: str, *, headers: Mapping[str, str] | None = None
) -> Request:
    """Build the polling request (interface 4.4 names it without its path)."""
    route = assumptions.get_job_path
    path = _job_path(route, project_id, job_id)
    # By position: keywords take 3,000 instructions.
    return Request("get_job", "GET", path, route, "admin", None, check_headers(headers), project_id, job_id)


def send_message_request(
    assumptions: Assumptions,
    project_id: str,
    job_id: str,
    prompt: str,
    *,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> Request:
    """Build the request of interface 4.2."""
    route = assumptions.send_message_path
    path = _job_path(route, project_id, job_id)
    return _prompt_request("send_message", route, path, prompt, headers, extra_body, project_id, job_id)


def _prompt_request(
    operation: Operation,
    route: str,
    path: str,
    prompt: str,
    headers: Mapping[str, str] | None,
    extra_body: Mapping[str, Any] | None,
    project_id: str,
    job_id: str | None = None,
) -> Request:
    body = {"prompt": check_prompt(prompt), **check_extra_body(extra_body)}
    return Request(
        operation=operation,
        method="POST",
        path=path,
        route=route,
        key_kind="admin",
        body=_ENCODER.encode(body).encode("ascii"),
        headers=check_headers(headers),
        project_id=project_id,
        job_id=job_id,
        prompt=prompt,
        prompt_sha256=prompt_digest(prompt),
    )


def ask_request(
    assumptions: Assumptions,
    domain: str,
    question: str | Sequence[Message],
    *,
    fp: str = ANONYMOUS,
    thread: Thread | None = None,
    retrieval_page_size: float | None = DEFAULT_RETRIEVAL_PAGE_SIZE,
    filter: SearchFilter | Mapping[str, Any] | None = None,
    context: Sequence[ContextItem | Mapping[str, Any]] | None = None,
    current_path: str | None = None,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> Request:
    """Build the request of interface 4.3; optional fields that are None are left out.

    A *question* that is a text becomes one user message with a new id.
    """
    body: dict[str, Any] = {"fp": check_fp(fp), "messages": question}
    if retrieval_page_size is not None:
        body["retrievalPageSize"] = check_page_size(retrieval_page_size)
    if thread is not None:
        body |= {name: Secret(value) for name, value in thread.to_dict().items()}
    if filter is not None:
        body["filter"] = check_filter(filter)
    if context is not None:
        body["context"] = check_context(context)
    if current_path is not None:
        body["currentPath"] = check_current_path(current_path)
    route = assumptions.ask_path
    path = _ask_path(route, domain)
    sent = _question_body(body, check_extra_body(extra_body))
    further = check_headers(headers)
    return Request("ask", "POST", path, route, "assistant", sent, further, None, None, domain, thread)


@lru_cache(maxsize=128)
def _job_path(template: str, project_id: str, job_id: str) -> str:
    return template.format(project_id=path_segment(project_id, "project_id"), job_id=job_segment(job_id))


@lru_cache(maxsize=128)
def _ask_path(template: str, domain: str) -> str:
    return template.format(domain=path_segment(domain, "domain"))


def _question_body(body: dict[str, Any], further: Mapping[str, Any]) -> bytes:
    question, size = body["messages"], body.get("retrievalPageSize")
    if not isinstance(question, str):
        body["messages"] = [message.to_wire() for message in question]
    elif len(body) == 3 and not further and type(size) is int and type(question) is str:
        # Nearly every question; json takes 6 % of opening a stream for it.
        return (
            f'{{"fp":{_quoted(body["fp"])},"messages":[{{"id":"{new_message_id()}","role":"user",'
            f'"parts":[{{"type":"text","text":{_quoted(require_whole(question, "messages"))}}}]}}],'
            f'"retrievalPageSize":{size}}}'
        ).encode("ascii")
    else:
        parts = [{"type": "text", "text": require_whole(question, "messages")}]
        body["messages"] = [{"id": new_message_id(), "role": "user", "parts": parts}]
    text = _ENCODER.encode({**body, **further})
    if "\\ud" in text:  # half of a surrogate pair, or an emoji, which JSON writes as both halves
        require_json(body["messages"], "messages", sent=True)
    return text.encode("ascii")


_ENCODER = json.JSONEncoder(check_circular=False, allow_nan=False, separators=(",", ":"))


def prompt_digest(prompt: str) -> str:
    """Return the SHA-256 of *prompt* in hexadecimal."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


def new_message_id() -> str:
    """Return a random id for a message."""
    return f"msg_{os.urandom(16).hex()}"
