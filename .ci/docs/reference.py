"""Writes the reference pages, with the signature, arguments, fields, methods and errors of each public name.

``inspect`` reads the public names at run time. griffe parses the docstrings.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
import textwrap
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import griffe

Kind = griffe.DocstringSectionKind
TABLES = tomllib.loads(Path(__file__).with_name("pages.toml").read_text(encoding="utf-8"))
OPTIONS = {"returns_named_value": False, "returns_multiple_items": False, "warnings": False}
UNITS = {r"\bbytes\b": "bytes", r"^\w+ \w+ per second": "per second", r"[Ss]econds\b|[Hh]ow long": "s"}
"""How a meaning says the unit of a number; the first match counts."""

LONGEST_LINE = 88

WIRE_MODULES = ("mintlify_async.events", "mintlify_async.messages")
"""In their classes, a field of one name has one meaning, which stands in the table ``fields`` once."""


class Entry(NamedTuple):
    """One public thing under all of its public paths.

    Attributes:
        name: Its name.
        paths: The modules to import it from, the shortest first.
        thing: The object.
        page: The page that it is on.
    """

    name: str
    paths: tuple[str, ...]
    thing: Any
    page: str


@cache
def entries() -> tuple[Entry, ...]:
    """Return every public name once."""
    paths: dict[tuple[str, int], list[str]] = {}
    for path in TABLES["public"]:
        module = importlib.import_module(path)
        for name in {*module.__all__} - {"__version__"}:
            paths.setdefault((name, id(getattr(module, name))), []).append(path)
    for name, path in TABLES["also"].items():
        paths[name, id(getattr(importlib.import_module(path), name))] = [path]
    public: list[Entry] = []
    for (name, _), homes in sorted(paths.items(), key=lambda item: (item[0][0], item[1])):
        thing = getattr(importlib.import_module(homes[0]), name)
        public.append(Entry(name, tuple(sorted(homes, key=len)), thing, _page(name, homes, thing)))
    return tuple(public)


def _page(name: str, paths: list[str], thing: Any) -> str:
    home = str(getattr(thing, "__module__", ""))
    home = home if home.startswith("mintlify_async.") else max(paths, key=len)
    for start, page in TABLES["page_of_module"].items():
        if f"{home}.".startswith(f"mintlify_async.{start}."):
            return str(page)
    raise LookupError(f"{home}.{name} is on no page: add its module to .ci/docs/pages.toml")


class Writer:
    """Writes entries as Markdown. *link* finds the URL of a name's entry."""

    def __init__(self, link: Callable[[str], str | None]) -> None:
        self._link = link

    def entry(self, entry: Entry, *, made_by: str = "") -> str:
        """Return the text of one entry, without its heading."""
        thing = entry.thing
        imported = "Import it from " + " or ".join(f"`{path}`" for path in entry.paths) + "."
        if inspect.isclass(thing):
            text = self._class(thing, entry.name, made_by)
        elif callable(thing) and typing.get_origin(thing) is None:  # Python 3.11 can call a union
            text = self._function(thing, entry.name)
        else:
            text = self._value(thing, entry)
        return paragraphs("" if entry.name in TABLES["also"] else imported, made_by, text)

    def _class(self, cls: type, name: str, made_by: str) -> str:
        docs, base = Docs(cls), self._documented_base(cls)
        # Users call no protocol and no enumeration; of the errors, those with documented arguments.
        error = issubclass(cls, BaseException) and not docs.arguments
        foreign = error or issubclass(cls, enum.Enum) or getattr(cls, "_is_protocol", False)
        parts, parameters = [], list[inspect.Parameter]()
        if not made_by and not foreign:
            known = {one.name for one in _parameters(base)} if attrs.has(base) else set[str]()
            parameters = [one for one in _parameters(cls) if one.name not in known]
            parts.append(code(signature(name, parameters, cls.__module__)))
        if cls.__module__ in WIRE_MODULES:
            shared = {one.name: TABLES["fields"].get(one.name, "") for one in parameters}
            docs.arguments = {name: text for name, text in shared.items() if text} | docs.arguments
        parts += [self.text(docs), *self._facts(cls, base)]
        if any(one.name in docs.arguments for one in parameters):
            parts.append(self._arguments(parameters, docs, cls.__module__))
        parts += [self._raises(docs), self._attributes(cls, docs, base, shown=bool(parameters))]
        for method_name, method in _methods(cls, base):
            hidden = any(fnmatchcase(f"{name}.{method_name}", pattern) for pattern in TABLES["hidden"])
            if not hidden and not _internal(method):
                parts += [f"### {name}.{method_name}", self._function(method, f"{name}.{method_name}")]
        return paragraphs(*parts)

    def _documented_base(self, cls: type) -> Any:
        bases = [one for one in cls.__mro__[1:] if one.__module__.startswith("mintlify_async")]
        return next((one for one in bases if self._link(one.__name__)), None)

    def _facts(self, cls: type, base: Any) -> Iterator[str]:
        if base is not None:
            yield f"It has the attributes and methods of {self._code(f'`{base.__name__}`')}."
        uses = {"__aenter__": "async with", "__aiter__": "async for", "__await__": "await"}
        hints = {method: getattr(getattr(cls, method, None), "__annotations__", {}) for method in uses}
        # A method that only refuses has no type.
        able = [f"`{word}`" for method, word in uses.items() if "return" in hints[method]]
        if able:
            yield f"You can use it with {', '.join(able)}."
        kind = vars(cls).get("type")
        if isinstance(kind, str):
            yield f"Its `type` on the wire is `{kind}`."

    def _function(self, function: Any, name: str) -> str:
        docs = Docs(function)
        parameters = _parameters(function)
        home = function.__module__
        returns = _annotation(inspect.signature(function).return_annotation, home)
        prefix = "await " if inspect.iscoroutinefunction(function) else ""
        if inspect.isasyncgenfunction(inspect.unwrap(function)) and hasattr(function, "__wrapped__"):
            prefix, returns = "async with ", ""
        explained = [one for one in parameters if one.name in docs.arguments]
        return paragraphs(
            code(f"{prefix}{signature(name, parameters, home)}{f' -> {returns}' if returns else ''}"),
            self.text(docs),
            self._arguments(explained, docs, home) if explained else "",
            self._raises(docs),
        )

    def _value(self, value: Any, entry: Entry) -> str:
        kinds = typing.get_args(value)
        names = [one.__name__ if inspect.isclass(one) else _annotation(one, entry.paths[0]) for one in kinds]
        union = "One of " + ", ".join(self._code(f"`{one}`") for one in names) + "." if names else ""
        return paragraphs(self.prose(_constant_docs(entry)), union)

    def _arguments(self, parameters: list[inspect.Parameter], docs: Docs, home: str) -> str:
        unit = " seconds" if re.search(r"\bin seconds\b", docs.first) else ""
        rows = [
            (
                f"`{_starred(one)}`",
                type_cell(one.annotation, home),
                _default_cell(one, docs.arguments.get(one.name, "") + unit),
                self.cell(docs.arguments.get(one.name, "")),
            )
            for one in parameters
        ]
        return table(("Argument", "Type", "Default", "Meaning"), rows)

    def _attributes(self, cls: type, docs: Docs, base: Any, *, shown: bool) -> str:
        """Return the table of an instance's fields. If *shown*, the arguments stand above."""
        hints = _annotations(cls)
        fields = {} if shown else {name: text for name, text in docs.arguments.items() if name in hints}
        meanings = fields | docs.attributes
        for name, member in _members(cls, base):
            if isinstance(member, property) and name not in meanings:
                meanings[name] = inspect.getdoc(member) or ""
                hints[name] = inspect.signature(member.fget).return_annotation
        if issubclass(cls, enum.Enum):
            meanings |= {name: f"``{member.value}``" for name, member in cls.__members__.items()}
        source = _source_types(cls)
        rows = [
            (f"`{name}`", type_cell(hints.get(name) or source.get(name, ""), cls.__module__), self.cell(text))
            for name, text in meanings.items()
            if f"{cls.__name__}.{name}" not in TABLES["hidden_fields"]
        ]
        return table(("Attribute", "Type", "Meaning"), rows) if rows else ""

    def _raises(self, docs: Docs) -> str:
        lines = [f"- {self._code(f'`{name}`')}: {self.cell(text)}" for name, text in docs.raises]
        return "Raises:\n\n" + "\n".join(lines) if lines else ""

    def text(self, docs: Docs) -> str:
        """Return the description, the returned value, and the examples."""
        return paragraphs(*(self.prose(text) for text in docs.texts))

    def prose(self, text: str) -> str:
        """Return a docstring's text as Markdown. Roles become links, literal blocks become code."""
        text = re.sub(r"\bVersions? (?=[5-7]\b)", "AI SDK ", text)  # the stream module says it once
        pieces = re.split(r"(?m)((?:^::|^Examples?::?|(?<=\S:):)$\n+(?:^(?:[ >].*)?\n)*(?:^[ >].*)?)", text)
        parts: list[str] = []
        for piece in pieces:
            if re.match(r"(::?|Examples?::?)\n", piece):
                shown = textwrap.dedent(piece.partition("\n")[2]).strip()
                parts.append(f"\n\n{code(shown)}\n\n")
            else:
                parts.append(self._inline(piece))
        return re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip()

    def _inline(self, text: str) -> str:
        pieces = re.split(r"(``.+?``|:\w+:`[^`]+`|`[^`\n]+`)", text, flags=re.DOTALL)
        return "".join(self._code(one) if number % 2 else _escaped(one) for number, one in enumerate(pieces))

    def _code(self, piece: str) -> str:
        words = " ".join(re.sub(r"^:\w+:", "", piece).strip("`").split())
        words = words.rpartition(".")[2] if words.startswith("~") else words
        name = re.sub(r"\(.*", "", words)
        target = self._link(name) if not piece.startswith("``") or name.isidentifier() else None
        return f"[`{words}`]({target})" if target else f"`{words}`"

    def cell(self, text: str) -> str:
        """Return a text as the cell of a table."""
        return re.sub(r"\s+", " ", self.prose(text)).replace("|", "\\|")


