"""What can be wrong around a script, on the host, by the contract's categories. What is wrong in it: inside/mk8."""

from __future__ import annotations

from provider.inside.mk8.errors import Mk8Error


class SandboxNotFound(Mk8Error):
    category = "SandboxNotFound"
    retried = False

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(
            f"mk8.shell sandbox '{sandbox_id[:80]}' is not registered; an administrator does that with "
            "`sandbox mk8 register`"
        )


class SignatureError(Mk8Error):
    """The signed environment is missing, or is not what was signed."""

    category = "Signature"
    begins = "mk8.shell signature error: "
    retried = False


class ContainerError(Mk8Error):
    """The sandbox is not what it has to be, or went away."""

    category = "Container"
    begins = "mk8.shell container error: "
    retried = False
