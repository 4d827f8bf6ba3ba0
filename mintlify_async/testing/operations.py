"""The four operations of the interface: what the local service answers to each request. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from attrs import define, field, frozen

from ..model.json_text import as_object
from ..runtime.dates import now as date_now
from .assistant_answers import AnswerStyle, Content, Question, answer_events, content_events
from .docs_search import DocsIndex
from .http_answer import Answer, event_stream, json_answer
from .local_jobs import JobLife, LocalJob, LocalJobs
from .local_threads import LocalThread, LocalThreads, ThreadStyle
from .rate_limits import LimitCounter, Limits
from .request_checks import ask_mistakes, prompt_mistakes
from .request_log import RecordedRequest

ROUTES: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("create_job", "POST", re.compile(r"/v2/agent/(?P<project>[^/]+)/job")),
    ("get_job", "GET", re.compile(r"/v2/agent/(?P<project>[^/]+)/job/(?P<job>[^/]+)")),
    ("send_message", "POST", re.compile(r"/v2/agent/(?P<project>[^/]+)/job/(?P<job>[^/]+)/message")),
    ("ask", "POST", re.compile(r"/discovery/v2/assistant/(?P<domain>[^/]+)/message")),
)


def find_operation(method: str, raw_path: str) -> tuple[str, dict[str, str]]:
    """Return the operation, or ``other``, and the decoded parts of the path."""
    path = raw_path.partition("?")[0]
    for operation, wanted, pattern in ROUTES:
        if method == wanted and (match := pattern.fullmatch(path)):
            return operation, {name: unquote(value) for name, value in match.groupdict().items()}
    return "other", {}


class Refusal(Exception):  # noqa: N818 - it is an answer, not an error
    """The service refuses a request."""

    def __init__(self, status: int, *messages: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(*messages)
        self.status, self.messages, self.headers = status, messages, headers

    def to_answer(self, operation: str) -> Answer:
        """Return the answer, in the error format of the operation's API."""
        document: dict[str, Any]
        if operation != "ask":
            document = {"error": "; ".join(self.messages)}
        elif self.status == 400:
            document = {"error": "Invalid request", "details": [{"message": one} for one in self.messages]}
        else:
            document = {"message": "; ".join(self.messages)}
        return json_answer(self.status, document, self.headers)


@frozen(kw_only=True)
class Keys:
    """The API keys that a service accepts. They are the same in every service unless you give others.

    Args:
        admin: An admin key with every scope.
        assistant: An assistant key.
        read_only: An admin key that may only read jobs: every other operation gets a 403.
        expired: A key that has expired: every operation gets a 401.
    """

    admin: str = "mint_test_admin_0123456789abcdef"
    assistant: str = "mint_dsc_test_assistant_0123456789abcdef"
    read_only: str = "mint_test_read_only_0123456789abcdef"
    expired: str = "mint_test_expired_0123456789abcdef"

    def check(self, operation: str, key: str | None) -> None:
        """Refuse a key that is not good for *operation*."""
        if key is None:
            raise Refusal(401, "Missing API key: send Authorization: Bearer <key>")
        if key not in (self.admin, self.assistant, self.read_only):
            raise Refusal(401, "Invalid or expired API key")
        if (operation == "ask") != (key == self.assistant):
            raise Refusal(401, "This kind of API key is not accepted here")
        if key == self.read_only and operation != "get_job":
            raise Refusal(403, "The API key lacks the scope: write")


