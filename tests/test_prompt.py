"""What `provider.prompt` promises: a person at a terminal is asked, and anything but a clear yes is a no."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

ASK = """
import asyncio, sys, types
from provider.prompt import ask_terminal
question = types.SimpleNamespace(text="argv[0]  rm", remember=("rm",), forever="rm x")
print("said", asyncio.run(ask_terminal(question)).value, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("y", "once"), ("s", "session"), ("e", "always"), ("n", "deny"), ("a", "abort"), ("", "deny"), ("what?", "deny")],
)
def test_one_letter_is_the_answer(typed: str, answer: str):
    """The question is shown on the terminal, not on stdout, and the letter typed there decides."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", ASK])
    said = b""
    try:
        while b"stop: " not in said:
            said += os.read(terminal, 4096)
        os.write(terminal, typed.encode() + b"\n")
        while b"said " not in said or not said.rstrip(b" ").endswith(b"\n"):
            said += os.read(terminal, 4096)
    finally:
        os.close(terminal)
        os.waitpid(process, 0)
    assert b"argv[0]  rm" in said
    assert b"for the session: rm" in said
    assert b"for ever: rm x" in said
    assert f"said {answer}".encode() in said


def test_without_a_terminal_the_answer_is_no():
    """A program in the background cannot ask, and so does not run anything."""
    result = subprocess.run(
        [sys.executable, "-c", ASK], check=True, capture_output=True, start_new_session=True, timeout=30
    )
    assert b"said deny" in result.stderr
