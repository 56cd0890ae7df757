"""A reader's place in a list of tokens: what comes next, and complaints that name the line."""

from __future__ import annotations

from typing import NoReturn

from tidelog.spark.payload.errors import SchemaError
from tidelog.spark.payload.protobuf.tokens import Token, tokens, unquoted

_CLOSING = {"{": "}", "[": "]", "(": ")", "<": ">"}


class Stream:
    def __init__(self, text: str) -> None:
        self._tokens = tokens(text)
        self._at = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._at]

    @property
    def after(self) -> Token:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def fail(self, what: str) -> NoReturn:
        raise SchemaError(f".proto line {self.next.line}: {what}")

    def take(self) -> Token:
        token = self.next
        if token.kind == "end":
            self.fail("the text ends too early")
        self._at += 1
        return token

    def skips(self, text: str) -> bool:
        """Takes `text` if it comes next, and says whether it did."""
        if self.next.text != text or self.next.kind == "text":
            return False
        self._at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.skips(text):
            self.fail(f"expected {text!r}, found {self.next.text!r}")

    def name(self) -> str:
        if self.next.kind != "name":
            self.fail(f"expected a name, found {self.next.text!r}")
        return self.take().text

    def type_name(self) -> str:
        """A name with dots, perhaps one in front."""
        parts = ["."] if self.skips(".") else []
        parts.append(self.name())
        while self.skips("."):
            parts += [".", self.name()]
        return "".join(parts)

    def text(self) -> str:
        if self.next.kind != "text":
            self.fail(f"expected a text in quotes, found {self.next.text!r}")
        parts = []
        while self.next.kind == "text":
            parts.append(unquoted(self.take().text))
        return "".join(parts)

    def number(self) -> int:
        negative = self.skips("-")
        token = self.next
        if token.kind != "int":
            self.fail(f"expected a whole number, found {token.text!r}")
        text = self.take().text
        base = 16 if text[:2] in ("0x", "0X") else 8 if len(text) > 1 and text[0] == "0" else 10
        try:
            value = int(text, base)
        except ValueError:
            self.fail(f"{text!r} is not a number")
        return -value if negative else value

    def constant(self) -> str:
        """An option's value, as a descriptor writes a default."""
        if self.next.kind == "text":
            return self.text()
        if self.next.text in _CLOSING:
            self.skip_block()
            return ""
        sign = "-" if self.skips("-") else ""
        self.skips("+")
        if self.next.kind == "int":
            return str(-self.number() if sign else self.number())
        if self.next.kind == "float":
            return sign + self.take().text.rstrip("f")
        return sign + self.type_name()

    def skip_block(self) -> None:
        """Over a bracket, all that is in it, and its end."""
        waiting = [_CLOSING[self.take().text]]
        while waiting:
            token = self.take()
            if token.kind != "text" and token.text == waiting[-1]:
                waiting.pop()
            elif token.text in _CLOSING and token.text != "<":
                waiting.append(_CLOSING[token.text])

    def skip_statement(self) -> None:
        """Over everything up to a semicolon, or up to the end of a block."""
        while not self.skips(";"):
            if self.next.text == "{":
                self.skip_block()
                self.skips(";")
                return
            if self.next.text in ("[", "("):
                self.skip_block()
            else:
                self.take()
