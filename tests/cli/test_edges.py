"""The command line in odd surroundings: closed streams, proxies, words behind options, names of flags."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fcntl import ioctl

import aiohttp
import pytest
from aiohttp import web

from mintlify_async.cli.argument_parser import make_parser
from mintlify_async.http.connection_errors import version_numbers
from mintlify_async.testing import Cut, LocalService
from tests.support.child_process import child_environment
from tests.support.command_line import run, start
from tests.support.proxy_server import Proxy
from tests.support.terminal_screen import on_terminal
from tests.support.tls import authority, tls_contexts

CREATE = ["job", "create"]
NOTHING = "http://127.0.0.1:9"


# Reading ------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    "command", [["ask", "-"], ["ask"], ["job", "create", "-"], ["ask", "--code", "-", "Hm?"], ["chat"]]
)
async def test_a_signal_ends_a_read_of_standard_input(service, tmp_path, command, number, status):
    """The first Ctrl-C, and SIGTERM, end the command while it waits for input. Nothing is sent."""
    env = child_environment(service, XDG_DATA_HOME=str(tmp_path))
    process = await start("-v", *command, env=env)
    process.stdin.write(b"half a ")
    await process.stdin.drain()
    pipe = process.stdin.transport.get_extra_info("pipe").fileno()
    while ioctl(pipe, termios.FIONREAD, bytes(4)) != bytes(4):  # until it reads
        await asyncio.sleep(0.02)
    process.send_signal(number)
    assert await asyncio.wait_for(process.wait(), 20) == status
    assert b"Traceback" not in await process.stderr.read()
    assert not service.requests


@pytest.mark.real
async def test_a_signal_ends_a_read_of_a_pipe_with_a_name(service, tmp_path):
    """The file of --code may be a pipe, such as that of `<(program)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = await start("ask", "--code", str(pipe), "Hm?", env=child_environment(service))
    writing = await asyncio.to_thread(pipe.open, "wb")  # waits until it reads
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 20) == 130
    writing.close()


@pytest.mark.real
async def test_a_signal_just_before_a_read_ends_it(service):
    """Asyncio only cancels the task, which then would wait for input."""
    program = (
        "import os, signal, sys\n"
        "from mintlify_async.cli import main, standard_input as module\n"
        "read = module.read_text\n"
        "def late(*arguments):\n"
        "    os.kill(os.getpid(), int(sys.argv[1]))\n"
        "    return read(*arguments)\n"
        "import mintlify_async.cli.ask as ask\n"
        "ask.read_text = late\n"
        "sys.exit(main(['ask', '-']))\n"
    )
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, str(int(number))),
            env=child_environment(service),
            stdin=asyncio.subprocess.PIPE,
        )
        assert await asyncio.wait_for(process.wait(), 20) == status


@pytest.mark.parametrize("stdin", [b"caf\xe9", "Grüße".encode("utf-16"), "hi".encode("utf-16-le")])
@pytest.mark.parametrize("command", [["ask"], ["chat"], CREATE, ["ask", "--code", "-", "Hm?"]])
async def test_input_that_is_not_utf_8_is_named(service, tmp_path, command, stdin):
    """One line, whatever the locale is. Nothing is sent."""
    ended = await run(*command, service=service, stdin=stdin, XDG_DATA_HOME=str(tmp_path))
    assert (ended.status, ended.out) == (2, "")
    assert "standard input is not text in UTF-8" in ended.err
    assert not service.requests


async def test_a_byte_order_mark_is_not_part_of_the_prompt(service):
    """Line endings are those of Python."""
    await run(*CREATE, service=service, stdin=b"\xef\xbb\xbfFix\r\nit")
    assert service.requests[0].json == {"prompt": "Fix\nit"}


@pytest.mark.parametrize("arguments", [["job", "create", "caf\udce9"], ["ask", "--fp", "caf\udce9", "Hm?"]])
async def test_an_argument_that_is_not_utf_8_is_named(service, arguments):
    """Python keeps such bytes as halves of surrogate pairs."""
    ended = await run(*arguments, service=service)
    assert ended.status == 2
    assert "it is not text in UTF-8" in ended.err


# Words ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words", "changed"),
    [
        (["job", "send", "REF", "--wait", "more"], ["more"], {"wait": True, "ref": "REF"}),
        (["job", "send", "--timeout", "1", "REF", "--wait", "more"], ["more"], {"timeout": 1.0}),
        (["job", "create", "Fix", "the", "--wait", "typos"], ["Fix", "the", "typos"], {"wait": True}),
        (["job", "create", "-v is broken"], ["-v is broken"], {"verbose": False}),
        (["job", "create", "-h shows nothing"], ["-h shows nothing"], {}),
        (["job", "create", "--json=x is wrong"], ["--json=x is wrong"], {"json": False}),
        (["job", "create", "--dedupe=a b", "Fix", "-v"], ["Fix"], {"dedupe_key": "a b", "verbose": True}),
        (["job", "create", "--ledger", "f", "--", "--wait"], ["--wait"], {"wait": False, "ledger": "f"}),
        (["job", "create", "- one\n- two"], ["- one\n- two"], {}),
        (["job", "create", "-"], ["-"], {}),
    ],
)
def test_words_behind_an_option_are_words_of_the_prompt(arguments, words, changed):
    """So is one argument that begins like an option and has blanks."""
    options = make_parser().parse_args(arguments)
    assert options.prompt == words
    assert {name: getattr(options, name) for name in changed} == changed


def test_words_of_a_question_may_stand_around_options():
    """An unknown option stays an error."""
    assert make_parser().parse_args(["ask", "What", "--results", "3", "a job"]).question == ["What", "a job"]
    with pytest.raises(SystemExit):
        make_parser().parse_args(["ask", "What", "--nothing"])


@pytest.mark.parametrize(
    ("option", "good", "bad"),
    [
        (["serve", "--port"], ("0", "65535"), ("65536", "1.5", "٣", "", "x")),
        (["ask", "--results"], ("1", "99999"), ("0", "1.5", "²", "all")),
        (["job", "wait", "--timeout"], ("0.5", "1e9"), ("0", "-1", "inf", "nan", "1 s")),
    ],
    ids=lambda value: value[-1],
)
async def test_a_number_is_read_within_its_limits(option, good, bad):
    """The limits themselves are numbers. Anything else is told with the option."""
    for value in good:
        assert (await run(*option, value, "--help")).status == 0
    for value in bad:
        ended = await run(*option[:-1], f"{option[-1]}={value}", "--help")
        assert ended.status == 2
        assert f"{option[-1]}: {value!r} is not a" in ended.err


# Names ---------------------------------------------------------------------------------------------


async def test_no_ci_service_obeys_an_error(service):
    """A refusal of the service, or a break in its stream, may say `##vso[…]`."""
    service.script.any(status=400, body={"error": "##vso[task.complete result=Failed] ##[error]"}, times=None)
    for command in (["ask", "Hm?"], ["job", "create", "x"], ["doctor"]):
        ended = await run(*command, service=service)
        assert "task.complete" in ended.out + ended.err
        assert "##vso[" not in ended.out + ended.err
        assert "##[" not in ended.out + ended.err