@define(kw_only=True, eq=False)
class Operations:
    """The state of a service and its answers; the fields are the arguments of ``LocalService``."""

    docs: DocsIndex
    now: Callable[[], float]
    keys: Keys
    project_id: str | None
    domain: str | None
    style: AnswerStyle
    thread_style: ThreadStyle
    jobs: LocalJobs
    threads: LocalThreads = field(factory=LocalThreads)
    counter: LimitCounter = field(factory=LimitCounter)
    answers_given: int = 0

    def answer(
        self,
        request: RecordedRequest,
        life: JobLife,
        limits: Limits | None,
        content: Content | None = None,
        pause: float | None = None,
    ) -> Answer:
        """Return the service's own answer.

        *life* says how the job proceeds, *content* what is answered to a question, *pause* how fast.
        """
        try:
            if request.operation != "other":
                self.keys.check(request.operation, request.key)
                self._check_place(request)
            match request.operation:
                case "create_job":
                    return self._create_job(request, life, limits)
                case "get_job":
                    return json_answer(200, self._job(request).record(polled=True))
                case "send_message":
                    return self._send_message(request, life, limits)
                case "ask":
                    return self._ask(request, limits, content, self.style.pause if pause is None else pause)
                case _:
                    raise Refusal(404, f"No such operation: {request.method} {request.path}")
        except Refusal as refusal:
            return refusal.to_answer(request.operation)

    def _check_place(self, request: RecordedRequest) -> None:
        project, domain = request.params.get("project"), request.params.get("domain")
        if project is not None and self.project_id not in (None, project):
            raise Refusal(404, "Project not found")
        if domain is not None and self.domain not in (None, domain):
            raise Refusal(404, "Domain not found")

    def _create_job(self, request: RecordedRequest, life: JobLife, limits: Limits | None) -> Answer:
        prompt = _prompt(request)
        headers = self._count(request, limits)
        job = self.jobs.create(request.params["project"], prompt, life)
        return json_answer(201, job.record(), headers)

    def _send_message(self, request: RecordedRequest, life: JobLife, limits: Limits | None) -> Answer:
        prompt = _prompt(request)
        job = self._job(request)
        headers = self._count(request, limits)
        self.jobs.follow_up(job, prompt, life)
        return json_answer(200, job.record(), headers)

    def _job(self, request: RecordedRequest) -> LocalJob:
        job = self.jobs.find(request.params["project"], request.params["job"])
        if job is None:
            raise Refusal(404, "Job not found")
        return job

    def _ask(
        self, request: RecordedRequest, limits: Limits | None, content: Content | None, pause: float
    ) -> Answer:
        body = _document(request)
        if mistakes := ask_mistakes(body):
            raise Refusal(400, *mistakes)
        headers = self._count(request, limits)
        thread, is_new = self._thread(body)
        question = _question(body, thread)
        thread.questions.append(question.text)
        self.answers_given += 1
        in_headers, in_finish, events = self._name_thread(thread, is_new=is_new)
        if content is not None:
            stream = content_events(content, number=self.answers_given, thread=in_finish)
        else:
            results = self.docs.search(
                question.query, question.page_size, criteria=question.criteria, near=question.current_path
            )
            stream = answer_events(
                question, results, number=self.answers_given, style=self.style, thread=in_finish
            )
        return event_stream([*stream[:-1], *events, stream[-1]], headers=headers | in_headers, pause=pause)

    def _thread(self, body: Mapping[str, Any]) -> tuple[LocalThread, bool]:
        """Return the thread of the request, and whether it is new."""
        thread_id: str | None = body.get("threadId")
        if thread_id is None:
            return self.threads.begin(keys=self.thread_style.keys), True
        thread = self.threads.open(thread_id, body.get("threadKey"))
        if thread is None:
            raise Refusal(404, "Thread not found")
        return thread, False

    def _name_thread(
        self, thread: LocalThread, *, is_new: bool
    ) -> tuple[dict[str, str], dict[str, Any], list[dict[str, Any]]]:
        """Return what names the thread: headers, fields of ``finish``, and events of their own."""
        style = self.thread_style
        named: dict[str, dict[str, str]] = {place: {} for place in ("header", "finish", "metadata", "data")}
        for place in style.id_in:
            named[place]["threadId"] = thread.id
        if is_new and thread.key is not None:  # the key is sent once
            for place in style.key_in:
                named[place]["threadKey"] = thread.key
        header_names = {"threadId": "X-Thread-Id", "threadKey": "X-Thread-Key"}
        finish: dict[str, Any] = dict(named["finish"])
        if named["metadata"]:
            finish["messageMetadata"] = named["metadata"]
        events = [{"type": "data-thread", "data": named["data"], **named["data"]}] if named["data"] else []
        return {header_names[name]: value for name, value in named["header"].items()}, finish, events

    def _count(self, request: RecordedRequest, limits: Limits | None) -> dict[str, str]:
        """Count a use, or refuse with 429; return the rate limit headers."""
        if limits is None:
            return {}
        rules = limits.rules(
            request.operation, request.params.get("project", ""), request.key or "", request.address
        )
        now = self.now()
        wait = self.counter.take(rules, now)
        headers = self.counter.headers(rules, now, date_now()) if limits.reset_headers else {}
        if wait is None:
            return headers
        if limits.retry_after:
            headers["Retry-After"] = str(math.ceil(wait))
        raise Refusal(429, "Rate limit exceeded", headers=headers)


def _document(request: RecordedRequest) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(400, "Content-Type must be application/json")
    document = as_object(request.json)
    if document is None:
        raise Refusal(400, "The body must be a JSON object")
    return document


def _prompt(request: RecordedRequest) -> str:
    document = _document(request)
    if mistakes := prompt_mistakes(document):
        raise Refusal(400, *mistakes)
    return str(document["prompt"])


def _question(body: Mapping[str, Any], thread: LocalThread) -> Question:
    """Return the last user message as a question, with the questions before it."""
    asked = [_text(message) for message in body["messages"] if message["role"] == "user"]
    return Question(
        text=asked[-1] if asked else "",
        earlier=tuple(thread.questions) or tuple(asked[:-1]),
        page_size=int(body.get("retrievalPageSize", 5)),
        criteria=body.get("filter"),
        context=body.get("context", []),
        current_path=body.get("currentPath"),
    )


def _text(message: Mapping[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")
