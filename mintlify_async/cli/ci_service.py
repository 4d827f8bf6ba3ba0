"""The CI service that a run belongs to: which change and commit it is for, and where its results go."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from attrs import define, field, frozen

from ..model.json_text import as_object
from .error_advice import UsageError
from .terminal import Terminal

RESULTS = ("status", "action", "pull_request", "duration", "job_id", "reference")
"""What a run reports; the action composes its outputs of them."""


@frozen(kw_only=True)
class Change:
    """What a run is for.

    Args:
        key: Names the job: repository, pull request or branch, and workflow.
        turn: Names the turn: the commit.
        fork: Whether it is a pull request from a fork, which gets no secrets and may not push.
    """

    key: str
    turn: str
    fork: bool

    @property
    def turn_key(self) -> str:
        """Names the follow-up of this turn."""
        return f"{self.key} @ {self.turn}"


def find_change(*, name: str | None, key: str | None, turn: str | None) -> Change:
    """Return what this run is for, as the environment of GitHub Actions or GitLab CI says.

    Args:
        name: Replaces the workflow's name.
        key: Replaces what names the job.
        turn: Replaces the commit.

    Raises:
        UsageError: The environment does not say it, and neither do the arguments.
    """
    env = os.environ
    found, commit, fork = "", "", False
    if env.get("GITHUB_REPOSITORY"):
        found, commit, fork = _on_github(env, name)
    elif env.get("CI_PROJECT_PATH"):
        number = env.get("CI_MERGE_REQUEST_IID")
        change = f"merge request {number}" if number else f"branch {env.get('CI_COMMIT_REF_NAME', '')}"
        found = f"ci: {env['CI_PROJECT_PATH']}: {change}: {name or env.get('CI_JOB_NAME', '')}"
        commit = env.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or env.get("CI_COMMIT_SHA", "")
        source, target = (env.get(f"CI_MERGE_REQUEST_{side}PROJECT_PATH") for side in ("SOURCE_", ""))
        fork = source is not None and source != target
    key, turn = key or found, turn or commit
    if not key or not turn:
        raise UsageError(
            "this is neither GitHub Actions nor GitLab CI: give --key, which names the pull request or "
            "branch, and --turn, which names the commit"
        )
    return Change(key=key, turn=turn, fork=fork)


def _on_github(env: Mapping[str, str], name: str | None) -> tuple[str, str, bool]:
    """Return key, commit and whether it is a fork's. The event knows the commit that GITHUB_SHA merges."""
    event: object = None
    with suppress(OSError, ValueError):  # other variables say most of it
        event = json.loads(Path(env.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
    pull = _object(event, "pull_request")
    head = _object(pull, "head")
    ref = env.get("GITHUB_REF", "")
    in_ref = re.match(r"refs/pull/(\d+)/", ref)
    number = pull.get("number") or (in_ref[1] if in_ref else None)
    repository = env["GITHUB_REPOSITORY"]
    change = f"pull request {number}" if number else ref
    key = f"ci: {repository}: {change}: {name or env.get('GITHUB_WORKFLOW', '')}"
    # The head's repository is null when the fork was deleted.
    fork = bool(head) and _object(head, "repo").get("full_name") != repository
    return key, str(head.get("sha") or env.get("GITHUB_SHA", "")), fork


def _object(value: object, name: str) -> Mapping[str, object]:
    """Return the object that *value* has under *name*; an empty one if there is none."""
    return as_object((as_object(value) or {}).get(name)) or {}


def _one_line(value: object) -> str:
    """Return *value* as a line that cannot end early: a second line would be another output."""
    return re.sub(r"[\x00-\x1f\x7f\u0085\u2028\u2029]+", " ", str(value)).strip()


@define
class Report:
    """The results of a run: step outputs, a dotenv file, the job's summary, and annotations.

    Args:
        terminal: Where annotations, and failures to write, are printed.
        dotenv: A file to write the results to, as variables; None for none.
        values: The results so far.
    """

    terminal: Terminal
    dotenv: str | None
    values: dict[str, str] = field(factory=dict[str, str])

    def add(self, **values: object) -> None:
        """Add results, and write all of them: a run that is killed later has left what it knew."""
        self.values |= {name: _one_line("" if value is None else value) for name, value in values.items()}
        lines = "".join(f"{name}={value}\n" for name, value in self.values.items())
        self._write(os.environ.get("GITHUB_OUTPUT"), lines, "a")
        variables = "".join(f"MINTLIFY_JOB_{name.upper()}={value}\n" for name, value in self.values.items())
        self._write(self.dotenv, variables, "w")

    def summarize(self, message: str = "") -> None:
        """Add the results to the job's summary."""
        rows = [(name, self.values[name]) for name in RESULTS if self.values.get(name)]
        table = "".join(f"| {name.replace('_', ' ')} | {_cell(value)} |\n" for name, value in rows)
        text = f"### Agent job\n\n| | |\n|---|---|\n{table}\n" + (f"{_cell(message)}\n\n" if message else "")
        self._write(os.environ.get("GITHUB_STEP_SUMMARY"), text, "a")

    def annotate(self, level: str, message: str) -> None:
        """Show *message* beside the run, where the service can."""
        if os.environ.get("GITHUB_ACTIONS") == "true":
            escaped = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
            self.terminal.note(f"::{level} title=Agent job::{escaped}")

    def _write(self, path: str | None, text: str, mode: str) -> None:
        if not path:
            return
        try:
            with Path(path).open(mode, encoding="utf-8", errors="replace") as file:
                file.write(text)
        except OSError as error:  # the job is paid for: what became of it must still be told
            self.terminal.error(f"{path}: {error.strerror}")


def _cell(text: str) -> str:
    """Return *text* as plain text of a Markdown table; an address becomes a link."""
    if re.fullmatch(r"https?://[^\s<>|`]+", text):
        return f"<{text}>"
    return re.sub(r"([\\`*_{}\[\]<>#|!~])", r"\\\1", _one_line(text))
