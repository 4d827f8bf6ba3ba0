"""The exit statuses of the command line. ``error_advice`` has the status for each error."""

from __future__ import annotations

DONE = 0
TROUBLE = 1  # an error of the service, the network or standard output
USAGE = 2  # wrong arguments or settings
JOB_FAILED = 3
GAVE_UP = 4  # the wait timed out
UNKNOWN = 5  # a request was sent, and its outcome is unknown
INTERRUPTED = 130  # Ctrl-C; shells use 128 + SIGINT
CLOSED_PIPE = 141  # the program that reads standard output has exited: 128 + SIGPIPE
TERMINATED = 143  # 128 + SIGTERM