class Docs:
    """The parts of one docstring."""

    def __init__(self, thing: Any) -> None:
        self.texts: list[str] = []
        self.arguments: dict[str, str] = {}
        self.attributes: dict[str, str] = {}
        self.raises: list[tuple[str, str]] = []
        for section in griffe.Docstring(inspect.getdoc(thing) or "").parse("google", **OPTIONS):
            content: Any = section.value
            match section.kind:
                case Kind.text:
                    self.texts.append(content)
                case Kind.parameters:
                    self.arguments.update((one.name, one.description) for one in content)
                case Kind.attributes:
                    self.attributes.update((one.name, one.description) for one in content)
                case Kind.raises:
                    self.raises += [(str(one.annotation), one.description) for one in content]
                case Kind.returns | Kind.yields:
                    kind = section.kind.value.capitalize()
                    for one in content:  # griffe takes the words before a colon for the type
                        words = [kind, one.annotation, one.description]
                        self.texts.append(": ".join(str(word) for word in words if word))
                case Kind.admonition:  # "Example:" with a block below it
                    self.texts.append("::\n\n" + textwrap.indent(content.contents, "    "))
        self.first = self.texts[0] if self.texts else ""


def _members(cls: type, base: type | None) -> Iterator[tuple[str, Any]]:
    """Yield the public members of the class, and of its bases that have no entry of their own."""
    names = set(dir(base)) if base is not None else set[str]()
    for one in cls.__mro__:
        if one.__module__.startswith("mintlify_async"):
            for name, member in vars(one).items():
                if not name.startswith("_") and name not in names:
                    names.add(name)
                    yield name, member


