"""Checks of the arguments that users pass. Each error is a ConfigurationError with the argument's name.

A ``check_…`` takes the value, and the argument's name if several arguments have this check. Most return the
value. Some classes have their own check: ``Thread.of``, ``JobRef.of``, ``coerce_messages``.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

from .errors import ConfigurationError, printable

# Interface 2.3 requires `fp`. It gives this literal for users without a name, but no default.
ANONYMOUS: Final = "anonymous"  # assumption: `fp` defaults to `anonymous`
# Interface 2.3 does not define a character. JavaScript would count an emoji as two.
CURRENT_PATH_MAX_CHARACTERS: Final = 200  # assumption: `currentPath` counts code points

DEDUPE_KEY_MAX_CHARACTERS: Final = 512
"""Maximum length of a key. Every database takes a primary key of this length. A prompt is no good key."""

LARGEST: Final = 1e300
"""Largest number that is sent or used in a calculation. A larger int may not fit into a float or into JSON.
"""

# Real answers stay under 20 levels. If a value were nested deeper than the interpreter's stack allows, it
# could be parsed but not printed, copied or sent again.
MAX_DEPTH: Final = 200
"""Maximum nesting of JSON that is accepted."""

TOO_DEEP: Final = f"is nested deeper than {MAX_DEPTH}"


def check_field(check: Callable[..., object], **rules: Any) -> Callable[[Any, Any, Any], None]:
    """Return a validator of an attrs field. It calls *check* with the value, the name and *rules*."""
    bound = partial(check, **rules)

    def validate(instance: object, attribute: Any, value: object) -> None:
        bound(value, attribute.name)

    return validate


# Numbers --------------------------------------------------------------------------------------------


def check_seconds(value: object, name: str, *, zero: bool = False, none: str | None = None) -> None:
    """Check a length of time in seconds.

    Args:
        value: The value of the argument.
        name: The argument's name, for the error.
        zero: Whether 0 is allowed. Then the time must also be finite.
        none: The meaning of None, such as "means no limit", for the error. Without it, None is refused.

    Raises:
        ConfigurationError: *value* is not a number, or out of range.
    """
    if value is None and none is not None:
        return
    if isinstance(value, int | float) and not isinstance(value, bool):
        edge = 0 if zero else math.inf
        if 0 < value < LARGEST or value == edge:
            return
    expectation = "a finite number of seconds, 0 or more" if zero else "a number of seconds above 0"
    hint = f"; None {none}" if none is not None else ""
    raise ConfigurationError(f"{name} must be {expectation}{hint}; got {_shown(value)}", field=name)


def check_wait(timeout: float | None) -> None:
    """Check the timeout of a wait for a job.

    Raises:
        ConfigurationError: *timeout* is not a number of seconds.
    """
    check_seconds(timeout, "timeout", zero=True, none="waits without end")


def check_number(
    value: object, name: str, least: float, *, most: float = math.inf, whole: bool = False, none: bool = False
) -> None:
    """Check a number from *least* to *most*. *whole* requires an integer, and *none* allows None.

    Raises:
        ConfigurationError: *value* is not a number, or is out of range.
    """
    kinds = int if whole else int | float
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        kind = "a whole number" if whole else "a number" if most == math.inf else "a finite number"
        hint = ", or None" if none else ""
        raise ConfigurationError(
            f"{name} must be {kind}, {least:g} or more{hint}; got {_shown(value)}", field=name
        )


def check_keep(keep: float | None) -> float | None:
    """Return *keep* if it is None or a finite number of seconds.

    Raises:
        ConfigurationError: *keep* is neither.
    """
    check_number(keep, "keep", 0, most=LARGEST, none=True)
    return keep


def check_page_size(value: object, name: str = "retrieval_page_size") -> float | None:
    """Return *value* if it is None or a number that JSON can express. The service checks its range."""
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST < value < LARGEST:
        return value
    raise ConfigurationError(f"{name} must be a finite number; got {_shown(value)}", field=name)


def _shown(value: object) -> str:
    """Return *value* as an error message shows it."""
    try:
        return printable(repr(value), 40)
    except ValueError:  # Python refuses to print an int of thousands of digits
        return "a longer one"


# Objects that a type checker accepts, or that users often confuse -----------------------------------


def check_type(value: object, name: str, kind: type, *, example: str = "") -> None:
    """Check that *value* is None or an instance of *kind*, such as the Timeouts of this package.

    Raises:
        ConfigurationError: *value* is neither. The error shows the *example*.
    """
    if value is not None and not isinstance(value, kind):
        expectation = example or f"{kind.__name__}(…)"
        raise ConfigurationError(f"{name} must be {expectation} or None; got {_kind(value)}", field=name)


def _check_members(value: object, name: str, members: Sequence[str], expectation: str) -> None:
    """Check that *value* is None or an object with *members*. A class is refused.

    Raises:
        ConfigurationError: *value* is neither.
    """
    has_all = not isinstance(value, type) and all(hasattr(value, member) for member in members)
    if value is not None and not has_all:
        raise ConfigurationError(f"{name} must be {expectation}, not {_kind(value)}", field=name)


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def check_client_session(value: object) -> None:
    """Refuse an object without the methods of aiohttp's ``ClientSession``, such as a client of httpx.

    Raises:
        ConfigurationError: *value* is such an object.
    """
    members = ("request", "connector", "closed")
    _check_members(value, "client_session", members, "an aiohttp.ClientSession")


def check_quota(value: object, name: str) -> None:
    """Refuse a value that is neither None nor a quota, such as a number or one limit.

    Raises:
        ConfigurationError: *value* is neither.
    """
    expectation = "Quota(…), such as Quota(create_job=100), or None"
    _check_members(value, name, ("lease", "block", "mode"), expectation)


def check_observer(value: object, name: str) -> None:
    """Refuse a value that is neither None nor an observer, such as a function.

    Raises:
        ConfigurationError: *value* is neither.
    """
    expectation = "an object with start(operation, facts), as Observer describes it, or None"
    _check_members(value, name, ("start",), expectation)


EXITING: Final = "the program is exiting, so no thread can be started: make this call before, not in atexit"


def is_exiting(error: BaseException) -> bool:
    """Return whether *error* means that the interpreter is exiting and starts no more threads."""
    # The texts are "cannot schedule new futures after shutdown", "can't register atexit after shutdown" and
    # "can't create new thread at interpreter shutdown".
    return type(error) is RuntimeError and "shutdown" in str(error)


def check_bool(value: object, name: str) -> None:
    """Check that *value* is a bool, because the text "false" would count as true.

    Raises:
        ConfigurationError: *value* is not a bool.
    """
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False", field=name)


def check_function(value: object, name: str) -> None:
    """Check that *value* is None or a plain function, because the package does not await its result.

    Raises:
        ConfigurationError: *value* is neither.
    """
    if value is not None and (not callable(value) or inspect.iscoroutinefunction(value)):
        raise ConfigurationError(
            f"{name} must be a plain function, not async; got {type(value).__name__}", field=name
        )


def check_store(store: object, name: str, *, none: bool = True) -> None:
    """Refuse a value that is no store, such as a path or a class.

    Args:
        store: The value.
        name: The field's name, for the error.
        none: Whether None is allowed.

    Raises:
        ConfigurationError: *store* is no store.
    """
    expectation = "a store such as SQLiteStore('mintlify.sqlite')"
    if store is None and not none:
        raise ConfigurationError(f"{name} must be {expectation}, not None", field=name)
    _check_members(store, name, ("read", "write", "take"), expectation)


def check_word(value: object, name: str, words: Sequence[str]) -> None:
    """Check that *value* is one of *words*.

    Raises:
        ConfigurationError: *value* is not one of them.
    """
    if value not in tuple(words):  # a tuple, because a set cannot look up an unhashable value such as a list
        choice = " or ".join(map(repr, words))
        raise ConfigurationError(f"{name} must be {choice}; got {_shown(value)}", field=name)


# Texts ----------------------------------------------------------------------------------------------


def check_text(content: object, name: str, *, empty: bool = False) -> str:
    """Return *content* if it is a string.

    Raises:
        ConfigurationError: *content* is not a string, or it is empty and *empty* is False.
    """
    if not isinstance(content, str):
        raise ConfigurationError(f"{name} must be a string, not {type(content).__name__}", field=name)
    if not content and not empty:
        raise ConfigurationError(f"{name} must not be empty", field=name)
    return content


def check_optional_text(content: object, name: str) -> None:
    """Check that *content* is None or a string, which may be empty.

    Raises:
        ConfigurationError: *content* is neither.
    """
    if content is not None:
        check_text(content, name, empty=True)


def check_characters(text: str, name: str) -> str:
    """Return *text* if UTF-8 can express all its characters.

    Raises:
        ConfigurationError: *text* contains a lone surrogate.
    """
    if not _is_whole(text):
        raise ConfigurationError(f"{name} {_HALF}", field=name)
    return text


_HALF: Final = "contains a lone surrogate, which is no character; remove it"
_HALF_PAIR: Final = re.compile(r"[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")


def _is_whole(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        # A string may contain surrogate pairs. In JSON, each pair becomes one character.
        return _HALF_PAIR.search(text) is None
    return True


def check_prompt(prompt: object) -> str:
    """Return *prompt* if it is a string of at least one character. The service accepts blanks."""
    if isinstance(prompt, str) and prompt:
        return check_characters(prompt, "prompt")
    problem = "is empty" if prompt == "" else f"must be a string; got {type(prompt).__name__}"
    raise ConfigurationError(f"prompt {problem}; it needs at least 1 character", field="prompt")


def check_fp(fp: object, name: str = "fp") -> str:
    """Return *fp* if it is a string that names a user."""
    if isinstance(fp, str) and fp:
        return check_characters(fp, name)
    raise ConfigurationError(
        f'{name} must be a string that names the user, or "{ANONYMOUS}"; got {_shown(fp)}', field=name
    )


def check_current_path(value: object) -> str:
    """Return *value* if it is a page's path of at most ``CURRENT_PATH_MAX_CHARACTERS`` characters."""
    if not isinstance(value, str) or len(value) > CURRENT_PATH_MAX_CHARACTERS:
        size = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise ConfigurationError(
            f"current_path must be a string of at most {CURRENT_PATH_MAX_CHARACTERS} characters; got {size}",
            field="current_path",
        )
    return check_characters(value, "current_path")


