"""Checks request bodies. The text of a mistake is the text of the service's 400."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import frozen

from ..argument_checks import CURRENT_PATH_MAX_CHARACTERS
from ..model.strict_json import as_object

ROLES: Final = ("system", "assistant", "user")
CONTEXT_TYPES: Final = ("code", "textSelection")

_KINDS: Final[Mapping[str, Any]] = {
    "a string": (str,),
    "a string or null": (str, type(None)),
    "a number": (int, float),
    "an object or null": (dict, type(None)),
    "an array": (list,),
}

_UNITS: Final = {"a string": " character", "an array": " item"}


@frozen
class _Checked:
    """A JSON object of a request, its place, and the mistakes found up to now."""

    content: Mapping[str, Any]
    where: str
    mistakes: list[str]

    def check(self, name: str, kind: str, *, required: bool = False, some: bool = False) -> Any:
        """Return a field, or None if it is wrong or absent. With *some*, it must not be empty or below 1."""
        if not required and name not in self.content:
            return None
        value: Any = self.content.get(name)
        if not isinstance(value, _KINDS[kind]) or isinstance(value, bool):
            self.refuse(f"{name} {'is required and ' if required else ''}must be {kind}")
        elif some and (value if kind == "a number" else len(value)) < 1:
            self.refuse(f"{name} must be at least 1{_UNITS.get(kind, '')}")
        else:
            return value
        return None

    def check_word(self, name: str, words: tuple[str, ...]) -> None:
        """Check that a field is one of *words*."""
        if self.content.get(name) not in words:
            self.refuse(f"{name} must be one of {', '.join(words)}")

    def objects(self, name: str, *, some: bool = False) -> Iterator[_Checked]:
        """Yield the objects of an array. With *some*, the array is required."""
        for number, value in enumerate(self.check(name, "an array", required=some, some=some) or ()):
            yield _Checked(as_object(value) or {}, f"{self.where}{name}[{number}].", self.mistakes)

    def refuse(self, mistake: str) -> None:
        self.mistakes.append(self.where + mistake)


def prompt_mistakes(body: Mapping[str, Any]) -> list[str]:
    """Return the mistakes in the body of a new job or a follow-up."""
    top = _Checked(body, "", [])
    top.check("prompt", "a string", required=True, some=True)
    return top.mistakes


def ask_mistakes(body: Mapping[str, Any]) -> list[str]:
    """Return all mistakes in the body of a question. Unknown names are allowed."""
    top = _Checked(body, "", [])
    top.check("fp", "a string", required=True, some=True)
    for message in top.objects("messages", some=True):
        message.check("id", "a string", required=True)
        message.check_word("role", ROLES)
        for part in message.objects("parts", some=True):
            if part.check("type", "a string", required=True) == "text":
                part.check("text", "a string", required=True)
    top.check("threadId", "a string or null")
    top.check("threadKey", "a string or null")
    top.check("retrievalPageSize", "a number", some=True)
    if criteria := top.check("filter", "an object or null"):
        below = _Checked(criteria, "filter.", top.mistakes)
        below.check("version", "a string or null")
        below.check("language", "a string or null")
        if not all(isinstance(group, str) for group in below.check("groups", "an array") or ()):
            below.refuse("groups must be an array of strings")
    for item in top.objects("context"):
        item.check_word("type", CONTEXT_TYPES)
        item.check("value", "a string", required=True)
        item.check("path", "a string")
        item.check("elementId", "a string")
    if len(top.check("currentPath", "a string") or "") > CURRENT_PATH_MAX_CHARACTERS:
        top.refuse(f"currentPath must be at most {CURRENT_PATH_MAX_CHARACTERS} characters")
    return top.mistakes
