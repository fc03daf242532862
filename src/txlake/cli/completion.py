"""Completion at the prompt: SQL keywords, the lake's tables and databases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from txlake.sql.tokens import words

KEYWORDS = sorted(
    words(
        """ABORT ALTER AND AS BEGIN BETWEEN BRANCH BRANCHES BY CASE CLONE CLUSTER COLUMN COMMENT
        COMMIT CONFLICTS COPY CREATE DATABASE DEFAULT DELETE DESCRIBE DETAIL DISTINCT DROP
        ELSE END EXISTS EXPLAIN EXTENDED FROM GROUP HAVING HISTORY IN INNER INSERT INSTANT
        INTO IS ISOLATION JOIN LEFT LEVEL LIKE LIMIT LOCK LOCK_TIMEOUT MATCHED MERGE NOT
        NULL ON ONLY OPTIMIZE OR ORDER OUTER OVERWRITE PARTITIONED PUBLISH READ REBASE
        RELEASE REPLACE RESTORE RETAIN ROLLBACK SAVE SAVEPOINT SCHEMA SELECT SERIALIZABLE
        SET SHOW SNAPSHOT START TABLE TABLES TAG TAGS TBLPROPERTIES THEN TIMESTAMP TO TRAN
        TRANSACTION TRUNCATE UNION UPDATE USE USING VACUUM VALUES VERSION WHEN WHERE WITH
        WORK WRITE ZORDER"""
    )
)
_WORD_BEFORE_CURSOR = re.compile(r"[\w.]+$")


class SqlCompleter(Completer):
    """The completion of the word at the cursor. `names` returns the lake's current names."""

    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        self._names = names

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield the names, and after them the keywords, that begin with the typed word, in any
        letter case.

        None without a word at the cursor. Keywords are in lower case if the word is.
        """
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
