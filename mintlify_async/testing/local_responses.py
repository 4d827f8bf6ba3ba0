"""The four operations of the API. They make the local service's response to each request. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from attrs import define, field

from ..argument_checks import MAX_DEPTH, check_json
from ..errors import ConfigurationError
from ..model.strict_json import as_object
from .assistant_answers import AnswerStyle, content_events, search_answer, search_step
from .body_checks import ask_mistakes, prompt_mistakes
from .customers import Customer
from .docs_index import DocsIndex
from .http_response import Answer, event_stream, json_answer, too_many_requests
from .local_jobs import JobLife, LocalJob, LocalJobs
from .local_threads import LocalThread, LocalThreads
from .rate_limits import LimitCounter, Limits
from .request_log import RecordedRequest
from .scripted_responses import Rule

ROUTES: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("create_job", "POST", re.compile(r"/v2/agent/(?P<project>[^/]+)/job")),
    ("get_job", "GET", re.compile(r"/v2/agent/(?P<project>[^/]+)/job/(?P<job>[^/]+)")),
    ("send_message", "POST", re.compile(r"/v2/agent/(?P<project>[^/]+)/job/(?P<job>[^/]+)/message")),
    ("ask", "POST", re.compile(r"/discovery/v2/assistant/(?P<domain>[^/]+)/message")),
)

THREAD_HEADERS = {"threadId": "X-Thread-Id", "threadKey": "X-Thread-Key"}


def find_operation(method: str, raw_path: str) -> tuple[str, dict[str, str]]:
    """Return the operation, or ``other``, and the decoded parts of the path."""
    path = raw_path.partition("?")[0]
    for operation, route_method, pattern in ROUTES:
        if method == route_method and (match := pattern.fullmatch(path)):
            return operation, {name: unquote(value) for name, value in match.groupdict().items()}
    return "other", {}


class Refusal(Exception):  # noqa: N818 - it is a response, not an error
    """The service refuses a request."""

    def __init__(self, status: int, *messages: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(*messages)
        self.status, self.messages, self.headers = status, messages, headers

    def to_answer(self, operation: str) -> Answer:
        """Return the response, in the error format of the operation's API."""
        if self.status == 429:
            return too_many_requests(self.headers)
        document: dict[str, Any]
        if operation != "ask" or self.status == 402:
            document = {"error": "; ".join(self.messages)}
        elif self.status == 400:
            document = {"error": "Invalid request", "details": [{"message": one} for one in self.messages]}
        else:
            document = {"message": "; ".join(self.messages)}
        return json_answer(self.status, document, self.headers)


