"""Agent jobs: a job is created at most once, and a wait ends with the result of its own follow-up."""
