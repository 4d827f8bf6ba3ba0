"""Jobs, references, messages and answers in models of pydantic and handlers of FastAPI, the judges."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated

import pytest
from attrs import evolve

pydantic = pytest.importorskip("pydantic")
fastapi = pytest.importorskip("fastapi")

from fastapi.encoders import jsonable_encoder  # noqa: E402 - after the check
from fastapi.responses import JSONResponse  # noqa: E402
from pydantic import BaseModel, TypeAdapter, ValidationError  # noqa: E402

from mintlify_async import Answer, ConfigurationError, Job, JobHandle, JobRef, Message, Thread  # noqa: E402
from mintlify_async.jobs.handle import FollowUp  # noqa: E402
from mintlify_async.messages import TextPart  # noqa: E402

JOB = Job.from_wire(
    {
        "id": "job_1",
        "status": "active",
        "source": {"repository": "acme/docs", "branch": "main"},
        "prLink": None,
        "createdAt": "2026-01-02T03:04:05Z",
        "credits": 23,
    }
)
REF = JobRef("acme", "job_1", was_final=True)
MESSAGE = Message.from_wire(
    {
        "id": "m",
        "role": "assistant",
        "metadata": {"a": 1},
        "parts": [
            {"type": "text", "text": "Use **SSO**.\n\n```suggestions\n(Log in)[/login]\n```"},
            {"type": "source-url", "sourceId": "s", "url": "/sso#saml", "title": "SAML"},
            {"type": "source-document", "sourceId": "d", "mediaType": "a/b", "title": "T"},
            {"type": "tool-search", "toolCallId": "c", "state": "output-available", "input": {}, "output": 1},
            {"type": "data-usage", "data": {"n": 1}},
            {"type": "new-part", "x": [1]},
        ],
    }
)
ANSWER = Answer(
    message=MESSAGE,
    thread=Thread("thread_1", "secret-key-1"),
    finish_reason="stop",
    aborted=False,
    abort_reason=None,
    response=None,
    events_seen=9,
    site="https://docs.acme.com",
)
READ_ANSWER = evolve(ANSWER, thread=Thread("thread_1"))

VALUES = [JOB, REF, MESSAGE, READ_ANSWER]
KINDS = [Job, JobRef, Message, Answer]


class Everything(BaseModel):
    jobs: list[Job]
    answers: dict[str, Answer]
    ref: JobRef | None = None
    either: Job | Answer | int | str
    message: Message


EVERYTHING = Everything(
    jobs=[JOB, JOB], answers={"a": READ_ANSWER}, ref=REF, either=READ_ANSWER, message=MESSAGE
)


@pytest.mark.parametrize("value", VALUES, ids=lambda one: type(one).__name__)
def test_a_value_is_read_back_from_its_json(value):
    """From text and from the parsed object, as FastAPI reads a body."""
    adapter = TypeAdapter(type(value))
    text = adapter.dump_json(value)
    assert adapter.validate_json(text) == value
    assert adapter.validate_python(json.loads(text)) == value
    assert adapter.validate_python(value) is value
    assert adapter.dump_python(value) is value
    assert b"secret" not in text


@pytest.mark.parametrize("either", [JOB, READ_ANSWER, 3, "x"], ids=lambda one: type(one).__name__)
def test_a_model_is_read_back_from_its_json(either):
    """Lists, dicts, optional fields and unions have the values, too."""
    model = EVERYTHING.model_copy(update={"either": either})
    assert Everything.model_validate_json(model.model_dump_json()) == model
    assert Everything.model_validate(model.model_dump()) == model
    assert Everything.model_validate(model.model_dump(mode="json")) == model
    without = model.model_copy(update={"ref": None})
    assert Everything.model_validate_json(without.model_dump_json()) == without


def test_the_json_of_an_answer_has_no_key():
    """Its own dict, its model's JSON, and the message in it; the rest of the attributes is there."""
    keyed = evolve(MESSAGE, metadata={"threadKey": "secret-key-1"})
    text = TypeAdapter(Answer).dump_json(evolve(ANSWER, message=keyed)).decode()
    assert json.loads(text) == {**ANSWER.to_dict(), "message": {**MESSAGE.to_wire(), "metadata": {}}}
    assert "secret" not in text
    fields = ANSWER.to_dict()
    assert (fields["text"], fields["thread_id"]) == ("Use **SSO**.", "thread_1")
    assert [source["title"] for source in fields["sources"]] == ["SAML", "T"]
    assert fields["suggestions"] == [{"title": "Log in", "path": "https://docs.acme.com/login"}]
    assert Answer.from_dict(fields) == READ_ANSWER
    assert Answer.from_dict(Answer.from_dict(fields).to_dict()) == READ_ANSWER


