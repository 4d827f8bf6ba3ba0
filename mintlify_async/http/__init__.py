"""Only this package sends requests. Every error says whether anything was sent."""
