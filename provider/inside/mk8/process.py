"""
ProcRun: one program by its bare name, with arguments and no shell, in an environment made from nothing.

The process leads a session of its own. When it has ended, or its time has, everything that it left behind is killed:
the session, and every other descendant, as far as orphans come back to us (`adopt_orphans`). Output is read as it
comes, and only its end is kept, so that a flood costs time and no memory.

What may be run with which arguments is decided before (check.py); the one rule kept here is about the moment: a
protected branch that is checked out is not committed to, merged into or pushed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from .environment import SEARCH_PATH, of_process
from .errors import CompileError, StepFailure, TimedOut
from .templates import is_protected
from .verb import Done, World

LINGER_SECONDS: Final = 0.2
"""How long output is still read when the process has ended and another one keeps its pipes open."""
_LOOK_SECONDS: Final = 0.1  # how often a process is looked at that neither writes nor closes its output
_KILL_SECONDS: Final = 2.0
_SOON: Final = 0.001
_ENDED: Final = frozenset({b"Z", b"X"})
_CHUNK: Final = 65_536
_ROOM: Final = 256  # of the bytes for an error: what is said besides the process's own words
_PR_SET_CHILD_SUBREAPER: Final = 36
_LONGEST: Final = 3
_CONTINUED: Final = bytes(range(0x80, 0xC0))
"""In UTF-8, what is never the first byte of a character, of which at most three follow each other."""
_VERB: Final = "ProcRun"

# Over whatever the repository's own configuration says: somebody else may have written it.
GIT_CONFIGURATION: Final = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",  # a program that `git status` would start
    "credential.helper": "",
    "protocol.ext.allow": "never",  # a URL that is a command
    "safe.directory": "*",  # the workspace may belong to another uid
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "gc.auto": "0",  # would go on in the background
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "advice.defaultBranchName": "false",  # seven lines of advice after each `git init`
}
GIT_VARIABLES: Final = {
    "GIT_EDITOR": "true",  # `git commit` without -m would wait for one
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",  # ~/.gitconfig may be a process's work
    "GIT_CONFIG_COUNT": str(len(GIT_CONFIGURATION)),
    **{f"GIT_CONFIG_KEY_{place}": key for place, key in enumerate(GIT_CONFIGURATION)},
    **{f"GIT_CONFIG_VALUE_{place}": value for place, value in enumerate(GIT_CONFIGURATION.values())},
}
CHANGES_BRANCH: Final = frozenset({"commit", "merge", "push", "pull"})
SIGNS: Final = frozenset({"commit", "merge", "pull", "stash", "tag"})
"""What git writes somebody's name into, and refuses where it knows none."""
IDENTITY: Final = {"name": "mk8.shell", "email": "mk8.shell@sandbox.invalid"}


def run_process(world: World, arguments: Sequence[str]) -> Done:
    """
    Run a program and give what it wrote.

    Raises:
        StepFailure: it cannot be run, or ended with anything but 0; what it wrote to stdout is with the error.
        TimedOut: it was killed.
        CompileError: it is not named by a bare name, or would change a protected branch.
    """
    binary, *rest = arguments
    path = find_binary(binary)
    action = rest[0] if binary == "git" and rest else ""
    if action in CHANGES_BRANCH:
        _refuse_protected(world, path, action)
    ended = _run(world, path, arguments, _identity(world, path) if action in SIGNS else {})
    if ended.code == 0:
        return Done(output=ended.stdout, error=ended.stderr, exit_code=0)
    how = f"exited with code {ended.code}" if ended.code > 0 else f"was ended by {_signal_name(-ended.code)}"
    code = ended.code if ended.code > 0 else 128 - ended.code
    raise StepFailure(_with(f"{binary} {how}", ended.stderr), output=ended.stdout, exit_code=code)


def find_binary(name: str) -> str:
    """
    The program of this name on the fixed search path.

    Raises:
        CompileError: a path was given; a file of the workspace would be run.
        StepFailure: there is none.
    """
    if not name or "/" in name or "\0" in name or name in {".", ".."}:
        raise CompileError(
            _VERB,
            f"{name!r} is not the bare name of a program. Right: git, without a path; Mk8Templates lists all.",
        )
    for folder in SEARCH_PATH.split(":"):
        path = f"{folder}/{name}"
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.stat(path).st_mode) and os.access(path, os.X_OK):  # noqa: PTH116 - every ProcRun
                return path
    text = f"{name} is not installed in this sandbox (looked in {SEARCH_PATH.replace(':', ', ')})"
    raise StepFailure(text)


def _refuse_protected(world: World, git: str, action: str) -> None:
    """A detached HEAD, and a folder that is no repository, are git's own to talk about."""
    try:
        head = _run(replace(world, output_bytes=1024), git, ["git", "symbolic-ref", "--quiet", "HEAD"])
    except StepFailure:
        return
    branch = head.stdout.strip().removeprefix("refs/heads/")
    if head.code == 0 and is_protected(branch):
        raise CompileError(
            _VERB,
            f"`git {action}` is refused while the protected branch {branch} is checked out. Right: first "
            '["git", "checkout", "-b", "feature/api"]; Mk8Vocab BranchNames lists the names.',
        )


