"""A module of 0.2. Importing it raises an error that names the replacement."""

from ..wrong_names import replacement

raise ModuleNotFoundError(
    f"no module named {__name__!r}: {replacement('mintlify_async.contrib', 'git')}", name=__name__
)
