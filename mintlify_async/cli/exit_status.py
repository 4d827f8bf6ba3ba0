"""The exit statuses of the command line."""

from __future__ import annotations

DONE = 0
TROUBLE = 1  # with the service, the network or standard output
USAGE = 2  # wrong arguments or settings
JOB_FAILED = 3
GAVE_UP = 4  # the wait timed out
UNKNOWN = 5  # a request was sent, but its effect is not known
INTERRUPTED = 130  # Ctrl-C, as shells count it: 128 + SIGINT
CLOSED_PIPE = 141  # the program that reads standard output has exited: 128 + SIGPIPE
TERMINATED = 143  # 128 + SIGTERM
