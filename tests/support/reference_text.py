"""Turns docstrings and signatures, as griffe reads them from the source, into Markdown of the site."""

from __future__ import annotations

import ast
import importlib
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator

import griffe

Link = Callable[[str], str | None]
"""Takes a name of the package and returns the address of its entry, or None."""

OPTIONS = {"returns_named_value": False, "returns_multiple_items": False, "warnings": False}

UNITS = {r"\bbytes\b": "bytes", r"^\w+ \w+ per second": "per second", r"[Ss]econds\b|[Hh]ow long": "s"}
"""How a meaning says the unit of a number; the first that is found counts."""


class Writer:
    """Writes the entries of one site; *link* finds the entry of a name."""

    def __init__(self, link: Link) -> None:
        self._link = link

    # Text

    def prose(self, text: str) -> str:
        """Return a docstring's text as Markdown: roles become links, literal blocks and tables their like."""
        text = re.sub(r"\s*\(interface [\d., and]+\)", "", textwrap.dedent(text))
        found: list[str] = []
        for piece in re.split(
            r"(?m)((?:^::|(?<=\S:):|^Examples?::?)$\n+(?:^(?:[ >].*)?\n)*(?:^[ >].*)?)", text
        ):
            if re.match(r"(::?|Examples?::?)\n", piece):
                shown = textwrap.dedent(piece.partition("\n")[2]).strip()
                found.append(f"\n\n{code(shown, 'json' if shown.startswith('{') else 'py')}\n\n")
            else:
                found.append(re.sub(r"(?m)^=+  =+\n([^=]*\n)=+  =+$", self._rows, self._inline(piece)))
        return re.sub(r"\n{3,}", "\n\n", "".join(found)).strip()

    def _rows(self, found: re.Match[str]) -> str:
        rows = [tuple(re.split(r" {2,}", line)) for line in found[1].splitlines()]
        return table(("Request", "What it does"), rows)

    def _inline(self, text: str) -> str:
        pieces = re.split(r"(``.+?``|:\w+:`[^`]+`|`[^`\n]+`)", text, flags=re.DOTALL)
        return "".join(
            self._code(piece) if number % 2 else _escaped(piece) for number, piece in enumerate(pieces)
        )

    def _code(self, piece: str) -> str:
        words = " ".join(re.sub(r"^:\w+:", "", piece).strip("`").split())
        words = words.rpartition(".")[2] if words.startswith("~") else words
        target = (
            self._link(re.sub(r"\(.*", "", words))
            if not piece.startswith("``") or words.isidentifier()
            else None
        )
        return f"[`{words}`]({target})" if target else f"`{words}`"

    def cell(self, text: str) -> str:
        """Return a text as the cell of a table."""
        return re.sub(r"\s+", " ", self.prose(text).replace("```py\n", "`").replace("\n```", "`")).replace(
            "|", "\\|"
        )

    # Tables

    def arguments(self, parameters: Iterable[griffe.Parameter], said: dict[str, str], about: str = "") -> str:
        """Return a table of arguments, each with its type, its default and unit, and what it means.

        *about* is the text of the class: "in seconds" there is said of each number.
        """
        unit = " seconds" if re.search(r"\bin seconds\b", about) else ""
        rows = [
            (
                f"`{shown_name(one)}`",
                _type(one.annotation),
                with_unit(one, said.get(one.name, "") + unit),
                self.cell(said.get(one.name, "")),
            )
            for one in parameters
        ]
        return table(("Argument", "Type", "Default", "Meaning"), rows)

    def raises(self, sections: list[griffe.DocstringSection]) -> str:
        """Return what a call raises, as a list."""
        lines = [
            f"- {self._code(f'`{one.annotation}`')}: {self.cell(one.description)}"
            for section in sections
            if section.kind is griffe.DocstringSectionKind.raises
            for one in section.value
        ]
        return "Raises:\n\n" + "\n".join(lines) if lines else ""

    def text_of(self, sections: list[griffe.DocstringSection]) -> str:
        """Return the sections that are text: the description, what is returned, notes and examples."""
        found: list[str] = []
        for section in sections:
            match section.kind:
                case griffe.DocstringSectionKind.text:
                    found.append(self.prose(section.value))
                case griffe.DocstringSectionKind.returns | griffe.DocstringSectionKind.yields:
                    word = "Returns" if section.kind is griffe.DocstringSectionKind.returns else "Yields"
                    found += [f"{word}: {self.prose(one.description)}" for one in section.value]
                case griffe.DocstringSectionKind.examples:
                    found += [
                        self.prose(value) if kind is griffe.DocstringSectionKind.text else code(value)
                        for kind, value in section.value
                    ]
                case griffe.DocstringSectionKind.admonition:  # "Example:", the only one that we have
                    found.append(code(section.value.contents))
        return "\n\n".join(found)

    # Entries

    def function(self, function: griffe.Function, shown: str) -> str:
        """Return signature, meaning, arguments and errors of a function or method."""
        sections = sections_of(function)
        parameters = [one for one in function.parameters if one.name not in ("self", "cls")]
        parameters = with_values(parameters, function)
        prefix = "await " if "async" in function.labels else ""
        said = documented(sections)
        return joined(
            code(f"{prefix}{signature(shown, parameters)} -> {function.returns}"),
            self.text_of(sections),
            self.arguments([one for one in parameters if one.name in said], said) if said else "",
            self.raises(sections),
        )

    def value(self, value: griffe.Attribute) -> str:
        """Return a constant or the name of a type."""
        text = str(value.value)
        names = [name.strip() for name in text.split("|")]
        targets = [self._link(name) for name in names]
        if len(names) > 1 and all(targets):
            either = ", ".join(f"[`{name}`]({target})" for name, target in zip(names, targets, strict=True))
            return joined(self.text_of(sections_of(value)), f"One of {either}.")
        shown = code(f"{value.name} = {text}") if len(text) < 150 and "(" not in text else ""
        return joined(shown, self.text_of(sections_of(value)))

    def of_class(self, cls: griffe.Class, shown: str, made_elsewhere: bool) -> str:
        """Return a class: how it is made, unless that is not for users; what it has, and what it does."""
        sections = sections_of(cls)
        said = documented(sections)
        parts = [self.text_of(sections), *self._bases(cls)]
        known = {name for base in self._documented_bases(cls) for name in base.all_members}
        if not made_elsewhere:
            parameters = with_values(fields_of(cls) if is_record(cls) else constructor(cls), cls)
            parameters = [one for one in parameters if one.name not in known or one.name in said]
            parts.insert(0, code(signature(shown, parameters)))
            parts.append(self.arguments(parameters, said, parts[1]) if parameters else "")
        parts += [self.raises(sections), self._attributes(cls, sections)]
        for method in [one for one in methods_of(cls) if one.name not in known]:
            parts += [f"### {shown}.{method.name}", self.function(method, f"{shown}.{method.name}")]
        return joined(*parts)

    def _documented_bases(self, cls: griffe.Class) -> list[griffe.Class]:
        return [
            base for base in cls.mro() if base.path.startswith("mintlify_async.") and self._link(base.name)
        ]

    def _bases(self, cls: griffe.Class) -> Iterator[str]:
        found = [f"[`{base.name}`]({self._link(base.name)})" for base in self._documented_bases(cls)[:1]]
        if found:
            yield f"It derives from {found[0]}, and has the attributes and methods listed there, too."
        uses = {"__aenter__": "`async with`", "__aiter__": "`async for`", "__await__": "`await`"}
        able = [word for name, word in uses.items() if name in cls.all_members]
        if able:
            yield f"You can use it with {', '.join(able)}.".replace(", ", " and ", 1)
        kind = cls.members.get("type")
        if isinstance(kind, griffe.Attribute) and "instance-attribute" not in kind.labels:
            yield f"Its `type` on the wire is `{ast.literal_eval(str(kind.value))}`."

    def _attributes(self, cls: griffe.Class, sections: list[griffe.DocstringSection]) -> str:
        rows: dict[str, tuple[str, str, str]] = {}
        for section in sections:
            if section.kind is griffe.DocstringSectionKind.attributes:
                for one in section.value:
                    rows[one.name] = (
                        f"`{one.name}`",
                        _type(annotation_of(cls, one.name)),
                        self.cell(one.description),
                    )
        for member in own_members(cls):
            is_property = isinstance(member, griffe.Attribute) and "property" in member.labels
            says = member.docstring is not None and isinstance(member, griffe.Attribute)
            if (is_property or says or is_enumeration(cls)) and member.name not in rows:
                assert isinstance(member, griffe.Attribute)
                text = self.cell(member.docstring.value) if member.docstring else ""
                text = text or (f"`{member.value}`" if member.value is not None else "")
                rows[member.name] = (f"`{member.name}`", _type(member.annotation), text)
        return table(("Attribute", "Type", "Meaning"), rows.values()) if rows else ""


