"""Runs untrusted commands in single-use, locked-down Docker containers. Begin reading at `run.py`."""

TYPE_CHECKING = False  # typing takes three of the command line's milliseconds
if TYPE_CHECKING:
    from typing import Any

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
    from provider.provider import Provider, run_sync
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

_HOMES = {
    "model": ("Artifact", "ArtifactProblem", "Limits", "Outcome", "State"),
    "provider": ("Provider", "run_sync"),
    "settings": ("Settings",),
}


def __getattr__(name: str) -> "Any":
    """Import on first use: the command line needs nothing of it when a daemon is up."""
    if name not in __all__:
        message = f"module 'provider' has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    home = next((home for home, names in _HOMES.items() if name in names), "errors")
    return getattr(import_module(f"provider.{home}"), name)
