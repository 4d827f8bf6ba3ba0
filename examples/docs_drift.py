"""In CI, after each merge, an agent job updates the documentation for the diff.

It reads the newest commit, a merge commit or a squashed change. A commit has one job. A re-run of the
workflow creates no second job, because the ledger file in the cache has the commit. On GitHub:

    on: {push: {branches: [main]}}
    concurrency: docs-drift             # one run at a time uses the ledger file
    jobs:
      docs:
        runs-on: ubuntu-latest
        env:
          MINTLIFY_ADMIN_API_KEY: ${{ secrets.MINTLIFY_ADMIN_API_KEY }}
          MINTLIFY_PROJECT_ID: ${{ vars.MINTLIFY_PROJECT_ID }}
        steps:
          - {uses: actions/checkout@v4, with: {fetch-depth: 2}}
          - uses: actions/cache/restore@v4
            with: {path: .mintlify, key: mintlify-none, restore-keys: mintlify-}
          - run: pip install git+https://github.com/OWNER/mintlify-async  # where the package is
          - run: python docs_drift.py src openapi.json
          - uses: actions/cache/save@v4
            if: always()
            with: {path: .mintlify, key: "mintlify-${{ github.run_id }}-${{ github.run_attempt }}"}
"""

import subprocess
import sys

LONGEST = 60_000  # characters of the diff that the agent gets
PROMPT = """\
The change below was merged. Update the documentation where it is no longer true, or where it says too little,
and nothing else. If nothing has to be said, change no file.

{message}

{diff}
"""


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, stdout=subprocess.PIPE)
    return done.stdout.decode(errors="replace")  # a file may be in any encoding


def main(paths: list[str]) -> int:
    commit, message = git("rev-parse", "HEAD").strip(), git("log", "-1", "--format=%B").strip()
    diff = git("diff", "--full-index", "HEAD^", "HEAD", "--", *paths)  # the same text in every checkout
    if not diff.strip():
        print("nothing that is documented was changed")
        return 0
    if len(diff) > LONGEST:
        diff = f"{diff[:LONGEST]}\n[the rest is left out; these files were changed:]\n"
        diff += git("diff", "--stat", "HEAD^", "HEAD", "--", *paths)
    command = ["mintlify-async", "job", "create", "-", "--wait"]
    command += ["--dedupe-key", f"docs drift: {commit}", "--ledger", ".mintlify/jobs.db"]
    prompt = PROMPT.format(message=message, diff=diff)
    return subprocess.run(command, input=prompt, encoding="utf-8").returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