def _methods(cls: type, base: type | None) -> Iterator[tuple[str, Any]]:
    for name, member in _members(cls, base):
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        # `aclose` is a second name of the function `close`.
        if inspect.isfunction(function) and function.__name__ == name:
            yield name, function


def _annotations(cls: type) -> dict[str, Any]:
    """Return the types of fields, in the source's form. An error's types come from its constructor."""
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("mintlify_async"):
            hints |= vars(base).get("__annotations__", {})
            if issubclass(base, BaseException) and "__init__" in vars(base):
                hints |= {one.name: one.annotation for one in _parameters(vars(base)["__init__"])}
    return hints


def _parameters(function: Any) -> list[inspect.Parameter]:
    """Return the parameters, without the object itself. A factory of attrs is shown as its result."""
    parameters = [
        one for one in inspect.signature(function).parameters.values() if one.name not in ("self", "cls")
    ]
    if not (inspect.isclass(function) and attrs.has(function)):
        return parameters
    factories = {
        field.alias: field.default.factory()
        for field in attrs.fields(function)
        if isinstance(field.default, attrs.Factory) and not field.default.takes_self  # type: ignore[arg-type]  # a class
    }
    kinds = {field.alias: field.type for field in attrs.fields(function)}
    return [
        one.replace(
            default=factories.get(one.name, one.default),
            annotation=kinds.get(one.name, one.empty) if one.annotation is one.empty else one.annotation,
        )
        for one in parameters
    ]


def _source_types(cls: type) -> dict[str, str]:
    """Return the types that the source gives to attributes which ``__init__`` sets."""
    members = _source()[f"{cls.__module__}.{cls.__name__}"].members.items()
    return {name: str(one.annotation) for name, one in members if getattr(one, "annotation", None)}


def _constant_docs(entry: Entry) -> str:
    """Return the string below a constant in the source."""
    homes = [str(getattr(entry.thing, "__module__", "")), *entry.paths]
    members = [_source()[home].members.get(entry.name) for home in homes if home.startswith("mintlify_async")]
    return next(str(one.docstring.value) for one in members if one is not None and one.docstring is not None)


