"""Job references: their text, JSON and pickle forms."""

from __future__ import annotations

import copy
import json
import pickle
import re
import zlib
from urllib.parse import quote

import pytest
from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async.errors import ConfigurationError
from mintlify_async.jobs.handle import FollowUp
from mintlify_async.model.job_ref import End, JobRef, Stamp
from tests.support.job_fakes import FakeAgent

SENT = Stamp(1795324592.125, 1795324591.0)
REFS = [
    JobRef("docs", "job_1"),
    JobRef("docs", "job_1", was_final=True),
    JobRef("docs", "job_1", sent=Stamp(2.5)),
    JobRef("docs", "job_1", created=Stamp(1795324592.125)),
    JobRef("docs", "job_1", created=SENT, sent=SENT, was_final=True),
    JobRef("docs", "job_1", sent=SENT, end=End("odd=word:x;y/z_.%~", SENT)),
    JobRef("docs", "job_1", sent=SENT, end=End("", Stamp(2.5)), failing=Stamp(1e300, 1e-7)),
    JobRef("docs", "job_1", created=Stamp(-2.0), failing=Stamp(1795324592.125)),
    JobRef("a:b/c", "job 1?é:=", sent=SENT),
]


def forms(ref):
    """Return *ref* from its text, its JSON object and its pickle, with all that each form says."""
    stored = json.loads(json.dumps(ref.to_dict()))
    again = JobRef.parse(f"  {ref}\n"), JobRef.from_dict(stored), pickle.loads(pickle.dumps(ref))
    return [asdict(form) for form in (*again, copy.copy(ref), copy.deepcopy(ref))]


@pytest.mark.parametrize("ref", REFS)
def test_every_form_comes_back_as_it_went(ref):
    """Text, JSON, pickle and copy keep all that a reference says."""
    assert forms(ref) == [asdict(ref)] * 5
    assert len({ref, JobRef.parse(str(ref))}) == 1


def sealed(body):
    return f"{body}:{zlib.crc32(body.encode()):08x}"


@pytest.mark.parametrize(
    "state", ["armed", "Final", "final:later_1", "sent_soon", "sent_1_soon", "sent_inf", "end_completed"]
)
def test_an_unknown_state_is_an_error(state):
    """A later version's word must not be read as one that guards nothing."""
    with pytest.raises(ConfigurationError):
        JobRef.parse(sealed(f"mintlify-job:3:docs:job_1:{state}"))


@pytest.mark.parametrize("body", ["2:a:b", "2:a:b:final:x", "3:a", "3:.FF:b", "2:%FF:b:", "3:a::x", "3::b"])
def test_another_form_is_an_error(body):
    """A text with a right checksum that no release has written raises the same class of error."""
    with pytest.raises(ConfigurationError):
        JobRef.parse(sealed(f"mintlify-job:{body}"))


names = st.text(min_size=1).filter(
    lambda s: s.strip() and s not in (".", "..") and s.isprintable() and "\x7f" not in s
)


@given(project=names, job=st.text(st.characters(exclude_categories=()), min_size=1), status=names)
def test_any_identifier_survives_every_form(project, job, status):
    """The interface does not show the format of a job's id, so an id can be any text."""
    ref = JobRef(project, job, sent=SENT, end=End(status, SENT))
    assert forms(ref) == [asdict(ref)] * 5
    assert re.fullmatch("[A-Za-z0-9._:-]+", str(ref))


def test_the_text_is_pinned():
    """References are kept in queues and databases: an old text must stay readable."""
    assert str(JobRef("docs", "job_1")) == sealed("mintlify-job:3:docs:job_1")
    assert str(REFS[4]) == sealed(
        "mintlify-job:3:docs:job_1:final:created_1795324592.125_1795324591.0:sent_1795324592.125_1795324591.0"
    )
    assert str(REFS[5]) == sealed(
        "mintlify-job:3:docs:job_1:sent_1795324592.125_1795324591.0:"
        "end_1795324592.125_1795324591.0_odd.3Dword.3Ax.3By.2Fz_.2E.25.7E"
    )


@pytest.mark.parametrize(
    ("body", "ref"),
    [
        ("docs:job_1:", REFS[0]),
        ("docs:job_1:final", REFS[1]),
        ("docs:job_1:sent=2.5", REFS[2]),
        (
            "docs:job_1:final;created=1795324592.125/1795324591.0;sent=1795324592.125/1795324591.0",
            REFS[4],
        ),
        (
            "docs:job_1:sent=1795324592.125/1795324591.0;"
            "end=1795324592.125/1795324591.0=odd%3Dword%3Ax%3By%2Fz_.%25~",
            REFS[5],
        ),
        ("a%3Ab%2Fc:job%201%3F%C3%A9%3A%3D:sent=1795324592.125/1795324591.0", REFS[8]),
    ],
)
def test_a_reference_of_0_3_is_read(body, ref):
    """The references that 0.3 wrote are in queues. They keep all that they say."""
    assert asdict(JobRef.parse(sealed(f"mintlify-job:2:{body}"))) == asdict(ref)


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
def test_a_foreign_text_or_object_is_refused(text):
    """What is no reference says so, names the field and tells where to get one."""
    for read, stored in ((JobRef.parse, text), (JobRef.from_dict, {"ref": text}), (JobRef.from_dict, text)):
        with pytest.raises(ConfigurationError, match=r"handle\.ref") as caught:
            read(stored)
        assert caught.value.field == "ref"


