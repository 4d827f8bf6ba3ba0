"""The only wing that sends requests. Every failure says whether anything was sent."""
