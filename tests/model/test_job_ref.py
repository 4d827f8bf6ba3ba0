"""Job references: their text, JSON and pickle forms."""

from __future__ import annotations

import copy
import json
import pickle
import zlib
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async.errors import ConfigurationError
from mintlify_async.jobs.handle import Turn
from mintlify_async.model.job_ref import End, JobRef, Stamp
from mintlify_async.protocol.calls import CallDefaults
from tests.support.job_fakes import FakeAgent

SENT = Stamp(1795324592.125, 1795324591.0)
REFS = [
    JobRef("docs", "job_1"),
    JobRef("docs", "job_1", was_final=True),
    JobRef("docs", "job_1", sent=Stamp(2.5)),
    JobRef("docs", "job_1", created=Stamp(1795324592.125)),
    JobRef("docs", "job_1", created=SENT, sent=SENT, was_final=True),
    JobRef("docs", "job_1", sent=SENT, end=End("odd=word:x;y/z", SENT)),
    JobRef("a:b/c", "job 1?é:=", sent=SENT),
]


@pytest.mark.parametrize("ref", REFS)
def test_every_form_comes_back_as_it_went(ref):
    """Text, JSON, dict, pickle and copy keep all that a reference says."""
    assert JobRef.parse(str(ref)) == ref
    assert JobRef.from_json(ref.to_json()) == ref
    assert JobRef.from_dict(json.loads(json.dumps(ref.to_dict()))) == ref
    assert pickle.loads(pickle.dumps(ref)) == ref
    assert copy.deepcopy(ref) == copy.copy(ref) == ref
    assert len({ref, JobRef.parse(str(ref))}) == 1
    assert JobRef.parse(str(ref)).to_dict() == ref.to_dict() == pickle.loads(pickle.dumps(ref)).to_dict()


def sealed(body):
    return f"{body}:{zlib.crc32(body.encode()):08x}"


@pytest.mark.parametrize(
    "state", ["armed", "Final", "final;later=1", "sent=soon", "sent=1/soon", "sent=inf", "end=completed"]
)
def test_an_unknown_state_is_an_error(state):
    """A later version's word must not be read as one that guards nothing."""
    with pytest.raises(ConfigurationError):
        JobRef.parse(sealed(f"mintlify-job:2:docs:job_1:{state}"))


names = st.text(min_size=1).filter(
    lambda s: s.strip() and s not in (".", "..") and s.isprintable() and "\x7f" not in s
)


@given(project=names, job=names, status=names)
def test_any_identifier_survives_the_text(project, job, status):
    """Colons, slashes, spaces and letters of any script are encoded, and the text is one ASCII word."""
    ref = JobRef(project, job, sent=SENT, end=End(status, SENT))
    assert JobRef.parse(str(ref)).to_dict() == ref.to_dict()
    assert str(ref).isascii()
    assert not any(character.isspace() for character in str(ref))


def test_the_text_is_pinned():
    """References are kept in queues and databases: an old text must stay readable."""
    assert str(JobRef("docs", "job_1")) == "mintlify-job:2:docs:job_1::" + str(REFS[0]).rpartition(":")[2]
    armed = sealed(
        "mintlify-job:2:docs:job_1:final;created=1795324592.125/1795324591.0;sent=1795324592.125/1795324591.0"
    )
    assert str(REFS[4]) == armed
    assert JobRef.parse(f"  {armed}\n") == REFS[4]


@pytest.mark.parametrize(
    ("state", "ref"),
    [
        ("plain", JobRef("docs", "job_1")),
        ("plain;created=1.5", JobRef("docs", "job_1", created=Stamp(1.5))),
        ("turn=;sent=2.5", JobRef("docs", "job_1", sent=Stamp(2.5))),
        ("turn=active;sent=2.5;created=1.5", JobRef("docs", "job_1", sent=Stamp(2.5), created=Stamp(1.5))),
        (
            "turn=completed;link=x%3Ay;seen=1;sent=2.5",
            JobRef("docs", "job_1", sent=Stamp(2.5), was_final=True),
        ),
        ("turn=completed", None),
        ("turn", None),
    ],
)
def test_a_text_of_version_0_2_is_read(state, ref):
    """It keeps its guard; one without the time of its follow-up is refused."""
    text = sealed(f"mintlify-job:1:docs:job_1:{state}")
    if ref is None:
        with pytest.raises(ConfigurationError):
            JobRef.parse(text)
    else:
        assert JobRef.parse(text).to_dict() == ref.to_dict()


@pytest.mark.parametrize("ref", REFS)
def test_a_cut_or_changed_text_is_refused(ref):
    """Half a reference could lose its guard, and name another job."""
    text = str(ref)
    for end in range(len(text)):
        with pytest.raises(ConfigurationError):
            JobRef.parse(text[:end])
    for place in range(len(text)):
        changed = text[:place] + ("x" if text[place] != "x" else "y") + text[place + 1 :]
        with pytest.raises(ConfigurationError):
            JobRef.parse(changed)


@pytest.mark.parametrize(
    "text",
    ["", "job_1", "https://github.com/a/b/pull/3", "{}", "mintlify-job:", "mintlify-job:1", None, 3, b"x"],
)
def test_a_foreign_text_is_refused(text):
    """What is no reference says so, names the field and tells where to get one."""
    with pytest.raises(ConfigurationError, match=r"handle\.ref") as caught:
        JobRef.parse(text)
    assert caught.value.field == "ref"


