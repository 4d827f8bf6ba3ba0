"""Turns the bytes of one answer into typed events and a message. Only ``reply.py`` waits."""
