"""
What bash itself runs for a text. Standard library only: the docker tier runs this file inside a sandbox.

Every program that bash looks for does not exist; bash then calls `command_not_found_handle`, which notes the words and
answers with a status by chance, so that over a few runs both sides of every `&&`, `if` and `while` are taken. Nothing
else can be started: PATH leads nowhere.

As a program: a JSON list of texts on the path in argv[1], the truths as JSON on stdout.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

# FUNCNEST keeps `f() { f | f; }` from filling the machine.
HANDLER = """
FUNCNEST=4
command_not_found_handle() { printf '%s\\0' "$@" end >|"$TRUTH/$BASHPID.$RANDOM$RANDOM"; return $(( RANDOM % 2 )); }
"""
SECONDS = 5
GRACE = 0.01
"""For what runs in the background to say so."""
RUNS = 3


class Truth(NamedTuple):
    commands: list[list[str]]
    """Every argument list that bash tried to start."""
    files: list[str]
    """What appeared in the directory."""


def truth(text: str, runs: int = RUNS) -> Truth:
    """Run a text in an empty directory. Texts from `shell_strings` are harmless; others belong in a sandbox."""
    commands: list[list[str]] = []
    files: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="truth-") as folder:
        handler = Path(folder, "handler")
        handler.write_text(HANDLER)
        for run in range(runs):
            here, notes = Path(folder, f"here{run}"), Path(folder, f"notes{run}")
            here.mkdir()
            notes.mkdir()
            _run(text, here, {"BASH_ENV": str(handler), "TRUTH": str(notes)})
            # A file for each command: what several processes write into one is torn.
            commands += [_words(path.read_bytes()) for path in notes.iterdir()]
            files |= {os.fsencode(name).decode(errors="surrogateescape") for name in os.listdir(here)}
    unique = dict.fromkeys(tuple(command) for command in commands if command)
    return Truth([list(command) for command in unique], sorted(files))


def _run(text: str, here: Path, env: dict[str, str]) -> None:
    process = subprocess.Popen(
        [b"/bin/bash", b"-c", text.encode(errors="surrogateescape")],
        cwd=here,
        env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(SECONDS)
        if "&" in text or ">(" in text:
            time.sleep(GRACE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):  # what it left in the background goes with it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _words(note: bytes) -> list[str]:
    """What is without its end was being written when everything was killed."""
    words = note.removesuffix(b"\0end\0").split(b"\0") if note.endswith(b"\0end\0") else []
    return [word.decode(errors="surrogateescape") for word in words]


if __name__ == "__main__":
    texts = json.loads(Path(sys.argv[1]).read_text())
    json.dump([truth(text) for text in texts], sys.stdout)
