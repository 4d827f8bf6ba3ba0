"""What users can set for a session, how it is checked, and which environment variables it comes from."""