@pytest.mark.parametrize(
    ("kind", "wrong", "field"),
    [
        (Job, {"id": "", "status": "active"}, "job.id is empty"),
        (Job, {"id": 1, "status": "active"}, "job.id must be a string"),
        (Job, [], "job must be an object"),
        (JobRef, {"ref": "mintlify-job:3:cut"}, "cut or changed"),
        (JobRef, 3, "not a job reference"),
        (Message, {"role": "user", "parts": [{"type": "text"}]}, r"message.parts\[0\].text is missing"),
        (Answer, "text", "answer must be an object"),
        (Answer, {"text": "x"}, "answer.message must be"),
        (Answer, {"message": MESSAGE.to_wire(), "aborted": "no"}, "answer.aborted must be True or False"),
        (Answer, {"message": MESSAGE.to_wire(), "thread_id": 5}, "answer.thread_id must be a string"),
        (Answer, {"message": MESSAGE.to_wire(), "events_seen": -1}, "answer.events_seen"),
        (Answer, {"message": MESSAGE.to_wire(), "site": "x"}, "answer.site"),
    ],
)
def test_wrong_json_is_a_validation_error_that_names_the_field(kind, wrong, field):
    """FastAPI answers it with 422."""
    with pytest.raises(ValidationError, match=field):
        TypeAdapter(kind).validate_python(wrong)
    with pytest.raises(ValidationError, match=field):
        TypeAdapter(kind).validate_json(json.dumps(wrong))


def test_half_a_character_is_written_as_a_replacement():
    """Text is written as UTF-8, which cannot express a half."""
    message = Message(id="m", role="user", parts=[TextPart(text="a\ud83d")])
    assert "a\ufffd" in TypeAdapter(Message).dump_json(message).decode()


def test_deep_json_is_written_and_read():
    """A message may be nested deeply; pydantic 2.0 itself reads JSON of fewer than 200 levels."""
    data = 1
    for _ in range(120):
        data = [data]
    message = Message.from_wire({"id": "m", "role": "user", "parts": [{"type": "data-x", "data": data}]})
    adapter = TypeAdapter(Message)
    assert adapter.validate_json(adapter.dump_json(message)) == message


FIELDS = {"Job": "prLink", "JobHandle": "ref", "FollowUp": "ref", "JobRef": "ref"}
FIELDS |= {"Message": "parts", "Answer": "sources"}


def schema_of(kind, mode):
    """Return the definition of *kind*, which may stand beside the schema."""
    schema = TypeAdapter(kind).json_schema(mode=mode)
    return schema["$defs"][kind.__name__] if "$ref" in schema else schema


@pytest.mark.parametrize("kind", [*KINDS, JobHandle, FollowUp])
@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_the_schema_shows_the_fields(kind, mode):
    """Each class is one definition, with its name; no secret is in it."""
    schema = schema_of(kind, mode)
    assert (schema["title"], schema["type"]) == (kind.__name__, "object")
    assert "key" not in json.dumps(schema).lower()
    assert FIELDS[kind.__name__] in schema["properties"]
    described = "is not read from JSON: use JobRef" in schema.get("description", "")
    assert described is issubclass(kind, JobHandle)


