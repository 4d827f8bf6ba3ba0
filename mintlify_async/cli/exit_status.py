"""The exit statuses of the command line."""

from __future__ import annotations

DONE = 0
TROUBLE = 1  # with the service or the network
USAGE = 2  # wrong arguments or settings
JOB_FAILED = 3
GAVE_UP = 4  # the wait timed out; the job goes on
INTERRUPTED = 130  # Ctrl-C, as shells count it: 128 + SIGINT
CLOSED_PIPE = 141  # the reader of standard output is gone: 128 + SIGPIPE
