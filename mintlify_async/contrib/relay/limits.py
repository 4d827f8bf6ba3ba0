"""The limits on what a page may send: those that an app can change, and the fixed ones."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from mintlify_async import ConfigurationError

ID_CHARACTERS = 200  # useChat makes ids of 16 characters, the service of fewer than 100
ADDRESS_CHARACTERS = 2_000  # browsers and servers take little more
NAME_CHARACTERS = 1_000  # a title, a file's name, a media type, a source's id, a version, a language
CONTEXT_ITEMS = 50
CURRENT_PATH_MAX_CHARACTERS = 200  # the limit of the service's interface
PER_ADDRESS = 4  # one address may hold this part of the memory for uploads


def _positive(instance: object, attribute: Any, value: float) -> None:
    if not value > 0:
        raise ConfigurationError(f"{attribute.name} must be above 0", field=attribute.name)


@frozen(kw_only=True)
class RelayLimits:
    """How much a page may send. A request beyond a limit is refused before the service is asked.

    The status is 413, unless the limit says another. With the defaults, no request keeps the event loop from
    other work for more than 50 ms.

    Args:
        body_bytes: The size of the whole request, in bytes, counted while it arrives. ``useChat`` sends the
            whole history each time, with tool results.
        values: The number of values in the request's JSON, names included; a fraction counts as two, ten
            escaped characters as one. A conversation of 12 turns with 100 KB of search results each has
            about 40,000.
        nesting: How deep lists and objects may be nested (400).
        messages: The number of messages in the history.
        parts: The number of parts of all messages. Tool calls and data, which are dropped, do not count.
        question_characters: The length of the text of one message of the user, and of all context items.
        answer_characters: The length of the text of one message of the assistant.
        characters: The length of the texts, addresses and names of all messages, files aside.
        file_characters: The length of all file URLs of one message; a ``data:`` URL holds the file.
        body_seconds: How long the request's body may take to arrive, in seconds (408).
        uploads_per_address: How many bodies may be arriving from one network address at once. A new
            one ends the oldest, which is refused with 503. IPv6 addresses with the same first 64 bits count
            as one.
        upload_bytes: The size of all bodies that are arriving, in bytes; one address may hold a quarter.
            The oldest is refused with 503.

    Raises:
        ConfigurationError: A limit is not above 0, or *upload_bytes* is below 4 times *body_bytes*.
    """

    body_bytes: int = field(default=4 * 1024 * 1024, validator=_positive)
    values: int = field(default=50_000, validator=_positive)
    nesting: int = field(default=64, validator=_positive)
    messages: int = field(default=200, validator=_positive)
    parts: int = field(default=1_500, validator=_positive)
    question_characters: int = field(default=32_000, validator=_positive)
    answer_characters: int = field(default=400_000, validator=_positive)
    characters: int = field(default=500_000, validator=_positive)
    file_characters: int = field(default=2 * 1024 * 1024, validator=_positive)
    body_seconds: float = field(default=30.0, validator=_positive)
    uploads_per_address: int = field(default=100, validator=_positive)
    upload_bytes: int = field(default=64 * 1024 * 1024, validator=_positive)

    def __attrs_post_init__(self) -> None:
        if self.upload_bytes < PER_ADDRESS * self.body_bytes:
            raise ConfigurationError(
                f"upload_bytes must be {PER_ADDRESS} times body_bytes or more: one address has a quarter",
                field="upload_bytes",
            )


def check_places(**numbers: int) -> None:
    """Check how many answers may stream at once. Raises ConfigurationError."""
    for name, number in numbers.items():
        if not number >= 1:
            raise ConfigurationError(f"{name} must be 1 or more", field=name)


def check_silence(**limits: float | None) -> None:
    """Check limits in seconds, of which None is no limit. Raises ConfigurationError."""
    for name, seconds in limits.items():
        if seconds is not None and not seconds > 0:
            raise ConfigurationError(f"{name} is in seconds and must be above 0, or None", field=name)