# Surroundings --------------------------------------------------------------------------------------


def shell(service: LocalService, line: str, **env: str | None) -> subprocess.CompletedProcess[bytes]:
    """Run *line* in a shell, where $M is the command."""
    changes = {"M": f"{sys.executable} -m mintlify_async"} | env
    return subprocess.run(
        ["bash", "-c", line],
        env=child_environment(service, **changes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.real
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("$M ask Hm? >&-", b"standard output is closed"),
        ("$M doctor >&-", b"standard output is closed"),
        ("$M demo >&-", b"standard output is closed"),
        ("$M job create <&-", b"standard input (which is closed)"),
        ("$M chat <&-", b"standard input is closed"),
        ("$M ask <&-", b"standard input (which is closed)"),
    ],
)
async def test_a_closed_stream_is_one_line_and_nothing_is_sent(service, line, says):
    """Status 2, and no traceback."""
    ended = await asyncio.to_thread(shell, service, line)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not service.requests


@pytest.mark.real
async def test_an_answer_is_shown_on_a_terminal_without_a_width(service):
    """A paid answer is never lost. rich draws nothing in a width of 0."""
    env = child_environment(service, COLUMNS="0", TERM="xterm")
    async with on_terminal("-m", "mintlify_async", "ask", "Hm?", env=env) as screen:
        assert await screen.ended() == 0
    assert "documentation" in screen.output