# Names ----------------------------------------------------------------------------------------------

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


def check_name(value: object, name: str, most: int) -> str:
    """Return *value* if every database can store it as a record's name of at most *most* characters.

    Raises:
        ConfigurationError: *value* is not a string, is empty or too long, or has a NUL or a lone surrogate.
    """
    if isinstance(value, str) and 1 <= len(value) <= most and not _UNSTORABLE.search(value):
        return value
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a string; got {type(value).__name__}", field=name)
    raise ConfigurationError(
        f"{name} must have 1 to {most} characters, no NUL and no lone surrogate; it has {len(value)}",
        field=name,
    )


def check_dedupe_key(key: object) -> str:
    """Return *key* if it can be a ``dedupe_key``.

    Raises:
        ConfigurationError: *key* is not a string, is blank or too long, or has a NUL or a lone surrogate.
    """
    if isinstance(key, str) and not key.strip():
        raise ConfigurationError("dedupe_key must not be blank", field="dedupe_key")
    return check_name(key, "dedupe_key", DEDUPE_KEY_MAX_CHARACTERS)


def check_job_id(value: object, name: str = "job_id") -> str:
    """Return *value*, an id that the service gave, if it can be one segment of a path.

    Raises:
        ConfigurationError: *value* is not a string, or is empty, ``.`` or ``..``.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a string; got {type(value).__name__}", field=name)
    if value in ("", ".", ".."):
        raise ConfigurationError(f"{name} must not be {value!r}: it would name another path", field=name)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{name} contains a lone surrogate; remove it", field=name) from None
    return value


def check_segment(value: object, name: str, *, source: str = "the identifier from the dashboard") -> str:
    """Return *value* if it can be one segment of a path. The error about empty text asks for *source*.

    Raises:
        ConfigurationError: As for :func:`check_job_id`. Blank text and control characters are also refused.
    """
    if isinstance(value, str):
        if not value.strip():
            raise ConfigurationError(f"{name} is empty; give {source}", field=name)
        if re.search(r"[\0-\x1f\x7f]", value):
            raise ConfigurationError(f"{name} has a control character; remove it", field=name)
    return check_job_id(value, name)


_WHERE: Final = {
    "project_id": "the identifier alone, as the dashboard's API keys page shows it",
    "domain": "the last segment of the dashboard's URL alone",
}


def check_identifier(value: object, name: str) -> str:
    """Return *value* if it can name a project or a site, in a path and in messages.

    Args:
        value: The user's value.
        name: ``project_id`` or ``domain``.

    Raises:
        ConfigurationError: *value* is no string, is empty or a URL, or has blanks or quotes at its ends.
    """
    # A Secret becomes a plain string, because errors show this value.
    text = check_characters(str(value) if isinstance(value, str) else "", name)
    problem = copying_slip(text)
    if problem is None and ("://" in text or (name == "domain" and "/" in text)):
        problem = f"is a URL or a path; write {_WHERE[name]}"
    elif problem is None and not text.isprintable():
        problem = "has a character that cannot be seen; remove it"
    elif problem is None and (match := _NOT_COPIED.search(text)):
        problem = f"contains {match[0]!r}, as an unset variable or a comment does; write {_WHERE[name]}"
    if problem is not None:
        raise ConfigurationError(f"{name} {problem}", field=name)
    check_segment(value, name)
    return text


_NOT_COPIED: Final = re.compile(r"[${}<>#]|\s")
"""Characters of ``$PROJECT``, ``${{ vars.X }}``, ``<project>`` and ``p # prod``. No identifier has them."""

