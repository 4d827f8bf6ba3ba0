"""Agent jobs: a job is created at most once, and a wait ends with its own turn's result."""
