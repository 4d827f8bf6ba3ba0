"""No error, log line or pickle shows a key, whatever its characters are and however it is repeated."""

from __future__ import annotations

import functools
import json
import logging
import pickle
import re
import traceback
from urllib.parse import quote, unquote

import pytest

from mintlify_async import APIConnectionError, MintlifyError, MintlifySession, RetryPolicy, Thread
from tests.support.raw_server import RawServer
from tests.support.secret_guard import reprs

SHAPES = {
    "letters": "Ab3dEf6hIj9lMn",
    "base64": "Ab/d+f/hI+9lMn==",
    "JWT": "eyJh.Ij9-Mn_o.Pq~s",
    "quotes": "Ab\"d'fG\"hI'9l",
    "backslashes": "Ab\\d\\\\fGhIj9l",
    "markup": "Ab<d>f&GhIj9l;",
    "percent": "Ab%2Fd%fGhIj9l",
    "braces": "Ab{d}f,G:hI[9]",
    "regular expression": "Ab.*d$^f(G|h)?+I9l",
    "slashes only": "/Ab//dEfGhIj9l/",
}
"""Keys of visible ASCII, without their prefix."""

WAYS_IN = ["argument", "function", "with_options"]


def session_with(way: str, url: str, key: str) -> MintlifySession:
    settings = {"base_url": url, "domain": "d", "project_id": "p", "retry": RetryPolicy(attempts=1)}
    keys = {"assistant_key": key, "admin_key": key.replace("mint_dsc_", "mint_")}
    if way == "function":
        keys = {name: functools.partial(str, value) for name, value in keys.items()}
    if way == "with_options":
        return MintlifySession(**settings).with_options(**keys)
    return MintlifySession(**settings, **keys)


def escaped(text: str) -> str:
    """Return *text* as the most careful writer of JSON writes it, without the quotation marks."""
    return "".join(f"\\u{ord(character):04x}" for character in text)


def as_php(text: str) -> str:
    return json.dumps(text)[1:-1].replace("/", "\\/")


def as_dotnet(text: str) -> str:
    return re.sub(r"""[+<>&'"\\]""", lambda one: f"\\u{ord(one[0]):04X}", text)


FORMS = {
    "PHP": as_php,
    ".NET": as_dotnet,
    "escaped": escaped,
    "JSON in JSON": lambda key: json.dumps(as_php(key))[1:-1],
    "URL": lambda key: quote(key, safe=""),
}

BODIES = {
    "JSON 401": (401, '{"error":"the key %s is revoked","threadKey":"%s"}'),
    "broken JSON 422": (422, '{"error":"the key %s, "threadKey":"%s'),
    "HTML 404": (404, "<html><p>%s</p><a data-key='%s'>x</a></html>"),
    "HTML 200": (200, "<html><p>%s</p><a data-key='%s'>x</a></html>"),
    "JSON 200": (200, '{"message":"%s","threadKey":"%s"}'),
    "error event": (200, 'data: {"type":"error","errorText":"no %s and %s"}\n\n'),
    "broken event": (200, 'data: {"type":"text-delta","id":"0","delta":"%s %s\n\n'),
}


def plain(text: str) -> str:
    """Return *text* without escapes of JSON and URLs, of any depth."""
    text = re.sub(r"\\+u([0-9a-fA-F]{4})", lambda one: chr(int(one[1], 16)), text)
    return unquote(text).replace("\\", "")


def shown(error: BaseException, records: list[logging.LogRecord]) -> dict[str, str]:
    """Return every text that a person or a tool could read, by its place."""
    texts = {f"log {record.lineno}": f"{record.getMessage()} {vars(record)!r}" for record in records}
    links: list[BaseException] = [error]
    for link in links:
        name = type(link).__name__
        texts[f"{name}: text"] = f"{link!r} {link} {link.args!r}"
        texts |= {f"{name}.{field}": f"{value!r} {value}" for field, value in vars(link).items()}
        for frame, line in traceback.walk_tb(link.__traceback__):
            if frame.f_globals.get("__name__", "").startswith("mintlify_async"):
                texts[f"{name}: locals of {frame.f_code.co_name} {line}"] = reprs(dict(frame.f_locals))
        links += [one for one in (link.__cause__, link.__context__) if one is not None and one not in links]
    texts["traceback"] = "".join(traceback.format_exception(error))
    texts["pickle"] = pickle.dumps(error).decode("latin-1")
    return texts


