"""A thread and its user → a sealed token for the page, and back.

The page keeps the token and sends it back; it can read nothing in it, change
nothing, and lend it to nobody: the user is inside.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mintlify_async.clock import Clock, SystemClock
from mintlify_async.errors import ConfigurationError
from mintlify_async.thread import Thread

if TYPE_CHECKING:
    from typing import Self

__all__ = ["SealError", "ThreadSeal"]

DAY = 24 * 60 * 60.0
MIN_SECRET_CHARACTERS = 32  # what `secrets.token_urlsafe(32)` gives is longer; a password is shorter
MAX_TOKEN_CHARACTERS = 16_384  # longer than any seal of ours; bounds the work that a page can ask for
_PURPOSE = b"mintlify-async relay thread v1"  # other tokens made with the same secret do not open here


class SealError(Exception):
    """A token that does not open: changed, expired, or another user's.

    Attributes:
        reason: ``"changed"``, ``"expired"`` or ``"foreign"``.
    """

    def __init__(self, reason: str) -> None:
        """Keep the *reason*."""
        super().__init__(f"the sealed thread is {reason}")
        self.reason = reason


class ThreadSeal:
    """Encrypts and authenticates threads, each bound to one user, for a limited time.

    Args:
        secrets: Random strings of at least 32 characters, from your secret
            store. The first one seals; all of them open, so that a new one
            can be put in front of the old.
        ttl: How long a seal opens, in seconds; 30 days unless told.
        clock: Where the time comes from.

    Raises:
        ConfigurationError: There is no secret, one is too short, or *ttl* is
            below 1 second or without an end.
    """

    __slots__ = ("_clock", "_fernet", "_ttl")

    def __init__(self, secrets: Sequence[str], *, ttl: float = 30 * DAY, clock: Clock | None = None) -> None:
        """Derive one key from each secret."""
        if isinstance(secrets, str) or not secrets:
            raise ConfigurationError(
                "secrets is empty: pass a list with at least one random string, "
                'made once with python -c "import secrets; print(secrets.token_urlsafe(32))"',
                field="secrets",
            )
        if not 1 <= ttl < math.inf:
            raise ConfigurationError(
                "seal_ttl is in seconds and must be 1 or more, and finite", field="seal_ttl"
            )
        self._fernet = MultiFernet([_fernet(secret) for secret in secrets])
        self._ttl = int(ttl)
        self._clock: Clock = clock or SystemClock()

    def __repr__(self) -> str:
        """Show nothing that opens a seal."""
        return f"<ThreadSeal ttl={self._ttl}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse: a pickle would carry the secrets."""
        raise TypeError("a ThreadSeal holds secrets and is not pickled")

    def __copy__(self) -> Self:
        """Return itself: it never changes."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself: it never changes."""
        return self

    def seal(self, thread: Thread, user: str) -> str:
        """Return the token that stands for *thread* in the pages of *user*."""
        now = int(self._clock.wall())
        content = json.dumps(
            {"u": _digest(user), "i": thread.id, "k": thread.key, "t": now}, separators=(",", ":")
        )
        return self._fernet.encrypt_at_time(content.encode("ascii"), now).decode("ascii")

    def open(self, token: str, user: str) -> Thread:
        """Return the thread that *token* stands for.

        Raises:
            SealError: The token was changed, has expired, or is another user's.
        """
        if not _canonical(token):
            raise SealError("changed")
        try:
            fields = json.loads(self._fernet.decrypt(token))
        except InvalidToken:
            raise SealError("changed") from None
        if self._clock.wall() >= fields["t"] + self._ttl:
            raise SealError("expired")
        if not hmac.compare_digest(fields["u"], _digest(user)):
            raise SealError("foreign")
        return Thread(fields["i"], fields["k"])


def _canonical(token: str) -> bool:
    """Say whether *token* is spelled as we spell it: Base64 decoders overlook stray characters."""
    if len(token) > MAX_TOKEN_CHARACTERS or not token.isascii():
        return False
    try:
        return urlsafe_b64encode(urlsafe_b64decode(token)) == token.encode("ascii")
    except ValueError:
        return False


def _fernet(secret: object) -> Fernet:
    if not isinstance(secret, str) or len(secret) < MIN_SECRET_CHARACTERS:
        raise ConfigurationError(
            f"each of secrets must be a random string of at least {MIN_SECRET_CHARACTERS} characters",
            field="secrets",
        )
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret.encode())
    return Fernet(urlsafe_b64encode(key))


def _digest(user: str) -> str:
    """Name the user in a fixed length, whatever the app's ids look like."""
    return hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()
