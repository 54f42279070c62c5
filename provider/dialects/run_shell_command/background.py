"""
Processes that commands left running, listed, read and stopped: the other two tools of the contract.

A session sees its own and no other's. Process ids are counted by each sandbox for itself, so two commands may have left
the same number behind; then the lease tells them apart.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from provider.dialects.contract import Host, Rejected, Reply
from provider.dialects.run_shell_command.call import BAD_CALL
from provider.dialects.run_shell_command.output import shown
from provider.dialects.run_shell_command.table import Table
from provider.lease import Lease
from provider.model import Output, Process

MAX_REMEMBERED = 64
"""Leases of a session that are listed after their end."""
GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.05
NONE_FOUND = "No background processes found."


class Stop(BaseModel):
    """The payload of `stop_background_process`."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, use_attribute_docstrings=True)

    pid: int | None = None
    """One process, by its id."""
    lease: str | None = None
    """Everything that one command left running, by the id that `list_background_processes` shows."""

    @model_validator(mode="after")
    def _names_something(self) -> Stop:
        if self.pid is None and self.lease is None:
            message = "name a `pid`, or a `lease`, from list_background_processes"
            raise ValueError(message)
        return self


def parse_stop(payload: object) -> Stop:
    """Raises Rejected."""
    try:
        return Stop.model_validate(dict(payload) if isinstance(payload, Mapping) else payload)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'payload'}: {fault['msg']}" for fault in error.errors()
        )
        message = f"invalid input: {faults}"
        raise Rejected(message, kind=BAD_CALL) from error


class Leases:
    """What each session's commands have left running, also for a while after it ended."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._names: dict[str, list[str]] = {}

    def add(self, session: str, name: str) -> None:
        for other in list(self._names):  # a session that is over never asks again
            self.of(other)
        names = self._names.setdefault(session, [])
        names.append(name)
        del names[:-MAX_REMEMBERED]

    def of(self, session: str) -> tuple[Lease, ...]:
        """Those of a session, oldest first."""
        found = {name: lease for name in self._names.pop(session, ()) if (lease := self._host.lease(name))}
        if found:
            self._names[session] = list(found)
        return tuple(found.values())


async def list_processes(leases: Sequence[Lease], table: Table) -> Reply:
    entries = [await _entry(lease, table) for lease in leases]
    summary = "\n".join(line for entry in entries for line in _lines(entry)) or NONE_FOUND
    return Reply(content={"summary": summary, "processes": entries}, success=True)


async def _entry(lease: Lease, table: Table) -> dict[str, Any]:
    running = await lease.processes()
    ending = lease.ending
    return {
        "lease": lease.id,
        "command": _command(lease),
        "status": "EXITED" if lease.is_over else "RUNNING",
        "pids": [process.pid for process in running] or list(lease.pids),
        "processes": [{"pid": process.pid, "command": process.command} for process in running],
        "reason": ending.reason if ending else None,
        "secondsLeft": 0 if lease.is_over else round(lease.seconds_left, 1),
        **_stream("stdout", lease.stdout, table),
        **_stream("stderr", lease.stderr, table),
    }


def _stream(name: str, output: Output, table: Table) -> dict[str, Any]:
    what = shown(output.read(), total=output.total_bytes, characters=table.output_characters)
    found: dict[str, Any] = {name: what.text, f"{name}Bytes": output.total_bytes, f"{name}Omitted": what.omitted}
    return found | ({f"{name}Base64": what.base64} if what.base64 else {})


def _command(lease: Lease) -> str:
    """The caller's text, not what it is wrapped in."""
    return lease.command[-1]


def _lines(entry: Mapping[str, Any]) -> list[str]:
    return [f"- [PID {pid}] {entry['status']}: `{entry['command']}`" for pid in entry["pids"]]


async def stop_process(wanted: Stop, leases: Sequence[Lease]) -> Reply:
    """
    Stop one process, or all of a lease: TERM, and KILL for what is still there.

    Raises:
        Rejected: this session has no such process.
    """
    lease = await _find(wanted, leases)
    if wanted.pid is None:
        await lease.stop()
    else:
        await _end(lease, wanted.pid)
    left = await lease.processes()
    is_gone = not left if wanted.pid is None else not _has(left, wanted.pid)
    content = {
        "lease": lease.id,
        "stopped": is_gone,
        "processes": [{"pid": process.pid, "command": process.command} for process in left],
    }
    return Reply(content=content, success=is_gone)


async def _find(wanted: Stop, leases: Sequence[Lease]) -> Lease:
    name = wanted.lease if wanted.pid is None else wanted.pid
    found = [lease for lease in leases if wanted.lease in {None, lease.id} and not lease.is_over]
    if wanted.pid is not None:
        found = [lease for lease in found if _has(await lease.processes(), wanted.pid)]
    if not found:
        # One text for what is not there and for what is another session's.
        message = f"Access denied. Background process ID {name} not found in this session's history."
        raise Rejected(message, kind=BAD_CALL)
    if len(found) > 1:
        choices = ", ".join(f"{lease.id} (`{_command(lease)}`)" for lease in found)
        message = f"process id {name} exists in {len(found)} sandboxes; name one by `lease` as well: {choices}"
        raise Rejected(message, kind=BAD_CALL)
    return found[0]


async def _end(lease: Lease, pid: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        lease.signal(number, pid)
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                while _has(await lease.processes(), pid):  # noqa: ASYNC110 - pid 1 tells of no single end
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            continue
        return


def _has(processes: Sequence[Process], pid: int) -> bool:
    return any(process.pid == pid for process in processes)
