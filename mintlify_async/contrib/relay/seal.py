"""Makes tokens of threads for the page, and pseudonyms of users for the service.

The page keeps the token and sends it with the next question. It can neither read nor change the token, and
the token works for one user and one documentation site only.
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

from mintlify_async import ConfigurationError, Thread
from mintlify_async.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from typing import Self

DAY = 24 * 60 * 60.0
MIN_SECRET_CHARACTERS = 32  # secrets.token_urlsafe(32) gives 43; a password is shorter
MAX_TOKEN_CHARACTERS = 16_384  # longer than any token of ours; limits the work that a page can cause
# Each use of a secret has a key of its own, so that nothing made for another use is accepted.
_SEALING = b"mintlify-async relay thread v2"
_NAMING = b"mintlify-async relay user v1"


class SealError(Exception):
    """A token is refused: it was changed, it expired, or it belongs to another user or site.

    Attributes:
        reason: ``"changed"``, ``"expired"`` or ``"foreign"``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the sealed thread is {reason}")
        self.reason = reason


class ThreadSeal:
    """Encrypts threads into tokens that one user can use for a limited time, and gives users pseudonyms.

    Args:
        secrets: Random strings of at least 32 characters, from your secret store. The first one encrypts, and
            makes the pseudonyms; all of them decrypt, so that a new one can be put in front of the old.
        ttl: How long a token is valid, in seconds; 30 days by default.
        clock: The source of time.

    Raises:
        ConfigurationError: There is no secret, a secret is too short, or *ttl* is below 1 second or infinite.
    """

    __slots__ = ("_clock", "_fernet", "_naming", "_site", "_ttl")

    def __init__(self, secrets: Sequence[str], *, ttl: float = 30 * DAY, clock: Clock | None = None) -> None:
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
        self._fernet = MultiFernet(
            [Fernet(urlsafe_b64encode(_derived(secret, _SEALING))) for secret in secrets]
        )
        self._naming = hmac.new(_derived(secrets[0], _NAMING), digestmod="sha256")
        self._site = ""
        self._ttl = int(ttl)
        self._clock: Clock = clock or SystemClock()

    def __repr__(self) -> str:
        return f"<ThreadSeal ttl={self._ttl}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled: a pickle would hold the secrets."""
        raise TypeError("a ThreadSeal holds secrets and cannot be pickled; create one in the other process")

    def __copy__(self) -> Self:
        """Return the same object, since it never changes."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return the same object, since it never changes."""
        return self

    def pseudonym(self, user: str) -> str:
        """Return the pseudonym of *user* for the service: 43 characters, the same each time.

        Another first secret makes another pseudonym: the service then takes each user for a new one.
        """
        named = self._naming.copy()
        named.update(user.encode("utf-8", "surrogatepass"))
        return urlsafe_b64encode(named.digest()).decode("ascii").rstrip("=")

    def at(self, base_url: str, domain: str) -> ThreadSeal:
        """Return a seal with the same secrets whose tokens are for one site of one service only."""
        other = object.__new__(type(self))
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._site = f"{base_url} {domain}"
        return other

    def seal(self, thread: Thread, user: str) -> str:
        """Return a token for *thread* that only *user* can use."""
        now = int(self._clock.wall())
        content = json.dumps(
            {"u": _digest(user, self._site), "s": self._site, "i": thread.id, "k": thread.key, "t": now},
            separators=(",", ":"),
        )
        return self._fernet.encrypt_at_time(content.encode("ascii"), now).decode("ascii")

    def open(self, token: str, user: str, *, any_site: bool = False) -> Thread:
        """Return the thread in *token*.

        Args:
            token: What :meth:`seal` returned.
            user: The user's id.
            any_site: Whether the token may be for another site than this seal's.

        Raises:
            SealError: The token was changed, has expired, or belongs to another user or another site.
        """
        if not _canonical(token):
            raise SealError("changed")
        try:
            fields = json.loads(self._fernet.decrypt(token))
        except InvalidToken:
            raise SealError("changed") from None
        if self._clock.wall() >= fields["t"] + self._ttl:
            raise SealError("expired")
        if not hmac.compare_digest(fields["u"], _digest(user, fields["s"] if any_site else self._site)):
            raise SealError("foreign")
        return Thread(fields["i"], fields["k"])


def _canonical(token: str) -> bool:
    """Return whether *token* is exactly what was encoded: Base64 decoders skip stray characters."""
    if len(token) > MAX_TOKEN_CHARACTERS or not token.isascii():
        return False
    try:
        return urlsafe_b64encode(urlsafe_b64decode(token)) == token.encode("ascii")
    except ValueError:
        return False


def _derived(secret: object, purpose: bytes) -> bytes:
    """Return the key of 32 bytes that *secret* gives for *purpose*."""
    if not isinstance(secret, str) or len(secret) < MIN_SECRET_CHARACTERS:
        raise ConfigurationError(
            f"each of secrets must be a random string of at least {MIN_SECRET_CHARACTERS} characters",
            field="secrets",
        )
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(secret.encode())


def _digest(user: str, site: str) -> str:
    """Return the user's id and the site as a hash: its length does not depend on the app's ids."""
    return hashlib.sha256(json.dumps([user, site]).encode("ascii")).hexdigest()
