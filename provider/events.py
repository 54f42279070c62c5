"""What observers of a run are told: frozen facts, one stream, in order."""

from __future__ import annotations

from dataclasses import dataclass

from provider.model import State, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    run_id: str
    session: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputArrived:
    stream: Stream
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """A step of the path of a request is done, or has failed."""

    run_id: str
    step: str
    seconds: float
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested:
    """An approver is about to be asked; a yes that the session has given before asks nobody."""

    run_id: str
    session: str
    plan_digest: str
    reasons: tuple[str, ...]


Event = StateChanged | OutputArrived | StepFinished | ApprovalRequested
