"""A module of 0.2. To import it is an error that says what to write."""

from ..habits import replacement

raise ModuleNotFoundError(
    f"no module named {__name__!r}: {replacement('mintlify_async.contrib', 'git')}", name=__name__
)