_QUOTES: Final = frozenset("\"'`\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}")


def copying_slip(value: str) -> str | None:
    """Return the copying mistake at the ends of *value*, such as a quotation mark, or None."""
    stripped = value.strip()
    if stripped and value != stripped:
        return "begins or ends with a blank or a line break; remove it"
    if stripped and (stripped[0] in _QUOTES or stripped[-1] in _QUOTES):
        return "has quotation marks around it; leave them out"
    return None


def check_path(path: object, name: str, *, hint: str = "") -> str:
    """Return *path*, with a ``~`` at its start expanded as a shell does it.

    A shell expands ``~`` only at the start of a word, and Python expands no variable. Without this check,
    ``~`` or ``$NAME`` would be a folder in the current working directory.

    Args:
        path: A text, bytes or a path object.
        name: The argument's name, for the error.
        hint: The end of the error message, which says what to pass instead.

    Raises:
        ConfigurationError: *path* is no path, starts with ``$``, or its ``~`` names no folder.
    """
    try:
        text = os.fsdecode(cast("Any", path))
    except TypeError:
        text = ""
    if not text or "\0" in text:
        raise ConfigurationError(f"{name} must name a file{hint}", field=name)
    expanded = os.path.expanduser(text)  # noqa: PTH111 - Path drops the ./ before a plain name
    if expanded[0] not in "~$":
        return expanded
    problem = "a home folder that is not known" if expanded[0] == "~" else "a variable that nothing has set"
    raise ConfigurationError(
        f"{name} begins with {problem}: {printable(text, 80)}; write the full path, "
        "or ./ in front if this is the name of a file",
        field=name,
    )


