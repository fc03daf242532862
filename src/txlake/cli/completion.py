"""Completion at the prompt: SQL keywords, the lake's tables and databases, branches and tags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from txlake.sql.tokens import words

KEYWORDS = sorted(
    words(
        """ABORT ALTER AND AS BEGIN BETWEEN BRANCH BRANCHES BY CASE CLONE CLUSTER COLUMN COMMENT
        COMMIT CONFLICTS COPY CREATE DATABASE DAYS DEFAULT DELETE DESCRIBE DETAIL DISTINCT
        DROP ELSE END EXISTS EXPLAIN EXTENDED FOR FROM GROUP HAVING HISTORY HOURS IN INNER
        INSERT INSTANT INTO IS ISOLATION JOIN LEFT LEVEL LIKE LIMIT LOCK LOCK_TIMEOUT MATCHED
        MERGE NOT NULL ON ONLY OPTIMIZE OR ORDER OUTER OVERWRITE PARTITIONED PER PUBLISH READ
        REBASE RELEASE REPLACE RESTORE RETAIN ROLLBACK SAVE SAVEPOINT SCHEMA SELECT
        SERIALIZABLE SET SHOW SNAPSHOT START TABLE TABLES TAG TAGS TBLPROPERTIES THEN
        TIMESTAMP TO TRAN TRANSACTION TRUNCATE UNION UPDATE USE USING VACUUM VALUES VERSION
        WHEN WEEKS WHERE WITH WORK WRITE ZORDER"""
    )
)
_WORD_BEFORE_CURSOR = re.compile(r"[\w.]+$")
_BRANCH_BEFORE_CURSOR = re.compile(
    r"\b(?:BRANCH|TAG)\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?(`?[\w./-]*)$", re.IGNORECASE
)
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


class SqlCompleter(Completer):
    """The completion of the word at the cursor.

    `names` returns the lake's current names of tables and databases, `branches` those of branches
    and tags.
    """

    def __init__(
        self, names: Callable[[], Sequence[str]], branches: Callable[[], Sequence[str]]
    ) -> None:
        self._names = names
        self._branches = branches

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield the names, and after them the keywords, that begin with the typed word, in any
        letter case.

        None without a word at the cursor. Keywords are in lower case if the word is. After BRANCH
        and TAG those of branches and tags alone, in backquotes where they need them, and without a
        word too.
        """
        branch = _BRANCH_BEFORE_CURSOR.search(document.text_before_cursor)
        if branch is not None:
            yield from self._branch_completions(branch[1])
            return
        match = _WORD_BEFORE_CURSOR.search(document.text_before_cursor)
        if match is None:
            return
        typed = match.group()
        folded = typed.lower()
        for name in self._names():
            if name.lower().startswith(folded):
                yield Completion(name, -len(typed))
        for keyword in KEYWORDS:
            if keyword.lower().startswith(folded):
                yield Completion(keyword.lower() if typed.islower() else keyword, -len(typed))

    def _branch_completions(self, typed: str) -> Iterable[Completion]:
        """Yield the names of branches and tags that begin with a word, which may have begun with a
        backquote.
        """
        folded = typed.removeprefix("`").lower()
        for name in self._branches():
            if name.lower().startswith(folded):
                is_plain = _PLAIN_NAME.fullmatch(name) and not typed.startswith("`")
                yield Completion(name if is_plain else f"`{name}`", -len(typed))