def joined(*parts: str) -> str:
    """Return the parts that say something, each a paragraph of its own."""
    return "\n\n".join(part for part in parts if part)


def code(text: str, language: str = "py") -> str:
    """Return a block that is shown and not run."""
    return f"```{language}\n{text}\n```"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table without the columns in which nothing stands."""
    lines = list(rows)
    used = [number for number, _ in enumerate(head) if any(row[number] for row in lines)]
    shown = [[row[number] for number in used] for row in (head, tuple("---" for _ in head), *lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown)


def _escaped(text: str) -> str:
    """Escape what would be a component or an expression in MDX."""
    return re.sub(r"([<{}])", r"\\\1", text)


def _type(annotation: object) -> str:
    words = " ".join(str(annotation).split()).strip("'\"") if annotation is not None else ""
    return f"`{words}`".replace("|", "\\|") if words else ""


def with_unit(parameter: griffe.Parameter, meaning: str) -> str:
    """Return a default with the unit that the meaning says."""
    if parameter.kind in STARS:
        return ""
    if parameter.default is None:
        return "required"
    text = f"`{parameter.default}`".replace("|", "\\|")
    if re.search(r"\bfloat\b|\bint\b", str(parameter.annotation)) and re.match(
        r"[\d.]", str(parameter.default)
    ):
        unit = next((unit for says, unit in UNITS.items() if re.search(says, meaning)), "")
        return f"{text} {unit}".strip()
    return text


SENTINELS = {"EMPTY": "{}", "MISSING": "absent"}
"""Defaults whose name in the source says nothing to a reader."""


def with_values(parameters: list[griffe.Parameter], scope: griffe.Object) -> list[griffe.Parameter]:
    """Return the parameters with the values of the constants that their defaults name."""
    return [
        griffe.Parameter(
            one.name, annotation=one.annotation, kind=one.kind, default=value_of(one.default, scope)
        )
        for one in parameters
    ]


def value_of(default: object, scope: griffe.Object) -> str | None:
    """Return a default as a reader understands it: constants by their values, sums worked out."""
    if default is None:
        return None
    text = re.sub(r"\b[A-Z][A-Z_]+\b", lambda name: constant(name[0], scope), str(default))
    if re.fullmatch(r"[\d_.]+( \* [\d_.]+)+", text):
        factors = [ast.literal_eval(factor) for factor in text.split(" * ")]
        return f"{math.prod(factors):g}" if isinstance(math.prod(factors), float) else str(math.prod(factors))
    return text


def constant(name: str, scope: griffe.Object) -> str:
    """Return the value of a module's constant, if it is a number or a text; else its name."""
    value = getattr(importlib.import_module(scope.module.path), name, None)
    return SENTINELS.get(name) or (repr(value) if isinstance(value, str | int | float) else name)