@define(kw_only=True, eq=False)
class Operations:
    """The state of a service and its responses."""

    docs: DocsIndex
    now: Callable[[], float]
    customers: list[Customer]
    style: AnswerStyle
    jobs: LocalJobs
    threads: LocalThreads = field(factory=LocalThreads)
    counter: LimitCounter = field(factory=LimitCounter)
    answers_given: int = 0

    def answer(self, request: RecordedRequest, rule: Rule, life: JobLife, limits: Limits | None) -> Answer:
        """Return the service's own response. *rule* may set the content and the pauses of an answer."""
        try:
            if request.operation == "other":
                raise Refusal(404, f"No such operation: {request.method} {request.path}")
            customer = self._customer(request)
            match request.operation:
                case "create_job":
                    prompt = _prompt(request)
                    headers = self._count(request, limits, customer)
                    job = self.jobs.create(request.params["project"], prompt, life)
                    return json_answer(201, job.record(), headers)
                case "send_message":
                    prompt, job = _prompt(request), self._job(request)
                    headers = self._count(request, limits, customer)
                    self.jobs.follow_up(job, prompt, life)
                    return json_answer(200, job.record(), headers)
                case "get_job":
                    return json_answer(200, self._job(request).record(polled=True))
                case _:
                    return self._ask(request, rule, limits, customer)
        except Refusal as refusal:
            return refusal.to_answer(request.operation)

    def _customer(self, request: RecordedRequest) -> Customer:
        """Return the customer of the request's key. Refuse a key that does not fit operation and path."""
        if request.key is None:
            raise Refusal(401, "Missing API key: send Authorization: Bearer <key>")
        owners = [customer for customer in self.customers if customer.owns(request.key)]
        if not owners:
            raise Refusal(401, "Invalid or expired API key")
        customer = next((one for one in owners if one.missing(request.params) is None), owners[0])
        if (request.operation == "ask") != (request.key == customer.assistant_key):
            raise Refusal(401, "This kind of API key is not accepted here")
        if request.key == customer.read_only_key and request.operation != "get_job":
            raise Refusal(403, "The API key lacks the scope: write")
        if missing := customer.missing(request.params):
            raise Refusal(404, f"{missing.capitalize()} not found")
        return customer

    def _job(self, request: RecordedRequest) -> LocalJob:
        job = self.jobs.find(request.params["project"], request.params["job"])
        if job is None:
            raise Refusal(404, "Job not found")
        return job

    def _ask(self, request: RecordedRequest, rule: Rule, limits: Limits | None, customer: Customer) -> Answer:
        body = _document(request)
        if mistakes := ask_mistakes(body):
            raise Refusal(400, *mistakes)
        headers = self._count(request, limits, customer)
        thread, is_new = self._thread(body, customer)
        *history, question = [_text(one) for one in body["messages"] if one["role"] == "user"] or [""]
        previous = thread.questions or history
        earlier = previous[-1] if previous else None
        thread.questions.append(question)
        self.answers_given += 1
        number, content, search = self.answers_given, rule.content, list[dict[str, Any]]()
        if content is None:
            page_size = int(body.get("retrievalPageSize", 5))
            sections = self.docs.search(_query(question, earlier, body.get("context", ())), page_size)
            content, results = search_answer(question, earlier, sections, self.style.site)
            search = search_step(question, page_size, results, number)
        in_headers, in_finish, thread_events = self._name_thread(thread, is_new=is_new)
        stream = content_events(content, number=number, thread=in_finish, search=search)
        # The client reads the first text before the end is sent, so that the service detects a disconnection.
        events: list[dict[str, Any] | float] = [*stream[:-1], *thread_events, 0.0, stream[-1]]
        pause = self.style.pause if rule.pause is None else rule.pause
        return event_stream(events, headers=headers | in_headers, pause=pause)

    def _thread(self, body: Mapping[str, Any], customer: Customer) -> tuple[LocalThread, bool]:
        """Return the thread of the request, and whether it is new."""
        thread_id: str | None = body.get("threadId")
        if thread_id is None:
            return self.threads.begin(customer.domain, keys=self.style.thread.keys), True
        thread = self.threads.open(thread_id, body.get("threadKey"))
        if thread is None or thread.domain != customer.domain:
            raise Refusal(404, "Thread not found")
        return thread, False

    def _name_thread(
        self, thread: LocalThread, *, is_new: bool
    ) -> tuple[dict[str, str], dict[str, Any], list[dict[str, Any]]]:
        """Return the headers, the fields of ``finish``, and the separate events that name the thread."""
        style = self.style.thread
        key = {"threadKey": thread.key} if is_new and thread.key is not None else {}  # sent only once

        def fields(place: str) -> dict[str, Any]:
            own_id = {"threadId": thread.id} if place in style.id_in else {}
            return own_id | (key if place in style.key_in else {})

        headers = {THREAD_HEADERS[name]: value for name, value in fields("header").items()}
        metadata, data = fields("metadata"), fields("data")
        finish = fields("finish") | ({"messageMetadata": metadata} if metadata else {})
        return headers, finish, [{"type": "data-thread", "data": data, **data}] if data else []

    def _count(self, request: RecordedRequest, limits: Limits | None, customer: Customer) -> dict[str, str]:
        """Count a use, or refuse with 402 or 429. Return the rate limit headers."""
        if customer.credits == 0:
            raise Refusal(402, "Your credits are used up")
        headers = dict[str, str]()
        if limits is not None:
            rules = limits.rules(request.operation, customer.project_id, request.key or "", request.address)
            wait = self.counter.take(rules, self.now())
            headers = self.counter.headers(rules, self.now())
            if wait:
                raise Refusal(429, headers=headers | {"Retry-After": str(math.ceil(wait))})
        if customer.credits is not None:
            customer.credits -= 1
        return headers


def _document(request: RecordedRequest) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(400, "Content-Type must be application/json")
    document = as_object(request.json)
    if document is None:
        raise Refusal(400, "The body must be a JSON object")
    try:
        check_json(document, "the body", depth=2 * MAX_DEPTH)  # one of its values may have this depth
    except ConfigurationError as error:  # the document is nested too deep
        raise Refusal(400, str(error)) from None
    return document


def _prompt(request: RecordedRequest) -> str:
    document = _document(request)
    if mistakes := prompt_mistakes(document):
        raise Refusal(400, *mistakes)
    return str(document["prompt"])


def _query(question: str, earlier: str | None, context: Iterable[Mapping[str, Any]]) -> str:
    """Return the search words of the question, its context and, for a short question, of *earlier*."""
    short = earlier is not None and len(question.split()) <= 6  # "And with a timeout?" needs *earlier*
    return " ".join([question, *(one["value"][:400] for one in context), earlier or "" if short else ""])


def _text(message: Mapping[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")
