"""What `mk8.transcription` promises: audio of the workspace and nothing else; a text, or why there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from provider.capture import Capture
from provider.dialects.contract import Rejected
from provider.dialects.mk8.status import Status
from provider.dialects.mk8.transcription import ENGLISH, FORMATS, NOTHING_HEARD, Model, answer, argv_for
from provider.model import Ending, Outcome, State


def outcome(stdout: bytes = b"", stderr: bytes = b"", **ending: Any) -> Outcome:
    captures = Capture(10**6), Capture(10**6)
    for capture, data in zip(captures, (stdout, stderr), strict=True):
        capture.write(data)
    ended = Ending(**{"reason": "exited", **(ending or {"exit_code": 0})})
    states = {"timed_out": State.TIMED_OUT, "canceled": State.CANCELED}
    usual = State.COMPLETED if (ended.reason, ended.exit_code) == ("exited", 0) else State.FAILED
    return Outcome(
        run_id="r",
        status=states.get(ended.reason, usual),
        ending=ended,
        stdout_capture=captures[0],
        stderr_capture=captures[1],
        duration_ms=1,
        container=None,
    )


@pytest.mark.parametrize(
    ("file", "path", "kind"),
    [
        ("a.wav", "/workspace/a.wav", "wav"),
        ("/workspace/in/b.FLAC", "/workspace/in/b.FLAC", "flac"),
        ("./in/../c.oga", "/workspace/c.oga", "ogg"),
        ("-n.mp3", "/workspace/-n.mp3", "mp3"),
        ("|touch x.wav", "/workspace/|touch x.wav", "wav"),
        ("$(id).aif", "/workspace/$(id).aif", "aiff"),
    ],
)
def test_the_file_is_an_argument_of_its_own(file: str, path: str, kind: str):
    """Absolute, so that it is none of sox's special names; with its format told, and never part of the text."""
    argv = argv_for(file)
    assert argv[:2] == ("bash", "-c")
    assert argv[4:6] == (path, kind)
    assert "/workspace" not in argv[2]
    assert argv[6:] == (ENGLISH.acoustic, ENGLISH.words, ENGLISH.dictionary)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("../a.wav", "below /workspace"),
        ("/etc/a.wav", "below /workspace"),
        ("/workspace/../a.wav", "below /workspace"),
        ("/workspaces/a.wav", "below /workspace"),
        ("a\0.wav", "below /workspace"),
        ("a\n.wav", "below /workspace"),
        ("", "below /workspace"),
        ("list.m3u", "must be audio"),
        ("list.pls", "must be audio"),
        ("notes.txt", "must be audio"),
        ("wav", "must be audio"),
    ],
)
def test_other_files_are_refused(file: str, said: str):
    """What is not below the workspace, and what sox would follow elsewhere."""
    with pytest.raises(Rejected, match=said):
        argv_for(file)


@pytest.mark.parametrize("language", [None, "", "en", "EN", "en-GB", "en_US"])
def test_a_model_takes_its_own_language(language: str | None):
    """Any variety of it."""
    assert argv_for("a.wav", ENGLISH, language)


@pytest.mark.parametrize("language", ["de", "de-DE", "eng", "fr"])
def test_a_model_refuses_other_languages(language: str):
    """It would hear English words in them."""
    with pytest.raises(Rejected, match=f"knows en-US, not {language}"):
        argv_for("a.wav", ENGLISH, language)


def test_another_model_can_be_registered():
    """Its three parts are paths in the image."""
    model = Model(id="m", language="de-DE", acoustic="/m/a", words="/m/w", dictionary="/m/d")
    assert argv_for("a.wav", model, "de")[6:] == ("/m/a", "/m/w", "/m/d")


@pytest.mark.parametrize(
    ("came", "status", "result", "error"),
    [
        (outcome(b"this is a test\n\n and  more \n"), Status.COMPLETED, "this is a test\nand  more", None),
        (outcome(b"\n"), Status.COMPLETED, NOTHING_HEARD, None),
        (
            outcome(b"", b"sox FAIL formats: RIFF header not found", exit_code=2),
            Status.FAILED,
            None,
            "transcription ended with exit code 2: sox FAIL formats: RIFF header not found",
        ),
        (outcome(b"half", exit_code=127), Status.FAILED, None, "transcription is not in this image, which needs"),
        (outcome(b"half", reason="timed_out", signal=9), Status.FAILED, None, "transcription timed out"),
        (
            outcome(b"half", reason="canceled", exit_code=0),
            Status.FAILED,
            None,
            "transcription was ended before its end",
        ),
        (outcome(b"half", signal=9), Status.FAILED, None, "transcription was ended before its end"),
        (outcome(error="no bash", error_number=2), Status.FAILED, None, "transcription is not in this image"),
    ],
)
def test_the_text_is_the_result(came: Outcome, status: Status, result: str | None, error: str | None):
    """One line an utterance; a failure says why, with what sox said."""
    said = answer("7", came)
    assert (said.status, said.result) == (status, result)
    assert (said.error is None) == (error is None)
    assert (said.error or "").startswith(error or "")


def test_the_pipe_fails_when_its_first_half_does(tmp_path: Path):
    """Run with stand-ins for both programs: arguments arrive whole, and sox's failure is the command's."""
    for name, body in {
        "sox": 'printf "%s|" "$@" >&2; case "$5" in *bad*) exit 2;; esac; printf samples',
        "pocketsphinx_continuous": 'test "$2" = /dev/stdin && cat; printf " %s" "${@:3}"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    runs = [
        subprocess.run(argv_for(file), env=environment, capture_output=True, text=True, timeout=30, check=False)
        for file in ("a $(b).wav", "bad.ogg")
    ]
    assert [run.returncode for run in runs] == [0, 2]
    assert runs[0].stderr == "-V1|-D|-t|wav|/workspace/a $(b).wav|-t|raw|-r|16000|-e|signed-integer|-b|16|-c|1|-|"
    model = f" -hmm {ENGLISH.acoustic} -lm {ENGLISH.words} -dict {ENGLISH.dictionary} -logfn /dev/null"
    assert runs[0].stdout == f"samples{model}"


def test_no_playlist_is_among_the_formats():
    """sox would open whatever one lists."""
    assert {"m3u", "pls"} & {*FORMATS, *FORMATS.values()} == set()
