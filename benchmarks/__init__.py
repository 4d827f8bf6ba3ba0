"""Compares the package with its peers, with the same bytes in the same run. See ``README.md`` here."""
