"""Whether what bash did for a text was among what the policy had before it. Used by both tiers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provider.model import Decision
from provider.policy.known import ELLIPSIS
from provider.policy.rules import Segment, parse_policy, segments
from provider.policy.syntax import read

EVERYTHING = parse_policy('default = "allow"')


def silently_allowable(text: str) -> bool:
    """What even the most generous of policies asks about is out of the question."""
    return EVERYTHING.judge_text(text).decision is Decision.ALLOW


def unjudged(text: str, commands: Iterable[Sequence[str]], files: Iterable[str]) -> list[str]:
    """What bash started or wrote that no segment, and no redirection, accounts for."""
    found = segments(text)
    targets = [one.target.literal for command in read(text).commands for one in command.redirections]
    programs = [f"runs {list(argv)}" for argv in commands if not any(_accounts(one, argv) for one in found)]
    written = [f"writes {name}" for name in files if name not in targets and None not in targets]
    return programs + written


def _accounts(segment: Segment, argv: Sequence[str]) -> bool:
    if not segment.argv:
        return False
    if not segment.program:  # only the shell knows: always asked about
        return True
    if segment.argv[0] != argv[0]:
        return False
    return any(word is None or ELLIPSIS in word for word in segment.argv) or list(segment.argv) == list(argv)
