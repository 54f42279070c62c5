"""
A command as an approver sees it: the real characters, nothing hidden, nothing that two commands share.

Whatever is not plain printable ASCII is written as an escape, so that no control code moves the cursor, no letter looks
like another and no bidirectional mark turns a line around; runs of spaces are counted, for a screen may cut them; and
long arguments say how long they are. A backslash is doubled, so an escape is never the command's own text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from provider.model import Plan

_NAMED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_LONG = 200
_BLANKS = re.compile(r"  +|^ | $")  # one at an end would not be seen, and `ls ` is not `ls`


def show(text: str) -> str:
    """One text, on one line, unambiguously."""
    visible = "".join(_character(character) for character in text)
    return _BLANKS.sub(lambda run: f"\\x20{{{len(run[0])}}}", visible)


def _character(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if " " <= character <= "~":
        return character
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"  # a byte that is not UTF-8
    return f"\\u{{{ord(character):x}}}"


def show_plan(plan: Plan) -> str:
    """Everything of a plan that a person would want to know before saying yes."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    command, box = plan.exec, plan.box
    for at, argument in enumerate(command.argv):
        length = f"  ({len(argument):,} characters)" if len(argument) > _LONG else ""
        yield f"argv[{at}]  {show(argument)}{length}"
    mount = "a read-only mount" if box.read_only else "a mount"
    yield f"in       {show(command.cwd)}, {mount} of {show(str(box.workspace.path))}"
    if box.protected:
        yield f"but      only read: {', '.join(show(held.name) for held in box.protected)}"
    for name, value in command.env:
        yield f"env      {show(name)}={show(value)}"
    yield f"image    {show(box.image.name)} ({box.image.id[:19]})"
    runtime = box.runtime or "default"
    yield f"as       {box.uid}:{box.gid}, network {box.network}, seccomp {box.seccomp}, runtime {runtime}"
    deadline = "no deadline" if command.timeout is None else f"ended after {command.timeout:g} s"
    kept = "" if command.lease is None else f", what it leaves running kept for {command.lease:g} s"
    reused = ", in a container that the session uses again" if command.reuse == "scrub" else ""
    yield f"limits   {box.limits.memory_bytes // 2**20} MiB, {box.limits.cpus:g} processors, {deadline}{kept}{reused}"
    yield f"digest   {plan.digest}"
