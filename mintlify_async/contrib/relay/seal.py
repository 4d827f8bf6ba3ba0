"""Makes tokens of threads for the page, and pseudonyms of users for the service.

The page keeps the token and sends it with the next question. It can neither read nor change the token, and
the token works for one user and one documentation site only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mintlify_async import ConfigurationError, Thread
from mintlify_async.runtime.dates import now

VALID_SECONDS = 30 * 24 * 60 * 60  # of a token
MIN_SECRET_CHARACTERS = 32  # secrets.token_urlsafe(32) gives 43; a password is shorter
MAX_TOKEN_CHARACTERS = 16_384  # longer than any token of the relay; limits the work that a web page can cause
# Every token that the relay writes: URL-safe base64 with its padding, in which the unused bits of the last
# character are zero. Of other characters, Python's decoder skips some and reads some; its versions differ.
_TOKEN = re.compile(r"(?:[\w-]{4})*(?:[\w-][AQgw]==|[\w-]{2}[AEIMQUYcgkosw048]=)?", re.ASCII)
# Each use of a secret has its own key, so a token for another use is refused.
_SEALING = b"mintlify-async relay thread v2"
_NAMING = b"mintlify-async relay user v1"


class SealError(Exception):
    """A token is refused, because it was changed, it expired, or it belongs to another user or site."""


class ThreadSeal:
    """Encrypts threads into tokens that one user can use for 30 days at one site, and gives users pseudonyms.

    Args:
        secrets: Random strings of at least 32 characters, from your secret store. The first one encrypts and
            makes the pseudonyms. All of them decrypt, so you can put a new one in front of the old.

    Raises:
        ConfigurationError: There is no secret, or a secret is too short.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        if isinstance(secrets, str) or not secrets:
            raise ConfigurationError(
                "secrets is empty: pass a list with at least one random string, "
                'made once with python -c "import secrets; print(secrets.token_urlsafe(32))"',
                field="secrets",
            )
        self._fernet = MultiFernet(
            [Fernet(urlsafe_b64encode(_derived(secret, _SEALING))) for secret in secrets]
        )
        self._naming = hmac.new(_derived(secrets[0], _NAMING), digestmod="sha256")

    def pseudonym(self, user: str) -> str:
        """Return the pseudonym of *user* for the service: 43 characters, the same each time.

        Another first secret makes another pseudonym, so the service then sees each user as new.
        """
        naming = self._naming.copy()
        naming.update(user.encode("utf-8", "surrogatepass"))
        return urlsafe_b64encode(naming.digest()).decode("ascii").rstrip("=")

    def seal(self, thread: Thread, user: str, place: str) -> str:
        """Return a token for *thread* that only *user* can use, at *place* only (URL and domain)."""
        content = json.dumps({"u": _digest(user, place), "i": thread.id, "k": thread.key})
        return self._fernet.encrypt_at_time(content.encode("ascii"), int(now())).decode("ascii")

    def open(self, token: str, user: str, place: str) -> Thread:
        """Return the thread in *token*, for the *user* and the *place* of :meth:`seal`.

        Raises:
            SealError: The token was changed, has expired, or belongs to another user or another place.
        """
        try:
            if len(token) > MAX_TOKEN_CHARACTERS or not _TOKEN.fullmatch(token):
                raise InvalidToken
            fields = json.loads(self._fernet.decrypt_at_time(token, VALID_SECONDS, int(now())))
        except InvalidToken:
            raise SealError("changed or expired") from None
        if not hmac.compare_digest(fields["u"], _digest(user, place)):
            raise SealError("another user's or another site's")
        return Thread(fields["i"], fields["k"])


def _derived(secret: object, purpose: bytes) -> bytes:
    """Return the key of 32 bytes that *secret* gives for *purpose*."""
    if not isinstance(secret, str) or len(secret) < MIN_SECRET_CHARACTERS:
        raise ConfigurationError(
            f"each of secrets must be a random string of at least {MIN_SECRET_CHARACTERS} characters",
            field="secrets",
        )
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(secret.encode())


def _digest(user: str, place: str) -> str:
    """Return the user's id and the place as a hash, whose length does not depend on the app's ids."""
    return hashlib.sha256(json.dumps([user, place]).encode("ascii")).hexdigest()
