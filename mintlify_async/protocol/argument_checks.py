"""Checks of the arguments that users pass. Each error names the argument and the fix."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..errors import ConfigurationError, printable
from ..model.job_ref import path_segment
from ..model.json_text import require_json, require_whole
from ..model.number_checks import LARGEST, shown
from ..model.question import ContextItem, SearchFilter
from ..model.thread import Thread
from ..model.wire_value import EMPTY

__all__ = ["ANONYMOUS", "CURRENT_PATH_MAX_CHARACTERS", "check_identifier"]

# Interface 2.3 requires `fp` and gives the literal for users without a name, but no default.
ANONYMOUS = "anonymous"  # assumption: `fp` defaults to `anonymous`
# Interface 2.3 does not say what a character is. JavaScript would count an emoji as two.
CURRENT_PATH_MAX_CHARACTERS = 200  # assumption: `currentPath` counts code points

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# With "expect" the headers leave before the body, and "nothing was sent" could not be said.
_OUR_HEADERS = ("authorization", "connection", "expect", "host", "transfer-encoding")


_QUOTES = frozenset("\"'`\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}")
_WHERE = {
    "project_id": "the identifier alone, as the dashboard's API keys page shows it",
    "domain": "the last segment of the dashboard's URL alone",
}


def copying_slip(value: str) -> str | None:
    """Return the fault at the ends of *value*, which was copied from elsewhere, or None."""
    stripped = value.strip()
    if stripped and value != stripped:
        return "begins or ends with a blank or a line break; remove it"
    if stripped and (stripped[0] in _QUOTES or stripped[-1] in _QUOTES):
        return "has quotation marks around it; leave them out"
    return None


def check_identifier(value: object, name: str) -> str:
    """Return *value* when it can name a project or a site, in plain words and in a path.

    Args:
        value: The user's value.
        name: ``project_id`` or ``domain``.

    Raises:
        ConfigurationError: It is not a string, empty, a URL, or was copied with blanks or quotation marks.
    """
    text = require_whole(str(value) if isinstance(value, str) else "", name)  # not a Secret: it is shown
    problem = copying_slip(text)
    if problem is None and ("://" in text or (name == "domain" and "/" in text)):
        problem = f"is a URL or a path; write {_WHERE[name]}"
    elif problem is None and not text.isprintable():
        problem = "has a character that cannot be seen; remove it"
    if problem is not None:
        raise ConfigurationError(f"{name} {problem}", field=name)
    path_segment(value, name)
    return text


def check_prompt(prompt: object) -> str:
    """Return *prompt* when it is a string of at least one character."""
    if isinstance(prompt, str) and prompt:
        return require_whole(prompt, "prompt")
    problem = "is empty" if prompt == "" else f"must be a string; got {type(prompt).__name__}"
    raise ConfigurationError(f"prompt {problem}; it needs at least 1 character", field="prompt")


def check_headers(headers: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return a copy of *headers*, which a user wants sent in addition.

    Raises:
        ConfigurationError: A name or a value is not legal, or the session sets that header itself.
    """
    for name, value in (headers or EMPTY).items():
        lowered = name.lower()
        problem = None
        if not _HEADER_NAME.fullmatch(name):
            problem = f"{printable(repr(name))} is not a header's name"
        elif lowered in _OUR_HEADERS or lowered.startswith("content-"):  # the body is always JSON
            problem = f"{name} is set by the session (keys: admin_key=, assistant_key=)"
        elif not (value.isascii() and value.isprintable()):
            problem = f"the value of {name} must be visible ASCII characters"
        if problem is not None:
            raise ConfigurationError(f"headers: {problem}", field="headers")
    return dict(headers) if headers else EMPTY


