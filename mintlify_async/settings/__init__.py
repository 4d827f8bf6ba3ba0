"""The settings of a session, their checks, and the environment variables that may contain them."""