CALLS = {
    "ask": lambda session, thread: session.ask("x", thread=thread).run(),
    "create_job": lambda session, thread: session.create_job("x"),
    "refresh": lambda session, thread: session.job("j").refresh(),
}


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.parametrize("shape", SHAPES)
async def test_no_key_shows_in_what_the_service_repeats(shape, way, caplog):
    """Each frame, attribute, cause, log line and pickle, for each form and body."""
    caplog.set_level("DEBUG")
    core = SHAPES[shape]
    api_key, thread = f"mint_dsc_{core}", Thread("t", f"tk_{core}")
    needle = plain(core)[1:]

    async def play(connection, line):
        await connection.body()
        status, template = BODIES[body]
        is_question = line.startswith("POST /discovery")
        repeated = api_key if is_question else api_key.replace("mint_dsc_", "mint_")
        data = (
            template % (FORMS[form](repeated), FORMS[form](thread.key if is_question else repeated))
        ).encode()
        await connection.send(
            b"HTTP/1.1 %d X\r\nX-Key: %b\r\nContent-Length: %d\r\n\r\n"
            % (status, FORMS[form](repeated).encode(), len(data))
            + data
        )

    leaks = []
    async with RawServer(play) as server, session_with(way, server.url, api_key) as session:
        for form in FORMS:
            for body in BODIES:
                for name, call in CALLS.items():
                    caplog.clear()
                    try:
                        await call(session, thread)
                    except MintlifyError as error:
                        texts = shown(error, caplog.records)
                        leaks += [
                            (name, body, form, place, text)
                            for place, text in texts.items()
                            if needle in plain(text) or needle in text
                        ]
                    else:
                        assert name != "ask" or "event" not in body
    assert leaks == []


class Vault:
    """A secret of a library that shows it."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Vault({self.value!r})"


SECRET = "Ab3dEf6hIj9lMnOp"
REFUSED = {
    "with_options, another option": lambda s: s.with_options(
        admin_key=f"mint_{SECRET}", domain="https://a.example/x"
    ),
    "with_options, blank": lambda s: s.with_options(assistant_key=f" mint_{SECRET}"),
    "with_options, other name": lambda s: s.with_options(api_key=f"mint_{SECRET}"),
    "with_options, bytes": lambda s: s.with_options(assistant_key=SECRET.encode()),
    "bytes": lambda s: MintlifySession(admin_key=SECRET.encode(), project_id="p"),
    "bytearray": lambda s: MintlifySession(assistant_key=bytearray(SECRET.encode())),
    "dict": lambda s: MintlifySession(admin_key={"key": SECRET}),
    "vault": lambda s: MintlifySession(admin_key=Vault(SECRET)),
    "proxy as bytes": lambda s: MintlifySession(proxy=f"http://u:{SECRET}@h".encode()),
    "a thread's key": lambda s: Thread("", SECRET),
    "a thread's key as bytes": lambda s: Thread("t", SECRET.encode()),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_no_key_shows_when_an_argument_is_refused(what):
    """Whatever its type is, and whichever argument is at fault."""
    async with MintlifySession(project_id="p") as session:
        with pytest.raises(MintlifyError) as caught:
            REFUSED[what](session)
    assert not {place: text for place, text in shown(caught.value, []).items() if SECRET in text}
    assert "_Refused" not in str(caught.value)


@pytest.mark.parametrize("verb", ["create_job", "ask"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_no_key_shows_when_a_function_fails(verb, is_async):
    """The text of its error and its frames may contain the key, and are left out."""

    def function():
        raise RuntimeError(f"refused: {SECRET}")

    async def async_function():
        function()

    key = async_function if is_async else function
    options = {"admin_key": key, "assistant_key": key, "retry": RetryPolicy(attempts=1)}
    async with MintlifySession(project_id="p", domain="d", **options) as session:
        with pytest.raises(APIConnectionError, match="failed with RuntimeError") as caught:
            await getattr(session, verb)("x")
    assert (caught.value.sent, caught.value.reason) == ("no", "key")
    assert not {place: text for place, text in shown(caught.value, []).items() if SECRET in text}


@pytest.mark.parametrize("returned", [SECRET.encode(), {"key": SECRET}, Vault(SECRET), f" mint_{SECRET}"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_no_key_shows_that_a_function_returned(returned, is_async):
    """A vault returns bytes, or an object of its own."""

    def function():
        return returned

    async def async_function():
        return returned

    key = async_function if is_async else functools.partial(function)
    async with MintlifySession(project_id="p", admin_key=key) as session:
        with pytest.raises(MintlifyError) as caught:
            await session.create_job("x")
    assert not {place: text for place, text in shown(caught.value, []).items() if SECRET in text}