def sections_of(thing: griffe.Object) -> list[griffe.DocstringSection]:
    """Return the docstring's parts."""
    return thing.docstring.parse("google", **OPTIONS) if thing.docstring is not None else []


def documented(sections: list[griffe.DocstringSection]) -> dict[str, str]:
    """Return what the docstring says about each argument, by name without stars."""
    return {
        one.name.lstrip("*"): one.description
        for section in sections
        if section.kind is griffe.DocstringSectionKind.parameters
        for one in section.value
    }


STARS = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}


def shown_name(parameter: griffe.Parameter) -> str:
    """Return the name with the stars of ``*args`` and ``**kwargs``."""
    return STARS.get(parameter.kind, "") + parameter.name if parameter.kind is not None else parameter.name


def signature(shown: str, parameters: list[griffe.Parameter]) -> str:
    """Return ``name(…)``, on several lines if it is long."""
    words: list[str] = []
    keyword_only = griffe.ParameterKind.keyword_only
    for before, one in zip([None, *parameters], parameters, strict=False):
        starts = before is None or before.kind not in (keyword_only, griffe.ParameterKind.var_positional)
        if one.kind is keyword_only and starts:
            words.append("*")
        kind = f": {one.annotation}" if one.annotation is not None else ""
        default = f" = {one.default}" if one.default is not None and one.kind not in STARS else ""
        words.append(f"{shown_name(one)}{kind}{default}")
    line = f"{shown}({', '.join(words)})"
    if len(line) <= 88:
        return line
    return f"{shown}(\n" + "".join(f"    {word},\n" for word in words) + ")"


