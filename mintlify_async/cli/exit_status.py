"""The exit statuses of the command line."""

from __future__ import annotations

DONE = 0
TROUBLE = 1
"""The service or the network."""
USAGE = 2
"""The arguments or the settings."""
JOB_FAILED = 3
GAVE_UP = 4
"""The wait is over, the job goes on."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it: 128 + SIGINT."""
CLOSED_PIPE = 141
"""The reader of our output went away: 128 + SIGPIPE."""
