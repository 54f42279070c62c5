"""Runs untrusted commands in single-use, locked-down Docker containers. Begin reading at `run.py`."""

from provider.errors import (
    ApprovalRefused,
    CallError,
    ConfigError,
    DisposeFailed,
    EngineUnavailable,
    ImageMissing,
    PlanRejected,
    PolicyRefused,
    ProviderError,
    Refused,
    SandboxError,
    SandboxLost,
)
from provider.model import Artifact, ArtifactProblem, Limits, Outcome, State
from provider.run import Provider, run_sync
from provider.settings import Settings

__all__ = [
    "ApprovalRefused",
    "Artifact",
    "ArtifactProblem",
    "CallError",
    "ConfigError",
    "DisposeFailed",
    "EngineUnavailable",
    "ImageMissing",
    "Limits",
    "Outcome",
    "PlanRejected",
    "PolicyRefused",
    "Provider",
    "ProviderError",
    "Refused",
    "SandboxError",
    "SandboxLost",
    "Settings",
    "State",
    "run_sync",
]