def own_members(cls: griffe.Class) -> list[griffe.Object]:
    """Return the public members in the source's order, with those of bases whose name is private."""
    found: dict[str, griffe.Object] = {}
    for one in (cls, *bases_of(cls)):
        for name, member in one.members.items():
            if not name.startswith("_") and not member.is_alias and name not in found:
                found[name] = member  # type: ignore[assignment]
    return list(found.values())


def bases_of(cls: griffe.Class) -> list[griffe.Class]:
    """Return the bases within the package whose name is private, or that the source keeps for itself."""
    inside = [base for base in cls.mro() if base.path.startswith("mintlify_async.")]
    return [base for base in inside if base.name.startswith("_")]


def methods_of(cls: griffe.Class) -> list[griffe.Function]:
    """Return the methods that have a docstring."""
    return [one for one in own_members(cls) if isinstance(one, griffe.Function) and one.docstring is not None]


def is_record(cls: griffe.Class) -> bool:
    """Tell whether attrs or dataclasses make the constructor."""
    return any(re.search(r"\b(frozen|define|dataclass|mutable)\b", str(one.value)) for one in cls.decorators)


def is_error(cls: griffe.Class) -> bool:
    """Tell whether it is an exception: the package makes it, not its user."""
    names = [*(base.name for base in cls.mro()), *map(str, cls.bases)]
    return any(name.endswith(("Error", "Exception")) for name in names)


def has_no_constructor(cls: griffe.Class) -> bool:
    """Tell whether it only says what a value has to have, or has members in place of instances."""
    kinds = ("Protocol", "TypedDict", "StrEnum", "Enum")
    return any(str(base).rpartition(".")[2].partition("[")[0] in kinds for base in cls.bases)


def is_enumeration(cls: griffe.Class) -> bool:
    """Tell whether its attributes are its members."""
    return any(str(base).rpartition(".")[2] in ("StrEnum", "Enum", "TypedDict") for base in cls.bases)


def constructor(cls: griffe.Class) -> list[griffe.Parameter]:
    """Return the parameters of the nearest ``__init__``."""
    init = cls.all_members.get("__init__")
    if not isinstance(init, griffe.Function):
        return []
    return [one for one in init.parameters if one.name != "self"]


def fields_of(cls: griffe.Class) -> list[griffe.Parameter]:
    """Return the parameters of a record's constructor: those of its bases first, as attrs has them."""
    found: dict[str, griffe.Parameter] = {}
    for one in (*reversed(cls.mro()), cls):
        if not is_record(one):
            continue
        keyword_only = any("kw_only=True" in str(decorator.value) for decorator in one.decorators)
        for member in one.members.values():
            if isinstance(member, griffe.Attribute) and is_field(member):
                parameter = as_parameter(member, keyword_only=keyword_only)
                found[parameter.name] = parameter
    return list(found.values())


def is_field(member: griffe.Attribute) -> bool:
    """Tell whether an attribute of a record's body is an argument of its constructor."""
    is_own = "instance-attribute" in member.labels and "property" not in member.labels
    return is_own and member.annotation is not None and "init=False" not in str(member.value)


def as_parameter(member: griffe.Attribute, *, keyword_only: bool) -> griffe.Parameter:
    """Return a field as the parameter that attrs makes of it."""
    name, default = member.name.lstrip("_"), member.value
    if isinstance(default, griffe.ExprCall) and str(default.function).rpartition(".")[2] == "field":
        options = {one.name: one.value for one in default.arguments if isinstance(one, griffe.ExprKeyword)}
        name = str(options.get("alias", name)).strip("'\"")
        keyword_only = keyword_only or str(options.get("kw_only")) == "True"
        default = options.get("default", f"{options['factory']}()" if "factory" in options else None)
    kind = griffe.ParameterKind.keyword_only if keyword_only else griffe.ParameterKind.positional_or_keyword
    return griffe.Parameter(name, annotation=member.annotation, kind=kind, default=default)


def annotation_of(cls: griffe.Class, name: str) -> object:
    """Return an attribute's type, if the source says it; an error keeps an argument of the same name."""
    member = cls.all_members.get(name)
    if isinstance(member, griffe.Attribute) and member.annotation is not None:
        return member.annotation
    arguments = constructor(cls) if is_error(cls) else []
    return next((one.annotation for one in arguments if one.name == name), None)
