"""
Everything this package raises on purpose.

    ProviderError
    ├── CallError              the caller's mistake; nothing was judged, nothing ran
    ├── Refused                somebody said no; nothing was created
    │   ├── PolicyRefused      a rule said no
    │   └── ApprovalRefused    an approver said no, or the approval was for another plan
    │       └── ApprovalAborted    and wants everything stopped that led to the question
    ├── SandboxError           our side failed
    │   ├── EngineUnavailable  the engine cannot be reached, or did not answer in time
    │   ├── ImageMissing       the image is not on the engine (a run never pulls)
    │   ├── PlanRejected       the engine would not apply the plan in full; never retried with less
    │   ├── SandboxLost        the container went away without our doing
    │   └── DisposeFailed      the container may still exist; the message has its name
    └── ConfigError            settings, or a part of the installation that is missing

A command that fails is an outcome, never one of these. These are never shown to a caller as a command's result.
"""

from collections.abc import Mapping
from typing import Any


class ProviderError(Exception):
    """Root of the tree."""

    receipt: Mapping[str, Any] | None = None
    """How far the run came, where there was one."""


class CallError(ProviderError):
    """The request cannot be run as it stands; the message says what, where and what would be right."""


class Refused(ProviderError):
    """Somebody said no before anything was created."""


class PolicyRefused(Refused):
    """A rule of the policy said no."""


class ApprovalRefused(Refused):
    """The approver said no, or said yes to something else."""


class ApprovalAborted(ApprovalRefused):
    """The approver said no, and wants everything stopped that led to the question."""


class SandboxError(ProviderError):
    """The provider's side failed."""


class EngineUnavailable(SandboxError):
    """The engine cannot be reached, or did not answer in time."""


class ImageMissing(SandboxError):
    """The image is not on the engine."""


class PlanRejected(SandboxError):
    """The engine refused the plan, or applied less than was planned."""


class SandboxLost(SandboxError):
    """The container, or the connection to it, went away without our doing."""


class DisposeFailed(SandboxError):
    """A container could not be removed."""


class ConfigError(ProviderError):
    """The settings, or the installation itself, are not usable."""
