"""An answer as people see it: sources, Markdown, and chat messages of bounded length."""

from .markdown import answer_markdown, extras_markdown
from .readable_text import split_suggestions, suggestions_of, text_of
from .sources import AnswerSource, Suggestion, sources_of
from .splitting import Edit, split_markdown

__all__ = [
    "AnswerSource",
    "Edit",
    "Suggestion",
    "answer_markdown",
    "extras_markdown",
    "sources_of",
    "split_markdown",
    "split_suggestions",
    "suggestions_of",
    "text_of",
]
