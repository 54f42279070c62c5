"""
What bash itself runs for a text. Standard library only: the docker tier runs this file inside a sandbox.

Every program that bash looks for does not exist; bash then calls `command_not_found_handle`, which notes the words and
answers with a status by chance, so that over a few runs both sides of every `&&`, `if` and `while` are taken. Nothing
else can be started: PATH leads nowhere.

`truth` starts a bash for each run of one text. `truths` has one bash fork for each of many, ten times as fast: every
process that a text starts inherits the text's number, so nobody waits for what runs in the background but at the end.

As a program: a JSON list of texts on the path in argv[1], the truths as JSON on stdout.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
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


# The texts are parsed by the same function as the argument of -c is. A loop without an end has a second of processor
# time. Descriptor 9 is held by everything that a text starts: at its end all of it is over.
SERVER = """
FUNCNEST=5
command_not_found_handle() {
    printf '%s\\0' "$@" end >|"$TRUTH/$__at.$BASHPID.$RANDOM$RANDOM"
    return $(( RANDOM % 2 ))
}
"""
# A program that is not found costs a process, and a function none.
SERVER += "".join(f'{name}() {{ command_not_found_handle {name} "$@"; }}\n' for name in ("c1", "c2", "c3", "c4"))
SERVER += """
mapfile -d '' -t __texts <"$TEXTS"
for (( __at = __from; __at < ${#__texts[@]}; __at++ )); do
    printf . >&8
    ( exec 8>&-; ulimit -S -t 1; cd "$HERES/$__at"; eval "${__texts[__at]}" ) </dev/null >/dev/null 2>&1
done
"""
BATCH = 1000
STALLED = 5
"""Seconds without progress after which a text is called stuck."""


def truths(texts: Sequence[str]) -> list[Truth]:
    """The same as `truth`, with one run of each text; one that stops the common bash is run again by itself."""
    found: list[Truth] = []
    for at in range(0, len(texts), BATCH):
        found += _batch(texts[at : at + BATCH])
    return found


def _batch(texts: Sequence[str]) -> list[Truth]:
    with tempfile.TemporaryDirectory(prefix="truths-") as folder:
        notes, heres = Path(folder, "notes"), Path(folder, "heres")
        notes.mkdir()
        for at in range(len(texts)):
            Path(heres, str(at)).mkdir(parents=True)
        data = b"".join(text.encode(errors="surrogateescape") + b"\0" for text in texts)
        Path(folder, "texts").write_bytes(data)
        env = {"TRUTH": str(notes), "TEXTS": f"{folder}/texts", "HERES": str(heres)}
        begin, alone = 0, set()
        while begin < len(texts):
            begin += _serve(env, begin)
            if begin < len(texts):  # the last one that was begun
                alone.add(begin - 1)
        commands: list[dict[tuple[str, ...], None]] = [{} for _ in texts]
        for path in notes.iterdir():
            if words := _words(path.read_bytes()):
                commands[int(path.name.partition(".")[0])][tuple(words)] = None
        files = [sorted(os.fsencode(name).decode(errors="surrogateescape") for name in os.listdir(heres / str(at)))
                 for at in range(len(texts))]  # fmt: skip
        return [
            truth(text, runs=1) if at in alone else Truth([list(words) for words in commands[at]], files[at])
            for at, text in enumerate(texts)
        ]


def _serve(env: dict[str, str], begin: int) -> int:
    """Let one bash run the texts from `begin` on; return how many it has begun."""
    progress, told = os.pipe()
    living, held = os.pipe()
    process = subprocess.Popen(
        ["/bin/bash", "-c", f"exec 8>&{told} 9>&{held}; {SERVER}"],
        env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8", "__from": str(begin), **env},
        pass_fds=(told, held),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(told)
    os.close(held)
    begun = 0
    try:
        while select.select([progress], [], [], STALLED)[0] and (dots := os.read(progress, 65536)):
            begun += len(dots)
        if process.poll() is None and begun:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STALLED)
        select.select([living], [], [], 1)  # nothing is ever written there: readable is at its end
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(progress)
        os.close(living)
    return begun


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
    json.dump(truths(texts), sys.stdout)
