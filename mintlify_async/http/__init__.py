"""Only this wing sends requests. Every error says whether anything was sent."""
