"""Where the Codex contract is kept otherwise than by the original, with the reason; each is a promise of some test."""

from __future__ import annotations

DEVIATIONS = {
    "escalation": "there is no way to the host: wider permissions are a wider container with a name, and a question",
    "danger-full-access": "the same wide container; writing outside of the workspace fails there as anywhere",
    "denial": "told by pid 1 and the kernel, not by words of the output, which any program can print",
    "known-safe and escalated": "asked about like any other; the original ran it unsandboxed without a word",
    "git and cargo": "never known-safe: a repository's configuration and build scripts run programs",
    "./ls": "not known-safe: a program counts under its bare name or in a system folder",
    "mixed scripts": "an allowed segment does not carry along one that no rule speaks of",
    "wrappers": "rules that restrict also hold inside sudo, env, xargs, loops and substitutions",
    "rule files": "the one call form with literal arguments; a program in a rule file is refused with its line",
    "broken rule file": "stops every call: the rule that is missing could be the one that forbids",
    "environment": "nothing is inherited from the host; what there is to inherit is the operator's own mapping",
    "base environment": "PATH, HOME, LANG and TMPDIR are the provider's own and always there, also with inherit none",
    "time-out in freeform": "said in the text, as later versions do; the first version kept it to itself",
    "signals": "the output is kept and the exit code is 128+n; the original drops it for `execution error: Signal(n)`",
    "flood": "the first and last 4 MiB are kept and the rest is counted; the original keeps all or drops it",
    "other encodings": "bytes that are no UTF-8 are marked; the original guesses at a character set",
    "workdir": "contained in the workspace; the original joins and looks no further",
    "time limits": "the operator has a default and a maximum, which users of the original ask for",
    "patch": "all files or none; line endings, BOM, last newline and mode are kept; `compat` is upstream's",
    "patch outside": "refused and never asked about: nothing outside of the workspace exists",
    "patch under read-only and on-failure": "asked about at once: that it would be denied need not be tried",
    "links": "never followed by a patch, not even within the workspace",
    "turn_diff": "what patches have changed; what other commands change in the same files is told with the next patch",
    "approve and remember": "never offered for a prefix that would allow anything, nor for an escalated command",
    "PowerShell and cmd": "not there: the sandbox is Linux",
    "re-serialisation": "left to the caller, whose request it rewrites",
}


def test_every_deviation_has_a_reason():
    """A stranger can see why, in a sentence."""
    assert all(len(reason.split()) > 5 for reason in DEVIATIONS.values())