@cache
def _source() -> griffe.ModulesCollection:
    """Return the package in the form of its source."""
    return griffe.load("mintlify_async").modules_collection


def signature(name: str, parameters: list[inspect.Parameter], home: str) -> str:
    """Return ``name(…)``, on several lines if it is long."""
    words = []
    for one in parameters:
        kind = _annotation(one.annotation, home)
        default = "" if one.default is one.empty else f" = {_default(one.default)}"
        words.append(f"{_starred(one)}{f': {kind}' if kind else ''}{default}")
    kinds = [one.kind for one in parameters]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        words.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    line = f"{name}({', '.join(words)})"
    return (
        line
        if len(line) <= LONGEST_LINE
        else "\n    ".join([f"{name}(", *(f"{one}," for one in words)]) + "\n)"
    )


def _starred(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    return stars.get(parameter.kind, "") + parameter.name


def _annotation(annotation: Any, home: str) -> str:
    """Return a type of the module *home*, in names that a user knows."""
    if annotation in (inspect.Parameter.empty, None, ""):
        return "None" if annotation is None else ""
    annotation = getattr(annotation, "__forward_arg__", annotation)  # of a TypedDict
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    modules = r"\b(?:mintlify_async|collections|starlette|typing|types)(?:\.\w+)*\.(?=\w)"
    text = re.sub(modules, "", " ".join(text.split()))
    if text.startswith("Unpack["):  # the meaning says which arguments
        return ""
    text = re.sub(r"\bLenient\[(\w+)\]", r"\1 | None", text).replace(" | Missing", "")
    text = text if "Literal[" in text else text.replace("'", "")
    return re.sub(r"\b[A-Z]\w+", lambda match: _known(match[0], home), text)


def _known(name: str, home: str) -> str:
    """Return the type that *name* stands for, unless it has an entry of its own."""
    if name in TABLES["spelled"]:
        return str(TABLES["spelled"][name])
    if name in _names():
        return name
    value = _value_of(name, home)
    if typing.get_origin(value) is None:  # no alias
        return name
    return _annotation(value.__origin__ if typing.get_origin(value) is typing.Annotated else value, home)


def _value_of(name: str, home: str) -> Any:
    """Return the package's own object of this name. A name may be imported for type checkers only."""
    paths = [home, *(path for path in sys.modules if path.startswith("mintlify_async"))]
    values = (vars(sys.modules[path]).get(name) for path in paths)
    return next((value for value in values if value is not None), None)


@cache
def _names() -> frozenset[str]:
    """Return the names that have an entry."""
    return frozenset(entry.name for entry in entries())


def _internal(method: Any) -> bool:
    """Return whether a method takes or returns an object of the package that no user knows."""
    hints = [one.annotation for one in _parameters(method)]
    hints.append(inspect.signature(method).return_annotation)
    text = " ".join(_annotation(hint, method.__module__) for hint in hints)
    words = set(re.findall(r"\b[A-Z]\w+", text)) - _names()
    values = [_value_of(word, method.__module__) for word in words]
    return any(inspect.isclass(one) and one.__module__.startswith("mintlify_async.") for one in values)


def type_cell(annotation: Any, home: str) -> str:
    """Return a type as the cell of a table."""
    text = _annotation(annotation, home)
    return f"`{text}`".replace("|", "\\|") if text else ""


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum) or repr(value).startswith("<"):
        return "…"
    return repr(value)


def _default_cell(parameter: inspect.Parameter, meaning: str) -> str:
    """Return a default in a reader's form, such as ``16 MiB``, ``1800 s``."""
    value = parameter.default
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return ""
    if value is parameter.empty:
        return "required"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"`{_default(value)}`".replace("|", "\\|") if _default(value) != "…" else "not given"
    unit = next((unit for words, unit in UNITS.items() if re.search(words, meaning)), "")
    if unit == "bytes":
        return f"{value // 1024**2} MiB"
    return f"`{value}` {unit}".strip()


def paragraphs(*parts: str) -> str:
    """Return the parts that are not empty, each as its own paragraph."""
    return "\n\n".join(part for part in parts if part)


def code(text: str) -> str:
    """Return a block that is shown and not run."""
    return f"```py\n{text}\n```"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table without its empty columns."""
    lines = list(rows)
    used = [number for number, _ in enumerate(head) if any(row[number] for row in lines)]
    shown = [[row[number] for number in used] for row in (head, tuple("---" for _ in head), *lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown)


def _escaped(text: str) -> str:
    """Escape text that would be HTML."""
    return text.replace("<", r"\<")
