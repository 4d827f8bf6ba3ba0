"""Running answers of the relay on Redis, so that a web page can read and stop an answer on any worker.

A chat has one key with its newest answer, and one key that means that this answer must stop. An answer has a
Redis Stream with its bytes, and two keys. These keys mean that its worker is alive, and that another worker
has a reader. There is no script, and no reader keeps a connection. Redis gets only the data of web pages and
their questions. It gets no key of the service, and the thread only encrypted. The names of the Redis keys are
hashes of user and chat.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Literal

from attrs import frozen

from mintlify_async.argument_checks import check_seconds
from mintlify_async.errors import ConfigurationError, StateError
from mintlify_async.storage.store import NothingToClose

from ...wrong_names import helpful
from ..memory_stream_store import GRACE_SECONDS, KEEP_SECONDS
from .connections import RedisScripts, text

ReadState = Literal["running", "ended", "lost"]
"""The state of an answer's log. ``lost``: the log is incomplete, and its worker does not run any more."""

LOST_MS: Final = 5000
"""After this time without a write, a worker counts as dead. A living worker writes twice a second."""

READ_MS: Final = 2000
"""Time for which a reader counts after a read. A reader reads ten times a second."""

KEEP_MORE_MS: Final = 60_000
"""Additional time, beyond ``keep``, for which bytes are kept after the last write of the worker."""


@frozen
class SharedAnswer:
    """The newest answer of a chat in a shared store.

    Attributes:
        id: The name of the answer.
        about: The worker's description of the answer: the question's id and the chat's progress.
        running: Whether the answer has not ended and its worker is alive.
    """

    id: str
    about: dict[str, Any]
    running: bool