# URLs -----------------------------------------------------------------------------------------------


class URLObject(Protocol):
    """A URL of another library: pydantic's ``HttpUrl``, ``yarl.URL``, ``httpx.URL``. ``str()`` reads it."""

    @property
    def scheme(self) -> str:
        """The scheme, such as ``https``."""
        ...

    @property
    def host(self) -> str | None:
        """The host name."""
        ...


def url_text(value: object) -> object:
    """Return ``str(value)`` if *value* is a URL object, else *value*."""
    is_url = hasattr(value, "scheme") or str(value).lower().startswith(("https://", "http://"))
    return str(value) if is_url and not isinstance(value, str) else value


def check_site(site: object, name: str = "site") -> str | None:
    """Return *site* as text if it is None or a full URL.

    Raises:
        ConfigurationError: *site* is neither.
    """
    site = url_text(site)
    if site is None or (isinstance(site, str) and _SITE.fullmatch(site)):
        return site
    raise ConfigurationError(
        f"{name} must be the complete URL of the documentation, such as https://docs.acme.com, "
        "without blanks, ? and #",
        field=name,
    )


_SITE: Final = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?", re.IGNORECASE)


def check_base_url(value: object, *, allow_insecure_http: bool) -> str:
    """Return *value* as text without a trailing slash, if keys may be sent to it.

    Raises:
        ConfigurationError: *value* is not an http(s) URL, contains credentials, a query or a fragment, or is
            plain http outside this machine.
    """
    url = url_text(value)
    if not isinstance(url, str):
        raise ConfigurationError(f"base_url must be a URL, not {_kind(url)}", field="base_url")
    if problem := copying_slip(url) or _url_problem(url, allow_insecure_http=allow_insecure_http):
        raise ConfigurationError(f"base_url {problem}", field="base_url")
    return url.rstrip("/")


def _url_problem(url: str, *, allow_insecure_http: bool) -> str | None:
    """Return why keys cannot be sent to *url*, or None."""
    if not url.strip():
        return "is blank: leave base_url out and MINTLIFY_BASE_URL unset for the service's own URL"
    if not url.isprintable() or not url.isascii() or set(url) & set(" ?#"):
        return "must be visible ASCII characters, without a query or a fragment"
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if the port is not a number
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "must begin with https:// and name a host"
    if "@" in parts.netloc:
        return "must not carry a user name or password; keys go in admin_key= and assistant_key="
    if parts.path.rstrip("/") == "/v2":
        return "ends with /v2, which the path of each operation has already; leave it out"
    if parts.scheme == "http" and not (allow_insecure_http or is_loopback(url)):
        return "is plain http: the key could be read on the way; use https, or allow_insecure_http=True"
    return None


