"""Long answers of every shape, as stream events."""

from __future__ import annotations

import random


def long_answer(dice: random.Random) -> str:
    """Return an answer of some 12 000 characters, with code blocks, lists and long paragraphs."""
    blocks = []
    for number in range(40):
        kind = dice.choice(["words", "words", "list", "code", "emoji"])
        if kind == "words":
            blocks.append(" ".join(f"word{number}x{n}" for n in range(dice.randrange(10, 80))) + ".")
        elif kind == "list":
            blocks.append("\n".join(f"- item {number}.{n} of *it*" for n in range(dice.randrange(2, 12))))
        elif kind == "code":
            lines = "\n".join(f"    call_{number}_{n}(value={n})" for n in range(dice.randrange(2, 60)))
            blocks.append(f"```python\n{lines}\n```")
        else:
            blocks.append("😀" * dice.randrange(5, 60))
    return "\n\n".join(blocks)


def content(text: str) -> str:
    """Return everything but white space and the lines of code fences."""
    return "".join(line for line in text.split("\n") if not line.strip().startswith("```")).replace(" ", "")


def events_of(text: str, dice: random.Random) -> list[dict]:
    pieces = []
    at = 0
    while at < len(text):
        size = dice.randrange(1, 12)
        pieces.append({"type": "text-delta", "id": "0", "delta": text[at : at + size]})
        at += size
    start = [{"type": "start", "messageId": "m"}, {"type": "text-start", "id": "0"}]
    return [*start, *pieces, {"type": "text-end", "id": "0"}, {"type": "finish", "finishReason": "stop"}]


def text_part(id: str, *deltas: str) -> list[dict]:
    """Return the events of one text."""
    pieces = [{"type": "text-delta", "id": id, "delta": delta} for delta in deltas]
    return [{"type": "text-start", "id": id}, *pieces, {"type": "text-end", "id": id}]


TWO_TEXTS = [
    *text_part("a", "Let me look ", "that up."),
    {"type": "source-url", "sourceId": "s", "url": "/login", "title": "Log in"},
    *text_part("b", "## Log", " in\n", "\n", "Press it.\n\n"),
    *text_part("c", "```sugg", "estions\n(SSO)[/s", "so]\n``", "`\n"),
    {"type": "finish", "finishReason": "stop"},
]
"""An answer that searches in between, with suggestions in a part of their own."""

READ = (
    "Let me look that up.\n\n## Log in\n\nPress it.\n\n"
    "**Sources**\n\n- [Log in](https://docs.acme.com/login)\n\n"
    "**See also**\n\n- [SSO](https://docs.acme.com/sso)"
)
"""What people read of it."""
