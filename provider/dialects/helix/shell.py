"""
`Shell`: the contract for Python users. `Shell(provider, allowed_commands=["ls"]).run("ls -la", onStdout=show)`.

The allowlist and the limits of variables are checked here whoever calls, so a tool of one's own that uses a `Shell` can
no more than the injected one. Callbacks, sync or async, are awaited one at a time. What they raise is in the result and
ends nothing. When the signal is set, the command is ended, no callback is called any more, and what arrives from then
on is not in the result. When time is over everything in the sandbox is ended; the result has all that was written.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, ValidationError
from pydantic.alias_generators import to_camel

from provider.dialects.contract import Host
from provider.dialects.helix.allowlist import admit
from provider.dialects.helix.config import LONGEST_MS, ShellConfig, read_config
from provider.dialects.helix.environment import check_environment
from provider.dialects.helix.result import KILLED, RunResult, exit_code, note
from provider.errors import CallError
from provider.model import Outcome
from provider.spawned import Spawned

_MOST_FAULTS = 10

Milliseconds = Annotated[StrictInt | StrictFloat, Field(gt=0, le=LONGEST_MS)]


@runtime_checkable
class Signal(Protocol):
    """Says once, for good, that a run is to be aborted. An asyncio.Event is one."""

    def is_set(self) -> bool: ...

    async def wait(self) -> Any: ...


def _awaitable(signal: Signal) -> Signal:
    if not inspect.iscoroutinefunction(signal.wait):  # that of a threading.Event would hold up the event loop
        message = "must be like an asyncio.Event, with an async wait()"
        raise ValueError(message)
    return signal


class RunOptions(BaseModel):
    """Names as in the contract, `timeoutMs`, or as in Python, `timeout_ms`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, arbitrary_types_allowed=True
    )

    cwd: StrictStr = "."
    env: dict[StrictStr, StrictStr] = Field(default_factory=dict)
    signal: Annotated[Signal, AfterValidator(_awaitable)] | None = None
    timeout_ms: Milliseconds | None = None
    on_stdout: Callable[[bytes], Any] | None = None
    on_stderr: Callable[[bytes], Any] | None = None


class Shell:
    """The shell of one workspace."""

    def __init__(
        self, provider: Host, *, workspace: str | Path | None = None, session: str = "", **config: Any
    ) -> None:
        """
        Take the provider, and the contract's configuration as keyword arguments, see `ShellConfig`.

        Raises:
            ConfigError: the configuration does not fit.
        """
        self.config = read_config(config, where="Shell")
        self._provider = provider
        self._place = {"workspace": workspace, "session": session}

    async def run(self, cmd: str, **options: Any) -> RunResult:
        """
        Run a command to its end; `options` are those of `RunOptions`: cwd, env, signal, timeoutMs, onStdout, onStderr.

        Raises:
            CallError, PolicyRefused: it may not run, or the call is wrong; nothing was created.
            ProviderError: whatever else `Provider.run` raises.
        """
        wanted = read_options(options)
        outcome, heard = await perform(self._provider, self.config, cmd, wanted, **self._place)
        if outcome is None:
            return RunResult(
                stdout=b"", stderr=b"", exit_code=KILLED, duration_ms=0, note="aborted before it was started"
            )
        return RunResult(
            stdout=outcome.stdout[: heard.get("stdout")],
            stderr=outcome.stderr[: heard.get("stderr")],
            exit_code=exit_code(outcome),
            duration_ms=outcome.duration_ms,
            callback_errors=outcome.callback_errors,
            note=note(outcome),
        )

    async def spawn(
        self, cmd: str, *, stdin: bool = True, tty: tuple[int, int] | None = None, **options: Any
    ) -> Spawned:
        """
        Begin a command and talk to it: stdin, output, signals, and with `tty=(rows, columns)` a terminal.

        What may run is what may run with `run`; options are cwd, env and timeoutMs.

        Raises:
            As `run` does.
        """
        wanted = read_options(options)
        if wanted.on_stdout or wanted.on_stderr or wanted.signal:
            message = "spawn takes no onStdout, onStderr or signal; read output() and call cancel() of what it returns"
            raise CallError(message)
        argv, wishes = admitted(self.config, cmd, wanted)
        return await self._provider.spawn(argv, stdin=stdin, tty=tty, **wishes, **self._place)


def read_options(options: Mapping[str, Any]) -> RunOptions:
    """Raises CallError naming the option."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return RunOptions.model_validate(given)
    except ValidationError as error:
        message = f"run: {'; '.join(describe(error))}"
        raise CallError(message) from error


def describe(error: ValidationError) -> list[str]:
    """What is wrong, field by field, without what was given: it may be large, or secret."""
    faults = error.errors(include_input=False, include_url=False)[:_MOST_FAULTS]
    return [f"{'.'.join(str(part)[:80] for part in item['loc']) or 'it'}: {item['msg']}" for item in faults]


def admitted(config: ShellConfig, cmd: object, options: RunOptions) -> tuple[tuple[str, ...], dict[str, Any]]:
    """
    Give argv and wishes for the provider.

    Raises:
        CallError, PolicyRefused: it may not run.
    """
    check_environment(options.env)
    argv = admit(cmd, config)
    milliseconds = options.timeout_ms or config.max_duration_ms
    timeout = None if milliseconds is None else milliseconds / 1000
    return argv, {"cwd": options.cwd or ".", "env": options.env, "timeout": timeout}


async def perform(
    host: Host, config: ShellConfig, cmd: str, options: RunOptions, **place: Any
) -> tuple[Outcome | None, dict[str, int]]:
    """
    Check once more, and run.

    Gives the outcome, None when the signal was set before, and how much of each stream counts when it was set since.

    Raises:
        CallError, PolicyRefused, and what `Provider.run` raises.
    """
    argv, wishes = admitted(config, cmd, options)
    signal = options.signal
    if signal is None:
        callbacks = {"on_stdout": options.on_stdout, "on_stderr": options.on_stderr}
        return await host.run(argv, **wishes, **callbacks, **place), {}
    if signal.is_set():
        return None, {}
    heard = {"stdout": 0, "stderr": 0}
    run_id = uuid.uuid4().hex
    async with _watching(signal, host, run_id):
        outcome = await host.run(
            argv,
            run_id=run_id,
            on_stdout=_until(signal, options.on_stdout, heard, "stdout"),
            on_stderr=_until(signal, options.on_stderr, heard, "stderr"),
            **wishes,
            **place,
        )
    return outcome, heard if signal.is_set() else {}


@contextlib.asynccontextmanager
async def _watching(signal: Signal, host: Host, run_id: str) -> AsyncIterator[None]:
    async def abort() -> None:
        await signal.wait()
        await host.cancel(run_id)

    watch = asyncio.ensure_future(abort())
    try:
        yield
    finally:
        watch.cancel()


def _until(
    signal: Signal, callback: Callable[[bytes], Any] | None, heard: dict[str, int], stream: str
) -> Callable[[bytes], Any]:
    """Count and pass on what arrives before the signal. Looking and calling are one step, so nothing slips between."""

    def take(data: bytes) -> bool:
        if signal.is_set():
            return False
        heard[stream] += len(data)
        return callback is not None

    if callback is None or inspect.iscoroutinefunction(callback):

        async def hear(data: bytes) -> None:
            if take(data) and callback:
                await callback(data)

        return hear

    @functools.wraps(callback)  # a sync one stays one: the provider runs those in a thread
    def hear_in_thread(data: bytes) -> Any:
        return callback(data) if take(data) else None

    return hear_in_thread
