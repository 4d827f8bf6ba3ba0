"""Measures the package beside its peers: the same bytes, in the same run.

``python -m benchmarks --help`` lists the rows; ``README.md`` beside this file says how each is measured.
"""
