"""
Terms that no argument may contain, whatever the verb: the contract's "gigablacklist". A substring is enough, in any
case; spaces count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from .errors import Blacklisted

OWN_FILES: Final = ("mk8.shell.env", "mk8.shell.signed.env", "mk8.shell.base.env", "mk8.shell.key")
HARD_CODED: Final = (
    # what only a shell would read
    *("$(", "`", "&&", "||", ">>", "<<", "${", "; rm ", ";rm ", "| ", " |"),
    # destruction, on Unix and on Windows
    *("rm -rf /", "rm -rf /*", "rm -rf ~", "rm -rf .", "--no-preserve-root", "mkfs.", "dd if=/dev/"),
    *("wipefs", "shred ", "shred -"),
    *("format c:", "format d:", "rd /s /q", "rmdir /s /q", "del /s /q", "del /f /s /q", "cipher /w:"),
    *("diskpart", "bcdedit", "sfc /scannow", "dism "),
    # block devices
    *("/dev/sda", "/dev/sdb", "/dev/sdc", "/dev/nvme", "/dev/vda", "/dev/hda", "/dev/xvda", "/dev/loop"),
    *("/dev/dm-", "/dev/md", "/dev/mmcblk"),
    *(r"\\.\physicaldrive", r"\\.\harddiskvolume", r"\\.\globalroot"),
    # power, and killing everything
    *("shutdown -h", "shutdown -r", "shutdown /s", "shutdown /r", "shutdown /f", "poweroff", "halt", "reboot"),
    *("init 0", "init 6", "systemctl reboot", "systemctl poweroff"),
    *("kill -9 -1", "killall -9", "taskkill /f /im *", "pkill -9"),
    # the system's own files, and bombs
    *("/etc/shadow", "/etc/sudoers", "/etc/gshadow", "sam database", "system hive"),
    *(":(){ ", "%0|%0"),
    # databases
    *("drop database", "drop table", "truncate table", "drop schema", "drop all"),
    *("xp_cmdshell", "exec xp_", "sp_configure"),
    # registry, services, accounts
    *("reg delete", "reg add hklm", "reg add hkcu"),
    *("sc delete", "sc stop", "net stop", "net user ", "schtasks /delete"),
    *("visudo", "passwd ", "usermod ", "useradd ", "userdel ", "groupmod ", "chpasswd"),
)
_LEAST: Final = 2
"""Characters of a custom term; a single one would end most scripts."""


def effective(
    custom: Iterable[str] = (), *, without_hard_coded: bool = False, without_own_files: bool = False
) -> tuple[str, ...]:
    """All terms that hold, in lower case. The second switch does nothing without the first."""
    ours = () if without_hard_coded and without_own_files else OWN_FILES
    hard_coded = () if without_hard_coded else HARD_CODED
    added = (term.strip().lower() for term in custom)
    return tuple(dict.fromkeys((*ours, *hard_coded, *(term for term in added if len(term) >= _LEAST))))


def check(text: str, terms: Sequence[str], root: str = "") -> None:
    """
    Refuse a text with one of these in it. A term inside the root's own path does not count: a sandbox below
    /srv/asphalt would be dead otherwise.

    Raises:
        Blacklisted: the first term found.
    """
    lowered = text.lower()
    for term in terms:
        if term in lowered and not _only_in_root(term, text, lowered, root):
            raise Blacklisted(term)


def _only_in_root(term: str, text: str, lowered: str, root: str) -> bool:
    # Where lower case is longer (a dotted capital I), places in the two texts are not the same.
    if len(root) <= 1 or root not in text or len(text) != len(lowered):
        return False
    spans = [found.span() for found in re.finditer(re.escape(root) + r"(?![\w.-])", text)]
    # Overlapping occurrences count too, hence the look-ahead.
    places = (found.start() for found in re.finditer(f"(?={re.escape(term)})", lowered))
    return all(any(begin <= place and place + len(term) <= end for begin, end in spans) for place in places)
