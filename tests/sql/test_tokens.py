"""Tokens keep their places; errors show them."""

from __future__ import annotations

import pytest

from tests.sql.parsing import refused
from txlake.errors import InvalidRequest
from txlake.sql.strings import string_value
from txlake.sql.tokens import Kind, SourceText, tokenize


def texts(text: str) -> list[str]:
    return [token.text for token in tokenize(SourceText(text, text)) if token.kind is not Kind.END]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("GROUP  BY a", ["GROUP", "BY", "a"]),
        ("PARTITIONED BY (a)", ["PARTITIONED", "BY", "(", "a", ")"]),
        ("1L 1.5BD 1e-3 1.5D 2Y", ["1L", "1.5BD", "1e-3", "1.5D", "2Y"]),
        ("a -- b ; c\n d", ["a", "d"]),
        ("a /* b ; /* c */ */ d", ["a", "d"]),
        ("SELECT /*+ BROADCAST(t) */ a", ["SELECT", "a"]),
        ("'it''s' \"q\" r'\\' x'ff'", ["'it'", "'s'", '"q"', "r'\\'", "x'ff'"]),
        ("`a``b`.ümläut", ["`a``b`", ".", "ümläut"]),
        ("t@v3", ["t", "@", "v3"]),
        ("SHOW TABLES; OPTIMIZE t", ["SHOW", "TABLES", ";", "OPTIMIZE", "t"]),
        ("", []),
        (" -- nothing", []),
    ],
)
def test_a_text_is_split_into_tokens(text: str, tokens: list[str]) -> None:
    assert texts(text) == tokens


def test_every_token_stands_where_it_says() -> None:
    text = "SELECT 1L, 'x''y', `a b` /* c */ FROM t -- end\n ORDER BY ü"
    for token in tokenize(SourceText(text, text)):
        assert text[token.start : token.end] == token.text


@pytest.mark.parametrize(
    ("text", "place", "sign"),
    [
        ("SELECT 'abc", "1:8", "'"),
        ("SELECT 1,\n  `abc", "2:3", "`"),
        ("SELECT /* abc", "1:8", "/*"),
        ("SELECT 'a' -- it's\n, \"b", "2:3", '"'),
        ("SELECT 'a\\'", "1:8", "'"),
    ],
)
def test_what_is_never_closed_is_shown(text: str, place: str, sign: str) -> None:
    refused(text, place, f"what {sign} opens here is never closed")


def test_an_error_shows_the_line_and_a_caret_under_the_place() -> None:
    message = refused("SELECT 1;\n\tUPDATE t\n\tSAT a = 1", "3:6", "expected SET, found 'a'")
    lines = message.splitlines()
    assert lines[1:] == ["   SAT a = 1", "       ^"]
    assert lines[1][len(lines[2]) - 1] == "a"


def test_a_long_line_is_cut_around_the_place() -> None:
    text = "SELECT " + "a, " * 100 + "b c d"
    message = refused(text, "1:312", "unexpected 'd'")
    shown, caret = message.splitlines()[1:]
    assert len(shown) < 130
    assert shown[len(caret) - 1] == "d"


def test_a_place_after_a_parameter_is_that_of_the_original() -> None:
    refused("SELECT :a AS x, b c d", "1:21", "unexpected 'd'", {"a": "a long text"})
    refused("UPDATE t SET a = :a b", "1:21", "no alias here", {"a": 1})


def test_an_error_inside_a_parameter_points_at_its_marker() -> None:
    refused("SELECT * FROM t VERSION AS OF :v", "1:31", "a version", {"v": "x y"})


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'it''s'", "it's"),
        ("'a' 'b'", "ab"),
        (r"'a\nb\tc\\d'", "a\nb\tc\\d"),
        (r"'\u0041\101\0x'", "AA\0x"),
        (r"'\%\_'", r"\%\_"),
        (r"r'\n'", r"\n"),
        (r'"d\"q"', 'd"q'),
        (r"'\q\''", "q'"),
        ("'a''' 'b'", "a'b"),
        ('"a""b"', 'a"b'),
        ("\"a\"'b'", "ab"),
        (r"'\U0001F600'", "\U0001f600"),
        (r"'\08\x41\Z'", "\08x41\x1a"),
    ],
)
def test_a_string_says_what_spark_reads(literal: str, value: str) -> None:
    tokens = tokenize(SourceText(literal, literal))
    assert string_value(tokens[:-1]) == value


def test_a_parse_error_is_no_internal_error() -> None:
    with pytest.raises(InvalidRequest):
        tokenize(SourceText("'", "'"))