def check_extra_body(extra_body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return *extra_body*, additional fields of a request's body. None is no field.

    Raises:
        ConfigurationError: It contains something that JSON cannot express.
    """
    return _json_object(extra_body, "extra_body") if extra_body else EMPTY


def _json_object(fields: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return a copy of *fields* if it can be sent."""
    if not isinstance(fields, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - it is sent as it is
        raise ConfigurationError(f"{field} must be a mapping; got {type(fields).__name__}", field=field)
    copy = dict(fields)
    require_json(copy, field, sent=True)
    return copy


def check_thread(value: object) -> Thread | None:
    """Return *value* as a thread. A string is a thread's id alone."""
    thread = value
    if isinstance(value, str) and value.strip() and not value.lstrip().startswith(("{", "Thread(")):
        thread = Thread(value)
    if thread is None:
        return None
    if not isinstance(thread, Thread):  # the JSON of a thread would be sent as its id, and shown
        raise ConfigurationError(
            f"thread must be a Thread, a thread's id, or None; got {type(value).__name__}. "
            "Pass answer.thread, or Thread.from_json(…) of a stored one",
            field="thread",
        )
    if slip := copying_slip(require_whole(thread.id, "thread.id")):
        raise ConfigurationError(f"the thread's id {slip}", field="thread")
    require_whole(thread.key or "", "thread.key")
    return thread


def check_fp(fp: object) -> str:
    """Return *fp* when it names a user."""
    if isinstance(fp, str) and fp:
        return require_whole(fp, "fp")
    raise ConfigurationError(
        f'fp must be a string that names the user, or "{ANONYMOUS}"; got {shown(fp)}', field="fp"
    )


def check_page_size(value: object) -> float:
    """Return *value* when JSON can express it as a number. The service checks its range."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST < value < LARGEST:
        return value
    raise ConfigurationError(
        f"retrieval_page_size must be a finite number; got {shown(value)}", field="retrieval_page_size"
    )


def check_current_path(value: object) -> str:
    """Return *value* when it is a page's path that is short enough."""
    if not isinstance(value, str) or len(value) > CURRENT_PATH_MAX_CHARACTERS:
        size = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise ConfigurationError(
            f"current_path must be a string of at most {CURRENT_PATH_MAX_CHARACTERS} characters; got {size}",
            field="current_path",
        )
    return require_whole(value, "current_path")


def check_filter(value: SearchFilter | Mapping[str, Any]) -> dict[str, Any]:
    """Return a search filter as the fields that are sent."""
    return _json_object(value.to_wire() if isinstance(value, SearchFilter) else value, "filter")


def check_context(items: Sequence[ContextItem | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the items of a question's context as the fields that are sent."""
    if isinstance(items, str | Mapping):
        raise ConfigurationError("context must be a list of ContextItem", field="context")
    return [_context_item(item, f"context[{index}]") for index, item in enumerate(items)]


def _context_item(item: ContextItem | Mapping[str, Any], name: str) -> dict[str, Any]:
    wire = _json_object({**item.to_wire(), **item.extra} if isinstance(item, ContextItem) else item, name)
    try:
        return ContextItem.from_wire(wire).to_wire()
    except ConfigurationError as error:
        message, field = str(error), error.field or ""
    # An item that is read alone calls itself "context".
    raise ConfigurationError(message.replace("context", name, 1), field=field.replace("context", name, 1))


def check_base_url(value: str, *, allow_insecure_http: bool) -> str:
    """Return *value* without a trailing slash when keys may be sent to it.

    Raises:
        ConfigurationError: It is not an http(s) URL, carries credentials, a query or a
            fragment, or is plain http outside this machine.
    """
    if problem := copying_slip(value) or _url_problem(value, allow_insecure_http=allow_insecure_http):
        raise ConfigurationError(f"base_url {problem}", field="base_url")
    return value.rstrip("/")


def _url_problem(url: str, *, allow_insecure_http: bool) -> str | None:
    """Return why keys cannot be sent to *url*, or None."""
    if not url.strip():
        return "is blank: leave base_url out and MINTLIFY_BASE_URL unset for the service's own URL"
    if not url.isprintable() or not url.isascii() or set(url) & set(" ?#"):
        return "must be visible ASCII characters, without a query or a fragment"
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is not a number
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "must begin with https:// and name a host"
    if "@" in parts.netloc:
        return "must not carry a user name or password; keys go in admin_key= and assistant_key="
    if parts.path.rstrip("/") == "/v2":
        return "ends with /v2, which the path of each operation has already; leave it out"
    if parts.scheme == "http" and not (allow_insecure_http or is_loopback(parts.hostname)):
        return "is plain http: the key could be read on the way; use https, or allow_insecure_http=True"
    return None


def host_of(url: str) -> str | None:
    """Return the host that *url* names, or None."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether *host* is this machine."""
    return host in ("localhost", "::1") or bool(re.fullmatch(r"127(\.\d{1,3}){3}", host))