@pytest.mark.real
@pytest.mark.parametrize("value", [JOB, evolve(JOB, status="failed"), REF, MESSAGE, ANSWER], ids=repr)
def test_the_json_is_what_the_schema_says(value):
    """Another package's validator is the judge."""
    jsonschema = pytest.importorskip("jsonschema")
    adapter = TypeAdapter(type(value))
    jsonschema.validate(json.loads(adapter.dump_json(value)), schema_of(type(value), "serialization"))


def app_of(session, handles):
    app = fastapi.FastAPI()

    @app.post("/jobs")
    async def create() -> JobHandle:
        handles.append(await session.create_job("Fix it"))
        return handles[-1]

    @app.post("/record")
    async def record(ref: Annotated[JobRef, fastapi.Body()]) -> Job:
        return await session.job(ref).refresh()

    @app.post("/list", response_model=list[Job])
    async def jobs(job: Annotated[Job, fastapi.Body()]):
        return [job]

    @app.post("/ask")
    async def ask(message: Annotated[Message, fastapi.Body()]) -> Answer:
        return await session.ask(message)

    @app.post("/handle")
    async def refused(handle: Annotated[JobHandle, fastapi.Body()]) -> None: ...

    @app.get("/ref")
    async def ref() -> JobRef:
        return handles[-1].ref

    @app.get("/jobs/{ref}")
    async def same(ref: JobRef) -> JobRef:
        return ref

    @app.post("/echo")
    async def echo(model: Everything) -> Everything:
        return model

    return app


@pytest.mark.real
async def test_handlers_of_fastapi_take_and_return_them(service, session):
    """A job, its handle with the reference, a message and an answer; OpenAPI has their fields."""
    handles = []
    httpx = pytest.importorskip("httpx")
    app = app_of(session, handles)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        job = (await client.post("/jobs")).json()
        assert (job["id"], job["status"], job["ref"]) == (handles[0].id, "active", str(handles[0].ref))
        ref = (await client.get("/ref")).json()
        assert JobRef.from_dict(ref) == handles[0].ref
        assert (await client.get(f"/jobs/{handles[0].ref}")).json() == ref
        assert (await client.get("/jobs/job_1")).status_code == 422
        record = (await client.post("/record", json=ref)).json()
        assert record["id"] == job["id"]
        assert (await client.post("/list", json=record)).json() == [record]
        question = Message.user("How do I log in?").to_wire()
        response = await client.post("/ask", json=question)
        answer = Answer.from_dict(response.json())
        assert answer.text
        assert answer.thread is not None
        assert "threadKey" not in response.text
        assert answer.thread.key is None
        sent = EVERYTHING.model_dump(mode="json")
        assert (await client.post("/echo", json=sent)).json() == sent
        refusal = await client.post("/handle", json=job)
        assert (refusal.status_code, "use JobRef" in refusal.text) == (422, True)
        assert (await client.post("/list", json={"id": 1})).status_code == 422
    schemas = app.openapi()["components"]["schemas"]
    for kind, field in FIELDS.items() - {("FollowUp", "ref")}:
        assert field in schemas[kind]["properties"]


async def test_a_handle_that_was_not_seen_yet_is_its_reference(session):
    """Its JSON says what is known, without a request."""
    handle = session.job("job_7")
    text = TypeAdapter(JobHandle).dump_json(handle)
    assert json.loads(text) == {"id": "job_7", "status": None, "ref": str(handle.ref)}

    class Row(BaseModel):
        handle: JobHandle

    row = Row(handle=handle)
    assert Row(**row.model_dump()).handle is handle
    with pytest.raises(ValidationError, match=r"use JobRef as the type, and session.job\(ref\)"):
        Row.model_validate_json(row.model_dump_json())


def test_a_thread_is_refused_with_what_to_use():
    """As a field, as a handler's result, and inside a list."""
    with pytest.raises(TypeError, match=r"thread\.id to show.*thread\.to_json\(\) to store"):

        class Row(BaseModel):
            thread: Thread | None

    app = fastapi.FastAPI()
    with pytest.raises(TypeError, match=r"thread\.id to show"):

        @app.get("/")
        async def handler() -> list[Thread]: ...


