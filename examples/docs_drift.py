"""In CI, after each merge: an agent job updates the documentation for what the change did to the code.

It looks at the newest commit: a merge commit, or a squashed change. A change has one job. A later commit with
a line "Follow-up to #12" in its message sends that job a follow-up; the agent goes on in its pull request.
A re-run sends nothing. On GitHub:

    on: {push: {branches: [main]}}
    permissions: {contents: write}      # the ledger is refs in this repository
    jobs:
      docs:
        runs-on: ubuntu-latest
        env:
          MINTLIFY_ADMIN_API_KEY: ${{ secrets.MINTLIFY_ADMIN_API_KEY }}
          MINTLIFY_PROJECT_ID: ${{ vars.MINTLIFY_PROJECT_ID }}
        steps:
          - {uses: actions/checkout@v4, with: {fetch-depth: 2}}
          - run: pip install mintlify-async && python docs_drift.py src openapi.json
"""

import re
import subprocess
import sys

LONGEST = 60_000  # characters of the diff that the agent is shown
PROMPT = """\
The change below was merged. Update the documentation where it is no longer true, or where it says too little,
and nothing else. If nothing has to be said, change no file.

{message}

{diff}
"""


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, stdout=subprocess.PIPE)
    return done.stdout.decode(errors="replace")  # a file may be in any encoding


def name_of(message: str, commit: str) -> str:
    """Return what names the change: the pull request that a merge's message has, or the commit."""
    found = re.search(r"^Follow-up to #(\d+)", message, re.IGNORECASE | re.MULTILINE)
    found = found or re.search(r"#(\d+)", message.partition("\n")[0])
    return f"#{found[1]}" if found else commit


def main(paths: list[str]) -> int:
    commit, message = git("rev-parse", "HEAD").strip(), git("log", "-1", "--format=%B").strip()
    diff = git("diff", "--full-index", "HEAD^", "HEAD", "--", *paths)  # the same text in every checkout
    if not diff.strip():
        print("nothing that is documented was changed")
        return 0
    if len(diff) > LONGEST:
        diff = f"{diff[:LONGEST]}\n[the rest is left out; these files were changed:]\n"
        diff += git("diff", "--stat", "HEAD^", "HEAD", "--", *paths)
    key = f"docs drift: {name_of(message, commit)}"
    command = ["mintlify-async", "ci", "-", "--key", key, "--turn", commit]
    prompt = PROMPT.format(message=message, diff=diff)
    return subprocess.run(command, input=prompt, encoding="utf-8").returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