def _identity(world: World, git: str) -> dict[str, str]:
    """Who commits, where the repository's own configuration does not say it."""
    said = _run(world, git, ["git", "config", "--get-regexp", r"^user\.(name|email)$"]).stdout
    known = {line.partition(" ")[0].removeprefix("user.") for line in said.splitlines()}
    missing = IDENTITY.keys() - known
    return {f"GIT_{who}_{what.upper()}": IDENTITY[what] for who in ("AUTHOR", "COMMITTER") for what in missing}


# The process.


@dataclass(frozen=True, slots=True)
class _Ended:
    code: int
    """Negative is the signal that ended it."""
    stdout: str
    stderr: str


class _Tail:
    """The end of a stream, of any length, within twice its limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()

    def add(self, chunk: bytes) -> None:
        self._kept += chunk
        if len(self._kept) > 2 * self._limit + _CHUNK:
            del self._kept[: len(self._kept) - self._limit]

    def text(self) -> str:
        kept = bytes(self._kept[max(0, len(self._kept) - self._limit) :])
        if len(kept) < len(self._kept):
            kept = kept[:_LONGEST].lstrip(_CONTINUED) + kept[_LONGEST:]  # without the rest of a character that was cut
        return kept.decode("utf-8", "replace")


def _run(world: World, path: str, arguments: Sequence[str], more: Mapping[str, str] | None = None) -> _Ended:
    strangers = _descendants(_processes(), os.getpid())
    try:
        process = subprocess.Popen(  # noqa: S603 - an argument vector that check.py has let through
            list(arguments),
            executable=path,
            cwd=world.cwd,
            env={**of_process(world.environment), **GIT_VARIABLES, **(more or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        text = f"{arguments[0]} cannot be started: {reason}"
        raise StepFailure(text) from None
    stdout, stderr = _Tail(world.output_bytes), _Tail(max(0, world.error_bytes - _ROOM))
    try:
        try:
            ended = _read(process, stdout, stderr, world.deadline)
        finally:
            _end_tree(process, strangers)
    except BaseException:
        _end_tree(process, strangers)  # the alarm can have rung in the line above as well
        raise
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    if not ended:
        text = _with(f"{arguments[0]} did not end in its time and was killed", stderr.text())
        raise TimedOut(text, output=stdout.text())
    return _Ended(process.returncode, stdout.text(), stderr.text())


def _read(process: subprocess.Popen[bytes], stdout: _Tail, stderr: _Tail, deadline: float) -> bool:
    """Read until the process has ended and its output too, or soon after. Whether that was before the deadline."""
    ended, until, pause = False, deadline, _SOON
    with selectors.DefaultSelector() as selector:
        for stream, kept in ((process.stdout, stdout), (process.stderr, stderr)):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, kept)
        while True:
            if not ended and _has_ended(process):
                ended, until = True, min(deadline, time.monotonic() + LINGER_SECONDS)
            left = until - time.monotonic()
            if left <= 0:
                return ended
            if not selector.get_map():
                if ended:
                    return True
                time.sleep(min(pause, left))  # it closed its output and goes on
                pause = min(2 * pause, _LOOK_SECONDS)
                continue
            for key, _ in selector.select(min(_LOOK_SECONDS, left)):
                chunk = os.read(key.fd, _CHUNK)
                if chunk:
                    key.data.add(chunk)
                else:
                    selector.unregister(key.fileobj)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Without reaping it: as long as its number is taken, no other process can be killed in its place."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def adopt_orphans() -> None:
    """From now on, a process whose parent has ended becomes our child, and cannot get out of our sight."""
    with contextlib.suppress(ImportError, OSError, AttributeError):  # then pid 1 gets them, at the end of the script
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_tree(process: subprocess.Popen[bytes], strangers: set[int]) -> None:
    """Kill the session, and every descendant of ours that was not there before the process was."""
    ours = os.getpid()
    until = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < until:
        seen = _processes()  # before parents are killed, and their children nobody's
        family = _descendants(seen, ours, strangers)
        if process.returncode is None:
            _kill(os.killpg, process.pid)
        for pid in family:
            _kill(os.kill, pid)
            if seen[pid].parent == ours and pid != process.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        family |= {pid for pid, one in seen.items() if one.group == process.pid}
        if process.poll() is not None and all(seen[pid].ended for pid in family):
            return
        time.sleep(_SOON)


def _kill(kill: Callable[[int, int], None], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(number, signal.SIGKILL)


class _Process(NamedTuple):
    parent: int
    group: int
    ended: bool
    """And only waits to be reaped."""


def _descendants(seen: Mapping[int, _Process], root: int, without: AbstractSet[int] = frozenset()) -> set[int]:
    """Not those in `without`, nor theirs."""
    family: set[int] = set()
    more = {root}
    while more:
        more = {pid for pid, one in seen.items() if one.parent in more and pid not in without} - family
        family |= more
    return family


def _processes() -> dict[int, _Process]:
    """Every process that is to be seen."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - every ProcRun
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    line = file.read()
                state, parent, group = line[line.rindex(b")") + 1 :].split()[:3]  # the name before may be anything
                found[int(name)] = _Process(int(parent), int(group), state in _ENDED)
    return found


def _with(text: str, stderr: str) -> str:
    said = stderr.strip()
    return f"{text}: {said}" if said else text


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
