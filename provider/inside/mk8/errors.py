"""What can be wrong with a script or a step, by the contract's categories."""

from __future__ import annotations


class Mk8Error(Exception):
    """Says what is wrong, where, and what would be right; goes to the agent as it is."""

    category = "StepFailure"
    begins = ""
    retried = True
    """Whether a step that failed so may be tried again."""

    def __init__(self, text: str, *, output: str | None = None, exit_code: int | None = None) -> None:
        super().__init__(f"{self.begins}{text}")
        self.output = output
        """What the step had given until then: a process that failed has mostly said why on its stdout."""
        self.exit_code = exit_code


class StepFailure(Mk8Error):
    """The step was right and did not work out."""


class AssertionFailed(StepFailure):
    """`Assert` and `Fail`: another attempt would say the same."""

    retried = False


class TimedOut(Mk8Error):
    category = "Timeout"


class InvalidArgument(Mk8Error):
    category = "InvalidArgument"
    retried = False


class CompileError(Mk8Error):
    """At compile time the script does not run; at run time, after substitution, the step fails."""

    category = "Compile"
    retried = False

    def __init__(self, verb: str, text: str) -> None:
        self.begins = f"mk8.shell compile error [{verb}]: "
        super().__init__(text)


class PathViolation(Mk8Error):
    category = "PathViolation"
    begins = "mk8.shell path violation: "
    retried = False


class UrlViolation(Mk8Error):
    category = "UrlViolation"
    begins = "mk8.shell URL violation: "
    retried = False


class Blacklisted(Mk8Error):
    category = "GigaBlacklist"
    retried = False

    def __init__(self, term: str) -> None:
        super().__init__(f"Gigablacklisted term not allowed: [{term}]")
