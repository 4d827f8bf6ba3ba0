"""The chat messages of a growing Markdown text, as edits of limited length. No I/O.

Chat services accept messages of some thousand characters. A long answer is split between paragraphs, lines or
words. :mod:`.message_splitting` finds these places. Text that a message has shown is never taken back.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from copy import copy
from typing import Final

from attrs import frozen

from ..argument_checks import check_number
from .message_splitting import LOOKAHEAD, WORD, Draft, Place, end_of

MIN_LIMIT: Final = 200
"""Minimum for the limit of a message. With less, the marks of quotes and code blocks would leave no room."""


@frozen(kw_only=True)
class Edit:
    """One change of one chat message. The first change sends the message, and later changes edit it.

    Args:
        index: The message's number, from 0. An answer that is longer than the limit continues in the next
            message.
        text: The message's current text. It is never empty, fits the limit, and closes its code blocks.
        delta: The text to append to the message, for services that can append. It is never empty. The deltas
            of a complete message together are its text.
        final: Whether this message is complete. If the full text was already shown during a pause, no edit
            with ``final=True`` follows. Then the message is complete when the next *index* appears or the
            loop ends.
    """

    index: int
    text: str
    delta: str
    final: bool


def split_markdown(text: str, limit: int) -> list[str]:
    """Split *text* into chat messages.

    Args:
        text: Markdown, such as ``answer.text``.
        limit: Maximum length of a message, in UTF-16 code units (Telegram: 4096, Discord: 2000). At least
            200, because a message repeats the marks of quotes and code blocks.

    Returns:
        The messages, in order. No message is empty. Each ends at the best place in its last third: between
        paragraphs, else between lines, else between words outside of links, code and bold text. A code block
        that is split is closed in one message and opened again in the next. A message that starts inside a
        quote repeats the quote's marks. A message that starts inside a list item leaves out the item's
        indentation. Otherwise, only the white space between two messages is left out.

    Raises:
        ConfigurationError: *limit* is below 200.

    Example::

        for text in split_markdown(answer.text, 4096):
            await bot.send_message(chat_id, text)
    """
    splitter = MarkdownSplitter(limit)
    splitter.feed(text)
    splitter.close()
    return [edit.text for edit in iter(splitter.next_edit, None)]


_AMBIGUOUS_END: Final = " \t\r\n\f\v`~>"
"""Characters that do nothing at the end of a text, and may start a code block if more text follows."""
_BLANK_LINES: Final = re.compile(r"(?:\s*\n)?")
_BLANKS: Final = re.compile(r"\s*")


class MarkdownSplitter:
    """Splits a growing text into messages.

    After each :meth:`feed`, and after :meth:`close`, call :meth:`next_edit` until it returns None.

    Each call looks for the places where the current message may end. If two places are equally good, the
    later one is used. So a message never ends before the best place found, and the text up to this place can
    be shown. Without pauses, the messages do not depend on how the text arrives.

    Args:
        limit: Maximum length of a message, in UTF-16 code units; at least 200.

    Attributes:
        shown_length: Number of characters of the text that were shown, with the blanks between messages.
    """

    def __init__(self, limit: int) -> None:
        check_number(limit, "limit", MIN_LIMIT, whole=True)
        self._limit = limit
        self._text: str = ""
        self._start: int = 0  # position of the current message in _text
        self._pieces: list[str] = []  # pieces to add after _text
        self._ambiguous: list[str] = []  # pieces to add after _pieces
        self._closed = False
        self._idle_characters: int = -1  # if no line ends, this many new characters need no edit
        self._offset: int = 0  # position of _text in the complete text
        self._index: int = 0
        self._begin(Draft(limit))
        self.shown_length: int = 0

    def _begin(self, draft: Draft) -> None:
        """Start a message."""
        self._draft: Draft = (
            draft  # the message up to the line that may grow, so that lines are read only once
        )
        self._floor: int = len(draft.text) + 1  # the message ends at or after this position
        self._last_text: str = ""  # the text of this message's last edit
        self._delta_length: int = 0  # characters of this message's deltas up to now

    def feed(self, text: str) -> None:
        """Add the next piece of text."""
        body = text.rstrip(_AMBIGUOUS_END)
        if body:
            self._pieces += [*self._ambiguous, body]
            self._ambiguous = []
        self._ambiguous.append(text[len(body) :])

    def close(self, below: str = "") -> None:
        """Mark the end of the text. Then add the text *below*, after a blank line."""
        self._pieces += self._ambiguous
        self._join()
        self._text = f"{self._text.rstrip()}\n\n{below.strip()}".rstrip()
        self._ambiguous = []
        self._closed = True

    def next_edit(self, *, pause: bool = False) -> Edit | None:
        """Return the next change of the shown text. None if more text is needed.

        The last words are held back, because they may be incomplete, and because the final edit of a message
        needs new text.

        Args:
            pause: Whether no text arrives at the moment. If true, all text is shown.
        """
        if pause:
            marks = (blanks := "".join(self._ambiguous)).rstrip()
            self._pieces.append(marks)
            self._ambiguous = [blanks[len(marks) :]]
        is_settled = self._closed or pause
        if not is_settled and self._is_idle():
            return None
        self._join()
        self._idle_characters = -1
        while self._has_more():
            draft = self._filled(is_settled=is_settled)
            end, places = draft.end, draft.places[bisect_left(draft.places, (self._floor,)) :]
            late_places = [place for place in places if place.units >= draft.late]
            best = max(reversed(late_places or places[-1:]), key=lambda place: place.rank, default=end)
            if draft.is_too_long and (
                is_settled or len(self._text) >= self._start + end.following + LOOKAHEAD
            ):
                edit = self._edit(draft, best, final=True)
                self._begin_after(best)
                if edit is not None:
                    return edit
            elif is_settled:
                edit = self._edit(draft, end, final=self._closed)
                self._floor = max(self._floor, end.end)
                self._draft.keep_shown(draft)
                if self._closed:
                    self._begin_after(end)
                return edit
            else:
                self._idle_characters = self._characters_of_no_edit(draft, best)
                # Show the text only up to a place before the best one, because the final edit needs new text.
                # Skip a place after the end of a code block, because an edit up to it shows the same text.
                certain_places = (
                    place for place in reversed(places) if place.end < best.end and not place.ends_block
                )
                certain = next(certain_places, None)
                return None if certain is None else self._edit(draft, certain, final=False)
        return None

    # Inside ---------------------------------------------------------------------------------

    def _join(self) -> None:
        """Add the pieces to the text, and drop the text of earlier messages."""
        if self._pieces:
            self._text = "".join([self._text[self._start :], *self._pieces])
            self._offset, self._start, self._pieces = self._offset + self._start, 0, []

    def _is_idle(self) -> bool:
        """Return whether the text has not grown enough for another edit."""
        new = "".join(self._pieces)
        self._pieces = [new]
        return len(new) <= self._idle_characters and "\n" not in new

    def _characters_of_no_edit(self, draft: Draft, best: Place) -> int:
        """Return the number of characters that the last line can grow by without another edit of *draft*.

        *best* is the best place of *draft*. A place at the end of a line is better than any in the last line.
        """
        if best.rank > WORD and best.units >= draft.late and draft.at > self._draft.at:
            # If the last line has no place, the marks at its start may not fit, so the line does not count.
            end = self._draft.end if draft.places[-1].line is None else draft.end
            return self._start + end.following + LOOKAHEAD - 1 - len(self._text)
        return 0

    def _begin_after(self, place: Place) -> None:
        """Start a message after *place*."""
        self._start += place.following
        self._index += 1
        self._begin(Draft(self._limit, place.blocks, place.line))

    def _has_more(self) -> bool:
        """Remove blank lines and long indentation at the start of a message. Return whether text remains."""
        if not self._draft.at:
            line = end_of(_BLANK_LINES, self._text, self._start)
            word = end_of(_BLANKS, self._text, line)
            self._start = word if word - line > self._limit // 4 else line
        return self._start < len(self._text)

    def _filled(self, *, is_settled: bool) -> Draft:
        """Return the message with all its lines. *is_settled* means that the last line does not grow."""
        draft, text = self._draft, self._text
        while not draft.is_too_long:
            at = self._start + draft.at
            # The rest of a longer line is not needed.
            most = end_of(_BLANKS, text, at + self._limit) + LOOKAHEAD
            newline = text.find("\n", at, most)
            if newline < 0:
                self._draft, draft = draft, copy(draft)
                draft.add_line(text[at:most], is_whole=False, grows=most >= len(text) and not is_settled)
                break
            draft.add_line(text[at:newline], is_whole=True)
        return draft

    def _edit(self, draft: Draft, place: Place, *, final: bool) -> Edit | None:
        """Return the edit that shows the message up to *place*. None if the shown text would not change."""
        body = draft.text[: place.end].rstrip()
        text = body + place.closing
        appended = text if final else body
        if len(appended) <= self._delta_length or (text == self._last_text and not final):
            return None
        delta, self._delta_length, self._last_text = appended[self._delta_length :], len(appended), text
        self._floor = max(self._floor, place.end)
        shown = self._text[self._start : self._start + place.following].rstrip()
        self.shown_length = self._offset + self._start + len(shown)
        return Edit(index=self._index, text=text, delta=delta, final=final)