def bare_app(result):
    """Return an app whose handlers have no return annotation."""
    app = fastapi.FastAPI()

    @app.get("/bare")
    async def bare():
        return result

    @app.get("/nested")
    async def nested():
        return {"results": [result], "n": 1}

    @app.get("/response")
    async def response():
        return JSONResponse(jsonable_encoder([result]))

    @app.get("/without")
    def without():
        return jsonable_encoder(result, exclude_none=True)

    return app


async def bodies(result):
    """Return the JSON of all handlers of :func:`bare_app`."""
    httpx = pytest.importorskip("httpx")
    transport = httpx.ASGITransport(app=bare_app(result))
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        responses = [await client.get(path) for path in ("/bare", "/nested", "/response", "/without")]
    assert {response.status_code for response in responses} == {200}
    assert not any("secret" in response.text for response in responses)
    return [response.json() for response in responses]


@pytest.mark.real
@pytest.mark.parametrize("value", [JOB, REF, MESSAGE, ANSWER], ids=lambda one: type(one).__name__)
async def test_a_handler_without_an_annotation_returns_the_same_json(value):
    """FastAPI's own encoder writes it: alone, in a list and a dict, and in a response. It has no key."""
    content = json.loads(TypeAdapter(type(value)).dump_json(value))
    assert dict(value) == content
    bare, nested, response, without = await bodies(value)
    assert (bare, nested, response) == (content, {"results": [content], "n": 1}, [content])
    assert without.items() <= content.items()


@pytest.mark.real
async def test_a_handler_without_an_annotation_returns_a_handle(session):
    """It is the last record with the reference, also before the first poll and for a follow-up."""
    created, unseen = await session.create_job("Fix it"), session.job("job_7")
    for handle in (created, unseen, await created.send("Go on")):
        content = json.loads(TypeAdapter(JobHandle).dump_json(handle))
        assert (await bodies(handle))[:3] == [content, {"results": [content], "n": 1}, [content]]
        assert content["ref"] == str(handle.ref)


@pytest.mark.parametrize("value", [JOB, REF, MESSAGE, ANSWER], ids=lambda one: type(one).__name__)
async def test_a_value_is_no_sequence(value):
    """``dict(value)`` reads it by names. A loop, a list and ``in`` are errors as before."""
    for misuse in (list, iter, tuple, sorted, len, reversed, lambda one: "id" in one, lambda one: [*one]):
        with pytest.raises(TypeError):
            misuse(value)
    with pytest.raises(KeyError):
        value["no such field"]


@pytest.mark.real
async def test_what_is_no_value_has_no_json_without_an_annotation(session):
    """A thread is refused with its sentence; a reply, whose ``await`` was forgotten, shows no key."""
    with pytest.raises(ValueError, match=r"thread\.id to show.*thread\.to_json\(\) to store") as refused:
        jsonable_encoder({"thread": ANSWER.thread})
    assert "secret" not in str(refused.value)
    with pytest.raises(TypeError, match=r"thread\.id to show"):
        dict(ANSWER.thread)
    reply = session.ask("Hello")
    with pytest.raises(ValueError, match="not iterable"):
        jsonable_encoder(reply)
    answer = await reply
    with pytest.raises(ValueError, match="not iterable") as refused:
        jsonable_encoder(reply)
    assert answer.thread.key not in str(refused.value)


def test_a_notebook_shows_markdown():
    """Text, sources and suggestions, with full URLs."""
    shown = ANSWER._repr_markdown_()
    assert shown.startswith("Use **SSO**.")
    assert "https://docs.acme.com/sso" in shown
    assert "https://docs.acme.com/login" in shown


@pytest.mark.real
def test_the_package_does_not_import_pydantic():
    """All of its names are loaded without it."""
    program = (
        "import sys, mintlify_async as m; [getattr(m, name) for name in m.__all__];"
        "assert not [name for name in sys.modules if name.startswith('pydantic')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_from_dict_names_the_field():
    with pytest.raises(ConfigurationError) as caught:
        Answer.from_dict({"message": MESSAGE.to_wire(), "finish_reason": 3})
    assert caught.value.field == "answer.finish_reason"
