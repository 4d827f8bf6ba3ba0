"""Checks of request bodies; a mistake is described as the service does it in a 400."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

ROLES = frozenset({"system", "assistant", "user"})
CONTEXT_TYPES = frozenset({"code", "textSelection"})
CURRENT_PATH_CHARACTERS = 200


def as_object(value: Any) -> dict[str, Any] | None:
    """Return a JSON object, or None for everything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    """Return a JSON array, or None for everything else."""
    return value if isinstance(value, list) else None  # pyright: ignore[reportUnknownVariableType] - JSON


def prompt_mistake(body: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the body of a creation or a follow-up."""
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        return "prompt is required and must be a string"
    return None if prompt else "prompt must be at least 1 character"


def ask_mistakes(body: Mapping[str, Any]) -> list[str]:
    """Return everything that is wrong with the body of a question; unknown names are allowed."""
    return [mistake for check in ASK_CHECKS if (mistake := check(body)) is not None]


def _first_mistake(name: str, values: list[Any], check: Callable[[str, Any], str | None]) -> str | None:
    mistakes = (check(f"{name}[{number}]", value) for number, value in enumerate(values))
    return next((mistake for mistake in mistakes if mistake is not None), None)


def _fp(body: Mapping[str, Any]) -> str | None:
    return None if isinstance(body.get("fp"), str) and body["fp"] else "fp is required and must be a string"


def _messages(body: Mapping[str, Any]) -> str | None:
    messages = as_list(body.get("messages"))
    if not messages:
        return "messages is required and must be an array that is not empty"
    return _first_mistake("messages", messages, _message)


def _message(name: str, value: Any) -> str | None:
    message = as_object(value)
    if message is None or not isinstance(message.get("id"), str):
        return f"{name}.id is required and must be a string"
    if message.get("role") not in ROLES:
        return f"{name}.role must be one of system, assistant, user"
    for part in [as_object(part) for part in as_list(message.get("parts")) or [None]]:
        if part is None or not isinstance(part.get("type"), str):
            return f"{name}.parts is required and must be an array of parts with a type"
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            return f"{name}.parts: a text part needs a text"
    return None


def _thread(body: Mapping[str, Any]) -> str | None:
    wrong = [name for name in ("threadId", "threadKey") if not isinstance(body.get(name), str | None)]
    return f"{wrong[0]} must be a string or null" if wrong else None


def _page_size(body: Mapping[str, Any]) -> str | None:
    size = body.get("retrievalPageSize", 5)
    valid = isinstance(size, int | float) and not isinstance(size, bool) and size >= 1
    return None if valid else "retrievalPageSize must be a number of at least 1"


def _filter(body: Mapping[str, Any]) -> str | None:
    if body.get("filter") is None:
        return None
    criteria = as_object(body["filter"])
    if criteria is None:
        return "filter must be an object or null"
    if not all(isinstance(criteria.get(name), str | None) for name in ("version", "language")):
        return "filter.version and filter.language must be strings"
    groups = as_list(criteria.get("groups", []))
    if groups is None or not all(isinstance(group, str) for group in groups):
        return "filter.groups must be an array of strings"
    return None


def _context(body: Mapping[str, Any]) -> str | None:
    context = as_list(body.get("context", []))
    return (
        "context must be an array" if context is None else _first_mistake("context", context, _context_object)
    )


def _context_object(name: str, value: Any) -> str | None:
    one = as_object(value)
    if one is None or one.get("type") not in CONTEXT_TYPES:
        return f"{name}.type must be code or textSelection"
    if not isinstance(one.get("value"), str):
        return f"{name}.value is required and must be a string"
    if not all(isinstance(one.get(part, ""), str) for part in ("path", "elementId")):
        return f"{name}.path and elementId must be strings"
    return None


def _current_path(body: Mapping[str, Any]) -> str | None:
    path = body.get("currentPath", "")
    if not isinstance(path, str):
        return "currentPath must be a string"
    if len(path) > CURRENT_PATH_CHARACTERS:
        return f"currentPath must be at most {CURRENT_PATH_CHARACTERS} characters"
    return None


ASK_CHECKS = (_fp, _messages, _thread, _page_size, _filter, _context, _current_path)
