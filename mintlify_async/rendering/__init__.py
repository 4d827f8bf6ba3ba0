"""An answer for display: sources, Markdown, and chat messages of limited length."""

from typing import TYPE_CHECKING

from ..wrong_names import missing_name
from .answer_as_markdown import answer_markdown, extras_markdown
from .finding_sources import AnswerSource, sources_of
from .readable_text import text_of
from .suggestions import Suggestion, split_suggestions, suggestions_of

if TYPE_CHECKING:
    from .growing_messages import Edit, split_markdown

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

if not TYPE_CHECKING:  # hidden from type checkers, so that they report a wrong name themselves

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise missing_name(__name__, name)
        from . import growing_messages  # loaded on first use, because only chat bots need it

        return getattr(growing_messages, name)
