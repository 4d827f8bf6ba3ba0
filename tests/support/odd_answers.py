"""Random answers with odd ids, titles, URLs, metadata and texts, as a service may send them."""

from __future__ import annotations

import json
import random
from typing import Any

import attrs

from mintlify_async import Answer, answer_markdown, extras_markdown
from mintlify_async.events import ReasoningDelta, StreamEvent, TextDelta, ToolInputDelta
from mintlify_async.messages import Message

HALVES = ["\ud83d", "\ude00", "cut \ud83d", "\ude00 cut", "\ud83d\ud83d", "\ude00\ud83d", "a\udfffb"]
PLAIN = [
    "",
    "a",
    "/login#a",
    "https://docs.example/a?b#c",
    "\U0001f600",
    "é",
    "\0",
    "\n",
    "\u2028",
    "__proto__",
]
LONG = ["x" * 199 + "\ud83d", "x" * 201]
SUGGESTIONS = "\n\n```suggestions\n(Next \ud83d)[/next\ude00]\n[Last](/last)\n```\n"


class OddAnswers:
    """Makes the events of answers. Each is well-formed; its strings and JSON values are not what one expects.

    Args:
        seed: The same seed makes the same answers.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._number = 0

    def text(self) -> str:
        return self._dice.choice(self._dice.choice([HALVES, HALVES, PLAIN, LONG]))

    def json(self, depth: int = 3) -> Any:
        """Return a JSON value, often with halves of characters in names and strings."""
        kind = self._dice.randrange(8 if depth else 5)
        if kind < 5:
            return [None, True, 1e300, -7, self.text()][kind]
        items = [self.json(depth - 1) for _ in range(self._dice.randrange(3))]
        return items if kind == 5 else {self.text(): item for item in items}

    def _maybe(self, name: str, value: Any) -> dict[str, Any]:
        return {name: value} if self._dice.random() < 0.6 else {}

    def _metadata(self) -> dict[str, Any]:
        return self._maybe("providerMetadata", {self.text(): {self.text(): self.json()}})

    def _block(self, kind: str) -> list[dict[str, Any]]:
        id, pieces = self.text(), [self.text() for _ in range(self._dice.randrange(5))]
        if kind == "text" and self._dice.random() < 0.4:
            pieces.append(SUGGESTIONS)
        deltas = [{"type": f"{kind}-delta", "id": id, "delta": piece} for piece in pieces]
        end = [{"type": f"{kind}-end", "id": id, **self._metadata()}] if self._dice.random() < 0.8 else []
        return [{"type": f"{kind}-start", "id": id, **self._metadata()}, *deltas, *end]

    def _call(self) -> list[dict[str, Any]]:
        call = {"toolCallId": self.text(), "toolName": self._dice.choice(["search", self.text()])}
        delta = {"type": "tool-input-delta", "toolCallId": call["toolCallId"], "inputTextDelta": self.text()}
        found = {"path": f"/{self.text()}", "metadata": {"title": self.text()}}
        output = self._dice.choice([{"results": [found]}, self.json()])
        outcome = self._dice.choice(
            [
                {"type": "tool-output-available", "toolCallId": call["toolCallId"], "output": output},
                {"type": "tool-output-error", "toolCallId": call["toolCallId"], "errorText": self.text()},
            ]
        )
        start = {"type": "tool-input-start", **call}
        return [start, delta, delta, {"type": "tool-input-available", **call, "input": self.json()}, outcome]

    def _other(self) -> list[dict[str, Any]]:
        url, title = self.text() or "/a", self.text()
        return [
            self._dice.choice(
                [
                    {
                        "type": "source-url",
                        "sourceId": self.text(),
                        "url": url,
                        "title": title,
                        **self._metadata(),
                    },
                    {"type": "source-document", "sourceId": self.text(), "mediaType": "a/b", "title": title},
                    {"type": "file", "url": f"https://files.example/{url}", "mediaType": self.text()},
                    {"type": "custom", "kind": self.text(), **self._metadata()},
                    {"type": f"data-{self.text()}", "data": self.json(), **self._maybe("id", self.text())},
                    {"type": "message-metadata", "messageMetadata": self.json()},
                    {"type": f"next-{self.text()}", self.text(): self.json()},
                    {"type": "start-step"},
                ]
            )
        ]

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the next answer, which has a text."""
        self._number += 1
        start = {"type": "start", **self._maybe("messageId", self.text())}
        body = [
            event
            for _ in range(self._dice.randrange(1, 8))
            for event in self._dice.choice([lambda: self._block("reasoning"), self._call, self._other])()
        ]
        finish = {"type": "finish", **self._maybe("finishReason", self.text())}
        thread = self._dice.choice(
            [{}, {"threadId": self.text()}, {"threadId": "t", "threadKey": self.text()}]
        )
        return [
            {**start, **self._maybe("messageMetadata", {self.text(): self.json()})},
            *body,
            *self._block("text"),
            {"type": "text-start", "id": "last"},
            {"type": "text-delta", "id": "last", "delta": f"Answer {self._number} \ud83d"},
            {"type": "text-delta", "id": "last", "delta": "\ude00 ends with \ud83d"},
            {**finish, **self._maybe("messageMetadata", {self.text(): self.json()}), **thread},
        ]


def encode(value: Any) -> bytes:
    """Write a JSON value as web frameworks do. Raises UnicodeEncodeError for half of a character."""
    return json.dumps(value, ensure_ascii=False).encode()


def check_event(event: StreamEvent) -> None:
    """Everything in *event* can be encoded, but a piece whose other half may follow."""
    pieces = {TextDelta: "delta", ReasoningDelta: "delta", ToolInputDelta: "input_text_delta"}
    fields = attrs.asdict(event)
    fields.pop(pieces.get(type(event), ""), None)
    json.dumps([event.type, fields], ensure_ascii=False, default=str).encode()


def check_message(message: Message) -> None:
    """Everything in *message* can be encoded."""
    json.dumps(attrs.asdict(message), ensure_ascii=False, default=str).encode()
    json.dumps([part.type for part in message.parts], ensure_ascii=False).encode()
    encode(message.to_wire())
    for text in (message.text, extras_markdown(message), answer_markdown(message)):
        text.encode()


def check_answer(answer: Answer) -> None:
    """Everything that a program can write of *answer* can be encoded."""
    check_message(answer.message)
    assert answer.text.endswith("\U0001f600 ends with \ufffd")
    for text in (answer.text, answer.finish_reason, answer.thread_id, extras_markdown(answer)):
        (text or "").encode()
    for value in (*answer.sources, *answer.suggestions):
        encode(value.to_wire())
        repr(attrs.astuple(value)).encode()
    if answer.thread is not None:
        encode(answer.thread.to_dict())
