"""A reference is the same after a shell, a URL, a cookie, a file name and a table, whatever its ids are."""

from __future__ import annotations

import csv
import io
import random
import shlex
import subprocess
from http.cookies import SimpleCookie
from urllib.parse import quote, unquote, unquote_plus, urlsplit

import pytest
from attrs import asdict
from yarl import URL

from mintlify_async.model.job_ref import End, JobRef, Stamp

ODD = "aZ09._-~%:;,=/\\?#&+*!$^'\"`()[]{}<>|@ \t\n\x00\x1b\x7fé…漢\U0001f600\ud800\u2028"
"""Characters of ids. A project has none of the control characters, and no surrogate."""
FISH = set("\\'\"$*?~#(){}[]<>^&|;%, \n")
"""Characters that are special to the shell fish in some place."""


def odd_references(number: int) -> list[JobRef]:
    dice = random.Random(11)
    names = [character for character in ODD if character.isprintable()]
    references = []
    while len(references) < number:
        project = "".join(dice.choices(names, k=dice.randint(1, 5)))
        job = "".join(dice.choices(ODD, k=dice.randint(1, 5)))
        status = "".join(dice.choices(ODD, k=dice.randint(0, 4)))
        stamps = [Stamp(dice.uniform(0, 4e9), dice.choice([None, float(dice.randint(0, 4 * 10**9))]))] * 2
        stamps.append(Stamp(dice.choice([0.0, -1.5, 1e-7, 1e17]), 1e22))
        if project.strip() and project not in (".", ".."):
            sent, created, failing = dice.choices([None, *stamps], k=3)
            end = dice.choice([None, End(status, stamps[0])])
            was_final = dice.random() < 0.5
            references.append(
                JobRef(
                    project, job, created=created, sent=sent, was_final=was_final, end=end, failing=failing
                )
            )
    return references


REFERENCES = odd_references(500)
TEXTS = [str(reference) for reference in REFERENCES]


def in_a_url_path(text: str) -> str:
    url = URL("http://web.test/jobs") / text / "state"
    raw = urlsplit(f"http://web.test/jobs/{text}/state?x=1#y")
    assert raw.path.split("/")[2] == text
    assert URL(f"http://web.test/jobs/{text}/state") == url
    assert quote(text, safe=":") == unquote(text) == unquote_plus(text) == text
    return url.raw_parts[2]


def in_a_cookie(text: str) -> str:
    (morsel,) = SimpleCookie({"ref": text}).values()
    assert morsel.coded_value == text
    return SimpleCookie(f"a=1; ref={text}; b=2")["ref"].value


def in_a_table(text: str) -> str:
    for delimiter in ",;\t|":
        output = io.StringIO()
        csv.writer(output, delimiter=delimiter).writerow([text, text])
        assert output.getvalue() == f"{text}{delimiter}{text}\r\n"
        ((first, second),) = csv.reader([f"{text}{delimiter}{text}"], delimiter=delimiter)
        assert first == second == text
    return text


@pytest.mark.parametrize("travel", [in_a_url_path, in_a_cookie, in_a_table, shlex.quote])
def test_a_reference_is_the_same_after(travel):
    """Nothing encodes, quotes or cuts it, so it needs no care."""
    assert [travel(text) for text in TEXTS] == TEXTS
    assert [asdict(JobRef.parse(text)) for text in TEXTS] == [asdict(one) for one in REFERENCES]


def test_a_reference_is_a_file_name(tmp_path):
    """A program can keep a file for each job."""
    for text in TEXTS:
        (tmp_path / text).write_text(text)
    names = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert names == {text: text for text in TEXTS}


def test_no_shell_has_a_meaning_for_a_character_of_it():
    """What fish, csh or PowerShell do to a character cannot happen, since the character is not there."""
    assert not FISH & set("".join(TEXTS))
    assert shlex.split(" ".join(TEXTS), comments=True) == TEXTS


@pytest.mark.real
@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_pasted_reference_is_one_word_of_a_shell(tmp_path, shell):
    """Also in a folder whose files a pattern would match, in an assignment and behind ``=``."""
    for name in ("m", "a", "mintlify-job"):
        (tmp_path / name).touch()
    lines = [f"r={text}; printf '%s\\0%s\\0%s\\0' {text} $r --ref={text}" for text in TEXTS]
    program = "\n".join(lines).encode()
    output = subprocess.run([shell], input=program, cwd=tmp_path, stdout=subprocess.PIPE, check=True).stdout
    words = output.decode().split("\0")[:-1]
    assert words == [word for text in TEXTS for word in (text, text, f"--ref={text}")]
