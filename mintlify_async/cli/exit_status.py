"""The exit statuses of the command line, and the exit status for each error."""

from __future__ import annotations

from ..errors import ConfigurationError, JobFailedError, JobTimeoutError, MintlifyError, OutcomeUnknownError

DONE = 0
TROUBLE = 1  # an error of the service, the network or standard output
USAGE = 2  # wrong arguments or settings
JOB_FAILED = 3
GAVE_UP = 4  # the wait timed out
UNKNOWN = 5  # a request was sent, and its outcome is unknown
INTERRUPTED = 130  # Ctrl-C; shells use 128 + SIGINT
CLOSED_PIPE = 141  # the program that reads standard output has exited: 128 + SIGPIPE
TERMINATED = 143  # 128 + SIGTERM


def exit_status_of(error: Exception) -> int:
    """Return the exit status of a command that ends with *error*."""
    from .terminal import OutputError  # imported here, because `--help` needs no terminal

    match error:
        case JobFailedError():
            return JOB_FAILED
        case JobTimeoutError():
            return GAVE_UP
        case OutcomeUnknownError():
            return UNKNOWN
        case OutputError():
            return TROUBLE
        case MintlifyError() if not isinstance(error, ConfigurationError):
            return TROUBLE
        case _:  # a setting, an argument, or a file that cannot be read or written
            return USAGE