async def test_chat_without_a_home_folder_says_what_to_do(service, monkeypatch):
    """A user of a container may have no account. XDG_DATA_HOME counts only if it is absolute."""
    monkeypatch.setattr("pathlib.Path.home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    ended = await run("chat", "work", service=service, stdin="Hm?\n", HOME=None, XDG_DATA_HOME="relative")
    assert (ended.status, ended.out) == (2, "")
    assert "set HOME, or give --store FILE" in ended.err


# Proxies -------------------------------------------------------------------------------------------


@asynccontextmanager
async def company_proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy for http that wants the user `ann` with the password `geheim`, and its requests."""
    seen = list[str]()
    right = f"Basic {base64.b64encode(b'ann:geheim').decode()}"

    async def forward(request: web.BaseRequest) -> web.Response:
        seen.append(request.raw_path)
        if request.headers.get("Proxy-Authorization") != right:
            return web.Response(status=407)
        headers = {
            name: request.headers[name]
            for name in ("Authorization", "Content-Type")
            if name in request.headers
        }
        body = await request.read()
        async with client.request(request.method, request.raw_path, headers=headers, data=body) as answer:
            kind = {"Content-Type": answer.headers["Content-Type"], "Date": answer.headers["Date"]}
            return web.Response(status=answer.status, body=await answer.read(), headers=kind)

    server = web.Server(forward)
    async with aiohttp.ClientSession() as client:
        runner = web.ServerRunner(server)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"127.0.0.1:{runner.addresses[0][1]}", seen
        await runner.cleanup()


@pytest.mark.parametrize(
    "command", [["ask", "Hm?"], [*CREATE, "x", "--wait"], ["doctor"], ["doctor", "questions"]]
)
async def test_a_proxy_with_a_password(service, command):
    """By the variable, the flag, or the environment. Without the password, the error says where it goes."""
    if "--wait" in command and version_numbers(aiohttp.__version__) < (3, 13, 3):
        pytest.skip("this aiohttp sends no password with the second request of a connection")
    async with company_proxy() as (proxy, seen):
        url = f"http://ann:geheim@{proxy}"
        ways = [([], {"MINTLIFY_PROXY": url}), (["--proxy", url], {})]
        ways += [(["--proxy", "environment"], {"http_proxy": url})]
        ways += [([], {"MINTLIFY_PROXY": "environment", "http_proxy": url})]
        for flags, env in ways:
            seen.clear()
            ended = await run(*command, *flags, service=service, **env)
            assert ended.status == 0, ended.err + ended.out
            assert seen
            assert "geheim" not in ended.out + ended.err
        ended = await run(*command, service=service, MINTLIFY_PROXY=f"http://{proxy}")
        assert ended.status == 1
        assert "407" in ended.out + ended.err
        assert "MINTLIFY_PROXY=http://user:password@host:port" in ended.out + ended.err


@pytest.mark.real
@pytest.mark.parametrize("command", [["ask", "Hm?"], [*CREATE, "x", "--wait"], ["doctor"]])
async def test_a_tunnel_through_a_proxy(tmp_path, command):
    """Https goes through CONNECT, and the service's certificate is checked inside the tunnel."""
    authority().cert_pem.write_to_path(tmp_path / "ca.pem")
    async with LocalService(ssl=tls_contexts()[0]) as service, Proxy(service, None) as proxy:
        url = {"MINTLIFY_BASE_URL": "https://service.test", "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        ways = [(["--proxy", proxy.url], {}), ([], {"MINTLIFY_PROXY": proxy.url})]
        ways += [(["--proxy", "environment"], {"HTTPS_PROXY": proxy.url})]
        ways += [([], {"MINTLIFY_PROXY": "environment", "https_proxy": proxy.url})]
        for flags, env in ways:
            proxy.requests.clear()
            process = await start(*command, *flags, env=child_environment(service, **url, **env))
            out, err = await process.communicate()
            assert process.returncode == 0, (out + err).decode()
            assert {line for line, _ in proxy.requests} == {"CONNECT service.test:443 HTTP/1.1"}
        env = child_environment(service, **url | {"SSL_CERT_FILE": os.devnull}, MINTLIFY_PROXY=proxy.url)
        process = await start(*command, env=env)
        out, err = await process.communicate()
        assert process.returncode == 1
        assert b"certificate" in out + err


@pytest.mark.parametrize("env", [{"http_proxy": "http://127.0.0.1:1"}, {"ALL_PROXY": "http://127.0.0.1:1"}])
async def test_a_proxy_that_is_set_and_not_used_is_named(service, env):
    """If the service cannot be reached directly, the error and doctor name the variable and the way out."""
    (name,) = env
    ways = "--proxy environment or MINTLIFY_PROXY=environment uses it"
    for command in (["ask", "Hm?"], ["doctor"], ["doctor", "questions"]):
        ended = await run(*command, service=service, MINTLIFY_BASE_URL=NOTHING, **env)
        assert ended.status == 1
        assert (ended.out + ended.err).count(f"{name} is set and not used: {ways}") == 1
    ended = await run("ask", "Hm?", service=service, MINTLIFY_BASE_URL=NOTHING, NO_PROXY="127.0.0.1", **env)
    assert "not used" not in ended.err


@pytest.mark.real
async def test_demo_uses_no_proxy():
    """Its own service is on this machine."""
    proxies = dict.fromkeys(("MINTLIFY_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:1")
    assert (await run("demo", **proxies)).status == 0


# doctor at another server --------------------------------------------------------------------------

FOREIGN = [
    {"body": b"<html><body>Page not found. Our jobs. Our projects.</body></html>"},
    {"body": {"error": "Cannot GET /v2/agent/acme/job/doctor-no-such-job"}},
    {"body": {"message": "Not Found"}},
    {"body": b""},
]


@pytest.mark.parametrize("answer", FOREIGN)
async def test_doctor_finds_a_server_that_is_not_the_service(service, answer):
    """It answers 404 to everything. Both forms of doctor say wrong, and which setting to check."""
    service.script.any(status=404, times=None, **answer)
    ended = await run("doctor", service=service)
    assert ended.status == 1
    assert "wrong    " in ended.out
    assert "check MINTLIFY_BASE_URL" in ended.out
    assert "takes the admin key" not in ended.out
    verified = await run("doctor", "--verify", "--yes", service=service, MINTLIFY_ASSISTANT_API_KEY=None)
    assert verified.status == 1
    assert "broken    base URL: " in verified.out
    assert "fix it: MINTLIFY_BASE_URL=" in verified.out
    assert "key prefixes: the admin key" not in verified.out


# What to do is said once ---------------------------------------------------------------------------


async def test_an_unknown_outcome_names_the_dashboard_once(service):
    """Status 5: the job may have been created, and one line says where to look."""
    service.script.create_job(fault=Cut(at=0))
    status, out, err = await run(*CREATE, "Fix it", service=service)
    assert (status, out) == (5, "")
    assert err.count("look at the dashboard") == 1


@pytest.mark.parametrize("command", [[*CREATE, "--dedupe-key", "k", "Fix it"], ["ledger", "list"]])
@pytest.mark.parametrize("kind", ["folder", "notes"])
async def test_a_ledger_that_is_no_database_is_a_setting(service, tmp_path, command, kind):
    """A folder or a file of something else: status 2, one line with its name, and nothing is sent."""
    place = tmp_path / "ledger"
    if kind == "folder":
        place.mkdir()
    else:
        place.write_text("These are my notes.")
    arguments = [*command[:2], "--ledger", str(place), *command[2:]]
    status, out, err = await run(*arguments, service=service)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert f"the ledger {place} is " in line
    assert service.requests == []


@pytest.mark.parametrize("command", [["ask", "Hm?"], [*CREATE, "--wait", "Fix it"], ["doctor"]])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_tunnel_that_wants_a_password(service, command, scheme):
    """A proxy refuses CONNECT with 407: one line says how to give it the password. Nothing is sent."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Who?\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1") as server:
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        url = f"{scheme}://docs.invalid" if scheme == "https" else service.base_url
        status, out, err = await run(*command, service=service, MINTLIFY_PROXY=proxy, MINTLIFY_BASE_URL=url)
    assert status == 1
    told = out if command == ["doctor"] else err
    assert told.count("MINTLIFY_PROXY=http://user:password@host:port") == 1, out + err
    assert service.requests == []
