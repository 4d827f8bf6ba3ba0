"""Parts that stand on something extra: a web framework, Redis, a tracing library. Imported by nobody here."""