def test_another_version_is_named():
    """A reference from another release says that, rather than being misread, in a pickle, too."""
    for version in ("1", "4"):
        with pytest.raises(ConfigurationError, match=f"version '{version}'"):
            JobRef.parse(f"mintlify-job:{version}:docs:job_1::00000000")
    pickled = pickle.dumps(JobRef("docs", "job_1"), protocol=0)
    with pytest.raises(ConfigurationError, match="version"):
        pickle.loads(pickled.replace(b"mintlify-job:3:", b"mintlify-job:4:"))


OLD = "mintlify-job:1:acme%2Fdocs:job_1:turn=completed;sent=1795324592.5:0a0b0c0d"
OLD_OBJECT = {"version": 1, "project_id": "acme/docs", "id": "job_1", "awaiting_turn": True}


@pytest.mark.parametrize(
    "read",
    [
        lambda: JobRef.parse(OLD),
        lambda: FakeAgent().job(OLD),
        lambda: JobRef.from_dict(OLD_OBJECT),
    ],
    ids=["parse", "job", "from_dict"],
)
def test_a_reference_of_0_2_says_the_way_out(read):
    """It names the version, and the reference to use instead."""
    with pytest.raises(ConfigurationError, match=r"version 0\.2") as caught:
        read()
    assert "JobRef('acme/docs', 'job_1')" in str(caught.value)
    assert caught.value.field == "ref"


@pytest.mark.parametrize(
    "stored", [OLD_OBJECT, JobRef("docs", "job_1").to_dict(), {"id": "job_1", "status": "completed"}]
)
def test_json_is_not_taken_for_an_id(stored):
    """The JSON of a reference or of a record would become the id of a job that does not exist."""
    with pytest.raises(ConfigurationError, match=r"JobRef\.from_dict\(json\.loads") as caught:
        FakeAgent().job(json.dumps(stored))
    assert caught.value.field == "ref"


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


@pytest.mark.parametrize("job", [" ", "a b", "a\nb", "\x00", "https://x/y?z#", "{}", "mintlify-job:1", "é/…"])
async def test_a_job_is_found_by_any_id(service, session, job):
    """An id that the service gave goes back percent-encoded, whatever it is: no paid job is lost."""
    record = {"id": job, "status": "completed", "prLink": ""}
    service.script.create_job(status=201, body=record)
    service.script.get_job(body=record, times=None)
    service.script.send_message(body=record)
    handle = await session.create_job("x")
    assert (await session.job(handle.ref).refresh()).id == job
    turn = await handle.send("y")
    assert JobRef.parse(str(turn.ref)).id == job
    paths = [request.path.partition("/job/")[2] for request in service.requests]
    assert paths == ["", quote(job, safe=""), f"{quote(job, safe='')}/message"]


@pytest.mark.parametrize("job", [".", "..", "\ud800"])
async def test_an_id_that_no_path_can_name_is_not_sent(service, session, job):
    """It would name another path, or none."""
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
        assert type(agent.job(named)) is not FollowUp
    assert isinstance(agent.job(REFS[2]), FollowUp)
    assert agent.job(str(REFS[2])).ref == REFS[2]
    assert agent.looks == []


NAMELESS = ["", ".", "..", " ", " job", "job ", "a\nb", "\x7f", "\ud800", "mintlify-job:1:docs", None, 7]


@pytest.mark.parametrize("named", NAMELESS)
def test_a_session_refuses_what_names_no_job(named):
    """The error comes before any request."""
    agent = FakeAgent()
    with pytest.raises(ConfigurationError):
        agent.job(named)


@pytest.mark.parametrize("named", ["job 7/é", "https://x/y", "{", "{}", "a:b", "'job'", "mintlify-jobs"])
def test_a_session_takes_any_id(named):
    """The interface does not show the format of a job's id."""
    assert FakeAgent().job(named).id == named


def test_a_handle_does_not_travel():
    """Pickling a handle says to carry its reference."""
    with pytest.raises(TypeError, match=r"\.ref"):
        pickle.dumps(FakeAgent().job())


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_reference_is_told_where_to_find_one(session, empty):
    """No dashboard shows the id of a job that a program created."""
    with pytest.raises(ConfigurationError, match=r"give the job's id, or the text of job\.ref"):
        session.job(empty)