def test_a_pickle_is_checked_like_the_text():
    """It carries the version, and one that was changed is refused."""
    pickled = pickle.dumps(JobRef("docs", "job_1"), protocol=0)
    assert b"mintlify-job:2:docs:job_1:" in pickled
    with pytest.raises(ConfigurationError, match="version"):
        pickle.loads(pickled.replace(b"mintlify-job:2:", b"mintlify-job:3:"))


def test_a_newer_version_is_named():
    """A reference from a later release says that, rather than being misread."""
    with pytest.raises(ConfigurationError, match="version '3'"):
        JobRef.parse("mintlify-job:3:docs:job_1::00000000")
    with pytest.raises(ConfigurationError, match="version 3"):
        JobRef.from_dict({**REFS[0].to_dict(), "version": 3})


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        "x",
        {},
        {"version": 2},
        {"version": 2, "project_id": "p"},
        {"version": 2, "project_id": 1, "id": "j"},
        {"version": 2, "project_id": "p", "id": "j", "sent": {"on": 1}},
        {"version": 2, "project_id": "p", "id": "j", "sent": {"at": "soon"}},
        {"version": 2, "project_id": "p", "id": "j", "end": {"status": "x"}},
        {"version": 1, "project_id": "p", "id": "j"},
    ],
)
def test_a_foreign_object_is_refused(stored):
    """A dict of something else does not become a job."""
    with pytest.raises(ConfigurationError):
        JobRef.from_dict(stored)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_foreign_json_is_refused(text):
    """Broken JSON is a clear error, not the parser's."""
    with pytest.raises(ConfigurationError):
        JobRef.from_json(text)


@pytest.mark.parametrize("name", ["", " ", ".", "..", "a\nb", "a\x00", "\ud800", None, 3])
def test_no_identifier_is_refused(name):
    """A project that would name another path, or nothing, is refused where it is given; no text is no job."""
    with pytest.raises(ConfigurationError) as caught:
        JobRef(name, "job_1")
    assert caught.value.field == "project_id"
    if not name or not isinstance(name, str):
        with pytest.raises(ConfigurationError) as caught:
            JobRef("docs", name)
        assert caught.value.field == "id"


@given(job=st.text(st.characters(exclude_categories=()), min_size=1))
def test_a_reference_takes_any_id(job):
    """The interface does not show the format of a job's id: every form of a reference keeps any."""
    ref = JobRef("docs", job)
    for again in (JobRef.parse(str(ref)), JobRef.from_json(ref.to_json()), pickle.loads(pickle.dumps(ref))):
        assert again == ref


@pytest.mark.parametrize("job", [" ", "a b", "a\nb", "\x00", "https://x/y?z#", "{}", "mintlify-job:1", "é/…"])
async def test_a_job_is_found_by_any_id(service, job):
    """An id that the service gave goes back percent-encoded, whatever it is: no paid job is lost."""
    record = {"id": job, "status": "completed", "prLink": ""}
    service.script.create_job(status=201, json=record)
    service.script.get_job(json=record, times=None)
    service.script.send_message(json=record)
    async with service.session() as session:
        handle = await session.create_job("x")
        assert (await session.job(handle.ref).refresh()).id == job
        turn = await handle.send("y")
        assert JobRef.parse(str(turn.ref)).id == job
    segment = quote(job, safe="")
    assert [request.path.partition("/job/")[2] for request in service.requests] == [
        "",
        segment,
        f"{segment}/message",
    ]


@pytest.mark.parametrize("job", [".", "..", "\ud800"])
async def test_an_id_that_no_path_can_name_is_not_sent(service, job):
    """It would name another path, or none."""
    async with service.session() as session:
        with pytest.raises(ConfigurationError) as caught:
            await session.job(JobRef("docs", job)).refresh()
    assert caught.value.field == "job_id"
    assert not service.requests


def test_a_session_takes_every_form():
    """A reference, its text and a bare id name the same job; one that awaits a turn makes a turn."""
    agent = FakeAgent()
    plain = JobRef("docs", "job_1")
    for named in (plain, str(plain), "job_1"):
        assert agent.job(named).ref == plain
        assert type(agent.job(named)) is not Turn
    assert isinstance(agent.job(REFS[2]), Turn)
    assert agent.job(str(REFS[2])).ref == REFS[2]
    assert agent.looks == []


@pytest.mark.parametrize(
    "named",
    [
        "",
        ".",
        "..",
        " ",
        " job",
        "job ",
        "a\nb",
        "\x7f",
        "\ud800",
        '{"version": 2}',
        "mintlify-job:1:docs",
        None,
        7,
    ],
)
def test_a_session_refuses_what_names_no_job(named):
    """The error comes before any request."""
    agent = FakeAgent()
    with pytest.raises(ConfigurationError):
        agent.job(named)


@pytest.mark.parametrize("named", ["job 7/é", "https://x/y", "{", "a:b", "'job'", "mintlify-jobs"])
def test_a_session_takes_any_id(named):
    """The interface does not show the format of a job's id."""
    assert FakeAgent().job(named).id == named


def test_a_bare_id_needs_a_project():
    """Without one there is no path to ask."""
    agent = FakeAgent()
    agent.defaults = CallDefaults()
    with pytest.raises(ConfigurationError) as caught:
        agent.job("job_1")
    assert caught.value.field == "project_id"


def test_a_handle_does_not_travel():
    """Pickling a handle says to carry its reference."""
    with pytest.raises(TypeError, match=r"\.ref"):
        pickle.dumps(FakeAgent().job())
