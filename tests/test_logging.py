"""What a program sees of the package's log when it configures no logging."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging
import mintlify_async.session

log = logging.getLogger("mintlify_async")
log.info("an unimportant line")
log.warning("a paid job may be lost")
assert not log.handlers
"""


def test_a_warning_reaches_stderr_by_itself():
    """The package adds no handler, so that Python's own handler of last resort shows warnings."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stderr == "a paid job may be lost\n"
