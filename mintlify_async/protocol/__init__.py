"""Requests made from checked arguments, and responses and refusals that are read. No I/O."""
