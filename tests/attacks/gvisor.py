"""
Where gVisor's runtime answers an attack in another way than the kernel does, and what is left of the promise there.

The laws of `range.py`, that no canary is reached and nothing of the host changed, are asked of all of these as well.
"""

from __future__ import annotations

NOT_HELD: dict[str, str] = {
    "A7": "none can be entered, but that pid 1 has one, by a number of gVisor's own, can be read",
    "A8": "a command can open pid 1's descriptors: it reads what was sent to itself; no ending it writes is believed",
    "B14a": "its memory is closed, its descriptors are not (A8)",
    "B14b": "its memory is closed, its descriptors are not (A8)",
    "C5": "the sandbox ends as a whole with its child, and is told as out of memory",
    "C6": "its tmpfs knows no limit of inodes; they count as memory, and that is limited",
    "C24": "the time that is told is gVisor's own count, too high; the quota itself is attested on the host's cgroup",
}
"""Tried, and not so; a promise that comes to hold there fails, to be struck off."""

_NO_NETWORK = "an open network is refused there"
NOT_TRIED: dict[str, str] = {
    "A12": "gVisor has none of these files, or one of its own that tells nothing of the host",
    "A22": "its /proc tells less; what counts is asked by pid 1 and by tests/sandbox/test_gvisor.py",
    "B6a": "no call ends a process there: other doors answer EPERM (B18)",
    "C1": "in the time that this attack has, it does not fork often enough; test_gvisor.py gives it time",
    "C20": "its inotify instances are no instances of the host's, so none can be used up",
    "D5": "a FIFO stays within gVisor and never is on the host",
    "D7": "a socket's name stays within gVisor and never is on the host",
    "G5a": _NO_NETWORK,
    "G6a": _NO_NETWORK,
    "G7a": _NO_NETWORK,
    "G8a": _NO_NETWORK,
    "G19a": _NO_NETWORK,
}