def is_loopback(url: str) -> bool:
    """Return whether the host of *url* is this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or bool(re.fullmatch(r"127(\.\d{1,3}){3}", host))


# What is sent ---------------------------------------------------------------------------------------

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# With "expect", aiohttp sends the headers and waits before it sends the body. So the package could not say
# "nothing was sent".
_OUR_HEADERS: Final = ("authorization", "connection", "expect", "host", "transfer-encoding")


def check_headers(headers: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return a copy of *headers*, the additional headers of a user.

    Raises:
        ConfigurationError: A name or a value is not legal, or the session sets that header itself.
    """
    if headers is not None and not isinstance(headers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - a slip
        raise ConfigurationError(f"headers must be a mapping; got {type(headers).__name__}", field="headers")
    for name, value in (headers or {}).items():
        lowered = str(name).lower()
        problem = None
        if not (isinstance(name, str) and isinstance(value, str)):  # pyright: ignore[reportUnnecessaryIsInstance] - a slip
            problem = f"{_shown(name)} and its value must be strings"
        elif not _HEADER_NAME.fullmatch(name):
            problem = f"{printable(repr(name))} is not a header's name"
        elif lowered in _OUR_HEADERS or lowered.startswith("content-"):  # the body is always JSON
            problem = f"{name} is set by the session (keys: admin_key=, assistant_key=)"
        elif not (value.isascii() and value.isprintable()):
            problem = f"the value of {name} must be visible ASCII characters"
        if problem is not None:
            raise ConfigurationError(f"headers: {problem}", field="headers")
    return dict(headers or {})


def check_extra_body(extra_body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return *extra_body*, the additional fields of a request's body. For None, return an empty object.

    Raises:
        ConfigurationError: *extra_body* contains something that JSON cannot express.
    """
    return check_object({} if extra_body is None else extra_body, "extra_body")


def check_object(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a copy of *fields* if it can be sent as a JSON object.

    Raises:
        ConfigurationError: *fields* is no mapping, or contains something that JSON cannot express.
    """
    if not isinstance(fields, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - it is sent as it is
        raise ConfigurationError(f"{name} must be a mapping; got {type(fields).__name__}", field=name)
    copy = dict(fields)
    check_json(copy, name, sent=True)
    return copy


_TOO_LONG: Final = 10**4300
"""Python does not parse or print whole numbers of more than 4,300 digits."""


def check_json(content: object, name: str, *, sent: bool = False, depth: int = MAX_DEPTH) -> None:
    """Check that *content* can be sent as JSON.

    Args:
        content: The value.
        name: The argument's name, for the error.
        sent: Whether *content* is sent. Then numbers must be finite, and lone surrogates are refused.
        depth: How deep *content* may be nested.

    Raises:
        ConfigurationError: JSON cannot express *content*, or it is nested deeper than *depth*. The error
            names the place, such as ``filter.since``.
    """
    problem = _problem(content, sent, depth)
    if problem is not None:
        place, words = problem
        place = name if words == TOO_DEEP else name + place
        raise ConfigurationError(f"{place} {words}", field=place)


def _problem(item: object, sent: bool, depth: int) -> tuple[str, str] | None:
    """Return the first place in *item* that JSON cannot express, and the reason, or None."""
    words: str | None = None
    members: Iterable[tuple[Any, object]] = ()
    match item:
        case None:
            pass
        case str():
            words = _HALF if sent and not _is_whole(item) else None
        case list() | tuple():
            members = enumerate(cast("Sequence[object]", item))
        case dict():
            members = cast("dict[Any, object]", item).items()
            words = next(filter(None, (_name_problem(name, sent) for name, _ in members)), None)
        case float():
            words = "must be a finite number" if sent and not math.isfinite(item) else None
        case int():
            words = None if -_TOO_LONG < item < _TOO_LONG else "has too many digits to be written"
        case _:
            words = f"is of type {type(item).__name__}, which JSON cannot express"
    if depth < 0:
        words = TOO_DEEP
    if words is not None:
        return "", words
    for step, member in members:
        problem = _problem(member, sent, depth - 1)
        if problem is not None:
            at = f"[{step}]" if isinstance(step, int) else f".{printable(step, 40)}"
            return at + problem[0], problem[1]
    return None


def _name_problem(name: object, sent: bool) -> str | None:
    if not isinstance(name, str):
        return f"has a key that is not a string: {printable(repr(name), 40)}"
    return f"has a key that {_HALF}" if sent and not _is_whole(name) else None
