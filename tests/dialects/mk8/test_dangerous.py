"""What `mk8.dangerous` promises: the interpreter that was named, the SystemUser's place, and an honest ending."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from provider.capture import Capture
from provider.dialects.contract import Rejected
from provider.dialects.mk8.dangerous import ERROR_BYTES, NO_OUTPUT, OUTPUT_BYTES, SystemUser, answer, argv_for, run_for
from provider.dialects.mk8.kinds import Shell, shell_named
from provider.dialects.mk8.status import Status
from provider.model import Ending, Outcome, State

USER = SystemUser(id="u", uid=1001, gid=1002)


def outcome(stdout: bytes = b"", stderr: bytes = b"", *, cap: int = 10**9, **ending: Any) -> Outcome:
    captures = Capture(cap), Capture(cap)
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
        duration_ms=1500,
        container=None,
    )


@pytest.mark.parametrize(
    ("shell", "command", "argv"),
    [
        ("Bash", "echo $HOME | wc", ["bash", "-c", "echo $HOME | wc"]),
        ("bash", "-x", ["bash", "-c", "-x"]),
        ("POWERSHELL", "Get-Date", ["pwsh", "-NoProfile", "-NonInteractive", "-Command", "Get-Date"]),
        ("Git", "log  --oneline -n 3", ["git", "log", "--oneline", "-n", "3"]),
        ("git", 'commit -m "two words"', ["git", "commit", "-m", '"two', 'words"']),
        ("Git", "a\tb;c", ["git", "a\tb;c"]),
    ],
)
def test_each_shell_has_its_command_line(shell: str, command: str, argv: list[str]):
    """The text goes to the interpreter as one argument; Git's is split on spaces and nothing else."""
    named = shell_named(shell)
    assert named is not None
    assert list(argv_for(named, command)) == argv


@pytest.mark.parametrize(
    ("shell", "command", "said"),
    [
        (Shell.COMMAND_PROMPT, "dir", "Windows' cmd.exe.*use shellType Bash"),
        (Shell.BASH, "", "blank"),
        (Shell.GIT, "   ", "blank"),
        (Shell.BASH, "echo \0", "NUL"),
        (Shell.BASH, "x" * 131_072, "longer than 131071 bytes"),
        (Shell.BASH, "ä" * 65_536, "longer than 131071 bytes"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_could_be(shell: Shell, command: str, said: str):
    """Before anything runs: Windows' shell, nothing at all, and what Linux would not take."""
    with pytest.raises(Rejected, match=said):
        argv_for(shell, command)


@pytest.mark.parametrize(
    ("working", "root", "cwd"),
    [("/w", "/r", "/w"), (None, "/r", "/r"), (None, None, None), ("", "/r", "/r")],
)
def test_it_runs_as_the_system_user_in_its_place(working: str | None, root: str | None, cwd: str | None):
    """The working directory, else the sandbox root, else the provider's choice; uid and gid; an end in time."""
    user = SystemUser(id="u", uid=1001, gid=1002, working_directory=working, sandbox_root=root)
    run = run_for(Shell.BASH, "id", user)
    assert (run.cwd, run.user, run.timeout, dict(run.env)) == (cwd, "1001:1002", 300.0, {})


def test_git_waits_for_nobody():
    """No editor, no password prompt."""
    assert run_for(Shell.GIT, "commit", USER).env == {"GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"}


@pytest.mark.parametrize(
    ("came", "status", "result", "error"),
    [
        (outcome(b"hi\n", b"warning"), Status.COMPLETED, "hi\n", None),
        (outcome(b" \n"), Status.COMPLETED, NO_OUTPUT, None),
        (outcome(), Status.COMPLETED, "(no output)", None),
        (outcome(b"\xff\xfe"), Status.COMPLETED, "\ufffd\ufffd", None),
        (outcome(b"", b"boom\n", exit_code=3), Status.FAILED, None, "exit code 3; boom"),
        (outcome(b"half", b"", exit_code=1), Status.FAILED, "half", "exit code 1"),
        (outcome(b"half", b"x", reason="timed_out", signal=9), Status.FAILED, "half", "timed out after 2 s; x"),
        (outcome(reason="timed_out", exit_code=0), Status.FAILED, None, "timed out after 2 s"),
        (outcome(reason="canceled", exit_code=0), Status.FAILED, None, "cancelled"),
        (outcome(reason="output_limit", exit_code=0), Status.FAILED, None, "ended because it wrote without end"),
        (outcome(signal=9, oom_kills=1), Status.FAILED, None, "ended for want of memory"),
        (outcome(reason="output_limit", signal=9), Status.FAILED, None, "ended because it wrote without end"),
        (outcome(signal=11), Status.FAILED, None, "ended by signal 11"),
        (outcome(error="no", error_number=errno.EACCES), Status.FAILED, None, "PowerShell could not be started: no"),
        (outcome(error="no", error_number=2), Status.FAILED, None, "PowerShell is not in this image"),
    ],
)
def test_only_an_exit_with_zero_is_completed(came: Outcome, status: Status, result: str | None, error: str | None):
    """Stdout if it went well, or `(no output)`; else how it ended, with stderr."""
    said = answer("7", Shell.POWERSHELL, came)
    assert (said.id, said.status, said.result, said.error) == ("7", status, result, error)


def test_long_output_is_cut_to_its_end_and_says_so():
    """On a character's border; each stream has its own measure."""
    came = outcome("ä".encode() * OUTPUT_BYTES, b"e" * (ERROR_BYTES + 1), exit_code=1)
    said = answer("7", Shell.BASH, came)
    assert said.result == f"(cut: the last {OUTPUT_BYTES} bytes)\n" + "ä" * (OUTPUT_BYTES // 2)
    assert said.error == f"exit code 1; (cut: the last {ERROR_BYTES} bytes)\n" + "e" * ERROR_BYTES
    odd = answer("7", Shell.BASH, outcome(b"x" + "€".encode() * OUTPUT_BYTES)).result
    assert odd is not None
    assert "\ufffd" not in odd
    assert answer("7", Shell.BASH, outcome(b"abcdef", cap=3)).result == "abc\n(more was written than is kept)"
