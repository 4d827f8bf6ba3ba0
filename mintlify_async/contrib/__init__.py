"""Optional parts, each of which needs an extra: a web relay, Redis stores, tracing. The core imports none."""
