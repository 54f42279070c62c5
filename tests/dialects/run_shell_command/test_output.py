"""What a model is shown of a stream."""

from __future__ import annotations

import base64

import pytest

from provider.dialects.run_shell_command.output import shown, strip_ansi


def of(data: bytes, characters: int = 100, total: int | None = None):
    return shown(data, total=len(data) if total is None else total, characters=characters)


def test_what_fits_is_whole():
    """Up to the limit nothing is left out."""
    assert (of(b"x" * 100).text, of(b"x" * 100).omitted) == ("x" * 100, 0)


def test_head_and_tail():
    """A fifth from the beginning, the rest from the end, and the count of what is missing."""
    text = "".join(f"{number:03}" for number in range(100))
    found = of(text.encode())
    assert found.text == text[:20] + "\n... [200 characters omitted] ...\n" + text[-80:]
    assert found.omitted == 200


def test_one_more_than_fits():
    """At the limit plus one, one is missing."""
    assert of(b"x" * 101).omitted == 1


def test_what_the_provider_did_not_keep_is_counted():
    """Also where what was kept would fit, and where it would not."""
    assert of(b"abc", total=10).text == "abc\n... [7 bytes omitted] ...\n"
    found = of(b"x" * 200, total=1000)
    assert ("[100 characters and 800 bytes after the tail omitted]" in found.text, found.omitted) == (True, 900)


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07red",
        "\x1b]8;;http://x\x1b\\red\x1b]8;;\x1b\\",
        "\x1b(Bred\x1b[?25l",
        "\x9b1mred",
        "\x1bMred",
    ],
)
def test_terminal_codes_are_taken_out(text):
    """Colours, titles, links, cursor."""
    assert strip_ansi(text) == "red"


def test_bytes_that_are_no_text_survive():
    """Replaced in the text, whole beside it."""
    found = of(b"a\xff\xfeb")
    assert (found.text, base64.b64decode(found.base64)) == ("a\ufffd\ufffdb", b"a\xff\xfeb")
    assert of("é".encode()).base64 is None


def test_binary_output_is_said_to_be():
    """A NUL near the beginning: the text says so, the bytes are beside it while they fit."""
    found = of(b"\x7fELF\0\1")
    assert found.text == "[Binary output detected. Halting stream...]\n[6 bytes received]"
    assert base64.b64decode(found.base64) == b"\x7fELF\0\1"
    large = of(b"\0" * 500)
    assert (large.base64, large.omitted) == (None, 500)
    assert of(b"x" * 70 + b"\0").base64 is not None
    assert of(b"x" * 600 + b"\0", characters=1000).base64 is None
