"""Makes encrypted tokens of threads for web pages, and pseudonyms of users for the service.

The web page keeps the token and sends it with the next question. It can neither read nor change the token,
and the token is valid only for one user and one documentation site.
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
from mintlify_async.runtime.clock import now

VALID_SECONDS = 30 * 24 * 60 * 60  # validity of a token
MIN_SECRET_CHARACTERS = 32  # secrets.token_urlsafe(32) has 43, and most passwords are shorter
MAX_TOKEN_CHARACTERS = 16_384  # longer than any token of the relay, to limit the work for a request
# Every token of the relay: URL-safe base64 with padding, in which the unused bits of the last character are
# zero. Python's decoder skips or accepts some other characters, which depends on its version.
_TOKEN = re.compile(r"(?:[\w-]{4})*(?:[\w-][AQgw]==|[\w-]{2}[AEIMQUYcgkosw048]=)?", re.ASCII)
# Each use of a secret has its own key, so a token for another use is refused.
_SEALING = b"mintlify-async relay thread v2"
_NAMING = b"mintlify-async relay user v1"


class SealError(Exception):
    """A token is refused, because it was changed, has expired, or belongs to another user or site."""


class ThreadSeal:
    """Encrypts threads into tokens that one user can use for 30 days at one site. Makes pseudonyms of users.

    Args:
        secrets: Random strings of at least 32 characters, from your secret store. The first string encrypts
            and makes the pseudonyms. All strings decrypt, so you can put a new string before the old ones.

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

        With another first secret, the pseudonyms change, so each user counts as a new user at the service.
        """
        naming = self._naming.copy()
        naming.update(user.encode("utf-8", "surrogatepass"))
        return urlsafe_b64encode(naming.digest()).decode("ascii").rstrip("=")

    def seal(self, thread: Thread, user: str, place: str) -> str:
        """Return a token for *thread*. Only *user* can use it, and only at *place* (URL and domain)."""
        content = json.dumps({"u": _digest(user, place), "i": thread.id, "k": thread.key})
        return self._fernet.encrypt_at_time(content.encode("ascii"), int(now())).decode("ascii")

    def open(self, token: str, user: str, place: str) -> Thread:
        """Return the thread in *token*, for the *user* and the *place* of :meth:`seal`.

        Raises:
            SealError: The token was changed, has expired, or belongs to another user or place.
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
    """Return a key of 32 bytes for *purpose*, made from *secret*."""
    if not isinstance(secret, str) or len(secret) < MIN_SECRET_CHARACTERS:
        raise ConfigurationError(
            f"each of secrets must be a random string of at least {MIN_SECRET_CHARACTERS} characters",
            field="secrets",
        )
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(secret.encode())


def _digest(user: str, place: str) -> str:
    """Return a hash of the user's id and the place. Its length does not depend on the app's ids."""
    return hashlib.sha256(json.dumps([user, place]).encode("ascii")).hexdigest()
