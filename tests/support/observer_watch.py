"""An observer for tests that keeps all its calls."""

from __future__ import annotations

from contextlib import nullcontext


class Watch:
    """An observer of one operation at a time, which is its own observation."""

    def __init__(self):
        self.events = []
        self.facts = {}
        self.operation = self.error = None

    def start(self, operation, facts):
        self.operation = operation
        self.facts |= facts
        return self

    def active(self):
        return nullcontext()

    def set(self, name, value):
        self.facts[name] = value

    def event(self, name, attributes):
        self.events.append((name, attributes))

    def end(self, error=None):
        self.error = error

    def count(self, name):
        return [event for event, _ in self.events].count(name)
