from __future__ import annotations

import string
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata.config import ConfigError
from tidelog.node.properties import Property, decode, parse_properties
from tools.apache import why_not
from tools.extract_configs import run_java

ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def escape(text: str, draw: st.DrawFn) -> str:
    """One of the many ways to write the text; always escaped where Java would read something else."""
    written = []
    for char in text:
        ways = [f"\\u{ord(char):04X}" if ord(char) < 0x10000 else _surrogates(char)]
        if char in ESCAPED:
            ways.append(ESCAPED[char])
        elif char not in "tnrfu":
            ways.append("\\" + char)
        if char not in "\\=: \t\f\n\r#!":
            ways.append(char)
        if draw(st.integers(0, 9)) == 0:
            written.append("\\" + draw(st.sampled_from(["\n", "\r", "\r\n"])) + draw(st.text(" \t\f", max_size=2)))
        written.append(draw(st.sampled_from(ways)))
    return "".join(written)


def _surrogates(char: str) -> str:
    units = char.encode("utf-16-be")
    return f"\\u{units[:2].hex()}\\u{units[2:].hex().upper()}"


TEXT = st.text(st.one_of(st.sampled_from("\\=: \t\f\n\r#!tnrfu,"), st.characters(exclude_categories=["Cs"])))


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]]]:
    pairs = draw(st.lists(st.tuples(TEXT.filter(bool), TEXT), max_size=4))
    text = ""
    for name, value in pairs:
        text += draw(st.sampled_from(["", "\n", "  \t\n", "# a=b \\\n", "  ! c\r", "\f\r\n"]))
        text += draw(st.text(" \t\f", max_size=2)) + escape(name, draw)
        text += draw(st.sampled_from(["=", ":", " = ", "\t:\f", " ", "\t "])) + escape(value, draw)
        text += draw(st.sampled_from(["\n", "\r", "\r\n"]))
    return text, pairs


@given(files())
def test_every_way_of_writing_a_property_is_read(written: tuple[str, list[tuple[str, str]]]) -> None:
    text, pairs = written
    assert [(entry.name, entry.value) for entry in parse_properties(text)] == pairs


@given(st.text(string.printable))
def test_any_text_is_properties_or_a_config_error(text: str) -> None:
    try:
        parse_properties(text)
    except ConfigError as error:
        assert str(error).startswith("line ")


def test_comments_separators_continuations_and_line_numbers() -> None:
    text = "# one\n ! two\n\nname = value \na:b=c\nkey value\nlist=a,\\\n    b,\\\n  c\nempty\nlast=x\\"
    assert parse_properties(text) == [
        Property("name", "value ", 4),
        Property("a", "b=c", 5),
        Property("key", "value", 6),
        Property("list", "a,b,c", 7),
        Property("empty", "", 10),
        Property("last", "x", 11),
    ]


def test_escapes() -> None:
    assert parse_properties(r"a\ b\=\:c=\u00e9\t\x\\ \ud83d\ude00") == [Property("a b=:c", "é\tx\\ 😀", 1)]


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_properties("a=b\nc=\\u12x4")
    assert str(raised.value) == "line 2: \\u needs four hexadecimal digits after it"


def test_utf_8_is_tried_before_latin_1() -> None:
    assert decode("a=é".encode()) == "a=é"
    assert decode("a=é".encode("latin-1")) == "a=é"
    assert decode("a=b".encode("utf-8-sig")) == "a=b"


@pytest.mark.java
@pytest.mark.skipif(why_not() is not None, reason=f"Java cannot run here: {why_not()}")
def test_java_reads_the_same_from_any_text() -> None:
    random = Random(8)
    pieces = ["\\", "\\u0041", "\\u00g", "=", ":", " ", "\t", "\f", "\n", "\r", "#", "!", "a", "b", "u", "é", "\u2028"]
    texts = ["".join(random.choices(pieces, k=random.randrange(12))) for _ in range(3000)]
    answers = run_java("properties", "".join(text.encode().hex() + "\n" for text in texts)).split("\n")
    wrong = [text for text, answer in zip(texts, answers, strict=False) if _as_java(text) != answer]
    assert wrong == []


def _as_java(text: str) -> str:
    try:
        found = {entry.name: entry.value for entry in parse_properties(text)}
    except ConfigError:
        return "bad"
    pairs = ((name.encode("utf-16-be").hex(), value.encode("utf-16-be").hex()) for name, value in found.items())
    return " ".join(f"{name}={value}" for name, value in sorted(pairs))
