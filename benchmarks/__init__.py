"""Measures the package beside its peers: the same bytes, in the same run. See ``README.md`` beside this."""