@helpful
class RedisStreamStore(RedisScripts, NothingToClose):
    """Running answers on a Redis, for any number of workers: ``streams=RedisStreamStore(client)``.

    Args:
        client: A ``redis.asyncio.Redis`` (6.2 or newer) or ``RedisCluster`` whose ``encoding`` is UTF-8, its
            default. It is never closed here.
        namespace: The prefix of every key.
        timeout: Maximum duration of one step, in seconds. While Redis cannot be used, answers are relayed,
            but cannot be resumed.
        grace: Seconds for which an answer continues without a reader on any worker. Then it is stopped.
        keep: Seconds for which an answer can still be read after its end, by a web page that was reloaded.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        client: Any,
        *,
        namespace: str = "mintlify",
        timeout: float = 1.0,
        grace: float = GRACE_SECONDS,
        keep: float = KEEP_SECONDS,
    ) -> None:
        super().__init__(client, namespace=namespace, timeout=timeout)
        check_seconds(grace, "grace", zero=True)
        check_seconds(keep, "keep", zero=True)
        self.grace = grace
        self.keep = keep
        self._keep_ms = round(keep * 1000) + KEEP_MORE_MS

    async def begin(self, chat: str, answer: str) -> str | None:
        """Make *answer* the newest answer of *chat*. Return the previous answer, or None."""

        def commands(pipe: Any) -> None:
            pipe.set(self._key(chat, "alive", answer), 1, px=LOST_MS)
            pipe.delete(self._key(chat, "stop"))  # a stop was for the previous answer, which stops anyway
            pipe.set(self._key(chat, "newest"), answer, px=self._keep_ms, get=True)

        *_, previous = await self._all(commands)
        name = None if previous is None else text(previous)
        return None if name == answer else name  # the client has repeated the command

    async def describe(self, chat: str, answer: str, about: str) -> None:
        """Store *about*, in plain ASCII, with *answer*."""
        key = self._key(chat, "bytes", answer)
        await self._all(lambda pipe: pipe.xadd(key, {"about": about}, id="0-1"))

    async def write(
        self, chat: str, answer: str, frames: bytes, *, at: int, ended: bool
    ) -> tuple[bool, bool]:
        """Append *frames* at the position *at*. If the same frames are written twice, they count once.

        Return whether *answer* must stop, because a user stopped it or the chat has a newer answer, and
        whether *answer* has a reader on another worker.
        """
        stream, newest = self._key(chat, "bytes", answer), self._key(chat, "newest")
        alive = self._key(chat, "alive", answer)

        def commands(pipe: Any) -> None:
            pipe.get(newest)
            pipe.exists(self._key(chat, "stop"))
            pipe.exists(self._key(chat, "read", answer))
            if frames or ended:  # an entry's id is the size of the answer up to the entry's end
                fields = {"frames": frames, "ended": int(ended)}
                pipe.xadd(stream, fields, id=f"{at + len(frames)}-{int(ended) + 1}")
            if ended:  # deleted last, because a reader that does not find this key expects all bytes
                pipe.delete(alive)
            else:
                pipe.set(alive, 1, px=LOST_MS)
                pipe.set(newest, answer, nx=True, px=self._keep_ms)  # in case Redis has lost this key
            pipe.pexpire(stream, self._keep_ms)
            pipe.pexpire(newest, self._keep_ms)

        current, stop, read, *_ = await self._all(commands)
        superseded = current is not None and text(current) != answer
        return bool(stop) or superseded, bool(read)

    async def runs(self, chat: str, answer: str) -> bool:
        """Return whether *answer* has not ended and its worker is alive."""
        (alive,) = await self._all(lambda pipe: pipe.exists(self._key(chat, "alive", answer)))
        return bool(alive)

    async def newest(self, chat: str) -> SharedAnswer | None:
        """Return the newest answer of *chat*."""
        (newest,) = await self._all(lambda pipe: pipe.get(self._key(chat, "newest")))
        if newest is None:
            return None
        answer = text(newest)

        def commands(pipe: Any) -> None:
            pipe.xrange(self._key(chat, "bytes", answer), "0-1", "0-1")
            pipe.exists(self._key(chat, "alive", answer))

        entries, alive = await self._all(commands)
        about: dict[str, Any] = json.loads(_field(entries[0][1], "about")) if entries else {}
        return SharedAnswer(answer, about, bool(alive))

    async def read(self, chat: str, answer: str, place: int) -> tuple[bytes, int, ReadState]:
        """Return the bytes of *answer* after *place*, the place after them, and the state of the log.

        The call also reports to the answer's worker that the answer has a reader.
        """

        def commands(pipe: Any) -> None:
            # In this order, because the second result has all bytes if the first says that the answer ended.
            pipe.exists(self._key(chat, "alive", answer))
            pipe.xrange(self._key(chat, "bytes", answer), f"({place}-1", "+")
            pipe.set(self._key(chat, "read", answer), 1, px=READ_MS)

        alive, entries, _ = await self._all(commands)
        pieces = list[bytes]()
        state: ReadState = "running" if alive else "lost"
        for id_, fields in entries:
            frames, end = _field(fields, "frames"), int(text(id_).partition("-")[0])
            begin = end - len(frames)
            if begin > place:  # Redis has lost the bytes before
                return b"", place, "lost"
            pieces.append(frames[place - begin :])
            place = end
            if _field(fields, "ended") == b"1":
                state = "ended"
        return b"".join(pieces), place, state

    async def stop(self, chat: str) -> None:
        """Ask the running answers of *chat* to stop. This works even if Redis has lost their names."""
        await self._all(lambda pipe: pipe.set(self._key(chat, "stop"), 1, px=self._keep_ms))

    def _key(self, chat: str, kind: str, answer: str = "") -> str:
        # The braces keep all keys of a chat on one node of a cluster.
        return f"{self._namespace}:streams:{{{chat}}}:{kind}{answer and ':'}{answer}"

    async def _all(self, commands: Callable[[Any], object]) -> list[Any]:
        """Return the results of the *commands* of one round trip. If a command fails, raise StateError."""

        async def round_trip(client: Any) -> list[Any]:
            pipe = client.pipeline(transaction=False)
            commands(pipe)
            results: list[Any] = await pipe.execute(raise_on_error=False)
            for result in results:
                # This text means that an earlier write, whose response was lost, has already added the entry.
                if isinstance(result, Exception) and "equal or smaller" not in str(result):
                    raise result
            return results

        try:
            return await self._step(round_trip)
        except ConfigurationError as error:  # another event loop uses the client
            raise StateError(str(error)) from None


def _field(fields: Any, name: str) -> bytes:
    """Return a field of an entry, whether the client decodes replies or not."""
    value = fields[name] if name in fields else fields[name.encode()]
    return value.encode("ascii") if isinstance(value, str) else value
