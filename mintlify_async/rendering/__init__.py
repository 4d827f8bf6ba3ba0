"""An answer as people see it: sources, Markdown, and chat messages of bounded length."""
