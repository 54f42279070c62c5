"""
The `sandbox` command line. The only file that prints or exits.

Exit status of `run` and `shell`: the command's own; 124 timed out, 125 the provider failed or the request
cannot be run, 126 refused or not executable, 127 not found, 128+n ended by signal n.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import signal
import sys
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from provider.errors import CallError, ProviderError, Refused

if TYPE_CHECKING:
    from provider.doctor import Finding
    from provider.model import Outcome
    from provider.run import Provider

TIMED_OUT, PROVIDER_FAILED, REFUSED, NOT_FOUND, SIGNALED = 124, 125, 126, 127, 128
SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")

app = typer.Typer(
    help="Run untrusted commands in single-use, locked-down containers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Workspace = Annotated[Path, typer.Option("-w", "--workspace", help="Directory that is mounted at /workspace.")]
Config = Annotated[Path | None, typer.Option(help="TOML file with settings; never looked for in a workspace.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    argv: Annotated[list[str] | None, typer.Argument(metavar="-- ARGV...", help="Program and arguments.")] = None,
    *,
    text: Annotated[str | None, typer.Option("-c", help="Shell text, given to the image's `sh -c`.")] = None,
    workspace: Workspace = Path(),
    cwd: Annotated[str, typer.Option(help="Working directory, relative to the workspace.")] = ".",
    env: Annotated[list[str] | None, typer.Option("-e", "--env", metavar="K=V", help="Environment variable.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds until everything is ended.")] = None,
    artifact: Annotated[list[str] | None, typer.Option(help="Path or ** pattern to hash after the run.")] = None,
    network: Annotated[str | None, typer.Option(help="none or open.")] = None,
    image: Annotated[str | None, typer.Option(help="Any image on the engine.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory and tmpfs together, such as 512m.")] = None,
    cpus: Annotated[float | None, typer.Option(help="Processors.")] = None,
    pids: Annotated[int | None, typer.Option(help="Processes and threads.")] = None,
    runtime: Annotated[str | None, typer.Option(help="A runtime of the engine, such as runsc.")] = None,
    seccomp: Annotated[str | None, typer.Option(help="default, unix or debug.")] = None,
    user: Annotated[str | None, typer.Option(help="uid:gid; the workspace's owner unless given.")] = None,
    as_json: Json = False,
    receipt: Annotated[Path | None, typer.Option(help="Write the receipt of the run to this file.")] = None,
    interactive: Annotated[bool, typer.Option("-i", help="Pass stdin on.")] = False,
    terminal: Annotated[bool, typer.Option("-t", help="Run on a terminal; needs one here too.")] = False,
    config: Config = None,
) -> None:
    """Run one command."""
    with _errors_as_exit_status(as_json=as_json):
        if (text is None) == (not argv):
            message = "give either -c 'SHELL TEXT' or -- ARGV..."
            raise CallError(message)
        options = {
            "cwd": cwd,
            "env": _environment(env or []),
            "timeout": timeout,
            "artifacts": artifact or [],
            "network": network,
            "image": image,
            "runtime": runtime,
            "seccomp": seccomp,
            "user": user,
            "receipt": receipt,
        }
        limits = {"memory": memory, "cpus": cpus, "pids": pids}
        command = text if text is not None else tuple(argv or ())
        outcome, received = asyncio.run(
            _run(
                workspace, config, limits, command, options, quiet=as_json, stdin=interactive or terminal, tty=terminal
            )
        )
        if as_json:
            _print_json(_as_json(outcome))
        else:
            _report(outcome)
        raise typer.Exit(_exit_status(outcome, received))


@app.command()
def shell(
    workspace: Workspace = Path(), image: str | None = None, network: str | None = None, config: Config = None
) -> None:
    """Open an interactive shell in a sandbox."""
    with _errors_as_exit_status(as_json=False):
        options = {"image": image, "network": network}
        outcome, received = asyncio.run(_run(workspace, config, {}, SHELL, options, quiet=False, stdin=True, tty=True))
        raise typer.Exit(_exit_status(outcome, received))


@app.command()
def doctor(*, as_json: Json = False, config: Config = None) -> None:
    """Tell what this engine is, and prove by containers what it enforces."""
    with _errors_as_exit_status(as_json=as_json):
        findings = asyncio.run(_examine(config))
        if as_json:
            _print_json({"findings": [asdict(finding) for finding in findings]})
        else:
            _print_findings(findings)
        raise typer.Exit(int(any(finding.verdict == "fail" for finding in findings)))


async def _examine(config: Path | None) -> list[Finding]:
    from provider.doctor import examine
    from provider.settings import load_settings

    return [finding async for finding in examine(load_settings(config))]


def _print_findings(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "what", "found", box=None)
    marks = {"pass": "[green]pass[/]", "fail": "[bold red]FAIL[/]", "info": "[dim]info[/]"}
    for finding in findings:
        table.add_row(marks[finding.verdict], finding.name, finding.detail)
    Console().print(table)


@app.command()
def prune(config: Config = None) -> None:
    """Remove what dead owners left on the engine, and nothing else."""
    with _errors_as_exit_status(as_json=False):
        removed = asyncio.run(_prune(config))
        for container in removed:
            typer.echo(container)
        typer.echo(f"{len(removed)} removed", err=True)


async def _prune(config: Path | None) -> tuple[str, ...]:
    from provider.assets import load_assets
    from provider.engine.docker import DockerEngine
    from provider.settings import find_endpoint, load_settings

    engine = DockerEngine(find_endpoint(), load_assets(), timeout=load_settings(config).engine_timeout)
    try:
        return await engine.sweep()
    finally:
        await engine.close()


async def _run(
    workspace: Path,
    config: Path | None,
    limits: dict[str, Any],
    command: str | tuple[str, ...],
    options: dict[str, Any],
    *,
    quiet: bool,
    stdin: bool,
    tty: bool,
) -> tuple[Outcome, int | None]:
    """Run it on our own streams, terminal and signals. The second value is the signal that ended it, if one did."""
    from provider import terminal
    from provider.run import Provider
    from provider.settings import load_settings, with_limits

    settings = with_limits(load_settings(config), {name: value for name, value in limits.items() if value is not None})
    settings = settings.model_copy(update={"spares": 0})  # one command a process; a spare would serve nobody
    run_id = uuid.uuid4().hex
    received: list[int] = []
    async with Provider(workspace, settings=settings) as provider, contextlib.AsyncExitStack() as stack:
        _cancel_on_signals(provider, run_id, received)
        if tty:
            if not sys.stdin.isatty():
                message = "-t needs a terminal on stdin"
                raise CallError(message)
            options["tty"] = terminal.size(0)
            terminal.follow_size(0, lambda rows, columns: provider.resize(run_id, rows, columns))
            stack.enter_context(terminal.raw(0))
        if not quiet:
            options["on_stdout"] = terminal.Writer(1).write
            options["on_stderr"] = terminal.Writer(2).write
        outcome = await provider.run(command, run_id=run_id, stdin=terminal.read(0) if stdin else None, **options)
    return outcome, received[0] if received else None


def _cancel_on_signals(provider: Provider, run_id: str, received: list[int]) -> None:
    loop = asyncio.get_running_loop()
    tasks = set()  # the loop itself keeps none

    def stop(number: int) -> None:
        received.append(number)
        tasks.add(loop.create_task(provider.cancel(run_id)))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)


def _environment(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            message = f"-e {pair}: must be NAME=value; variables of this machine are never passed on by name alone"
            raise CallError(message)
    return dict(pair.split("=", 1) for pair in pairs)


def _exit_status(outcome: Outcome, received: int | None) -> int:
    if received is not None and outcome.status == "canceled":
        return SIGNALED + received
    if outcome.timed_out:
        return TIMED_OUT
    if outcome.error is not None:
        return NOT_FOUND if outcome.ending.error_number == errno.ENOENT else REFUSED
    if outcome.signal is not None:
        return SIGNALED + outcome.signal
    return outcome.exit_code or 0


def _as_json(outcome: Outcome) -> dict[str, Any]:
    container = outcome.container and {
        name: getattr(outcome.container, name)
        for name in ("id", "image", "image_id", "runtime", "network", "user", "warm", "attested")
    }
    return {
        "run_id": outcome.run_id,
        "status": outcome.status,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        **_as_text("stdout", outcome.stdout),
        "stdout_bytes": outcome.stdout_bytes,
        "stdout_truncated": outcome.stdout_truncated,
        **_as_text("stderr", outcome.stderr),
        "stderr_bytes": outcome.stderr_bytes,
        "stderr_truncated": outcome.stderr_truncated,
        "timed_out": outcome.timed_out,
        "oom_killed": outcome.oom_killed,
        "output_limited": outcome.output_limited,
        "duration_ms": outcome.duration_ms,
        "pid": outcome.pid,
        "background_pids": list(outcome.background_pids),
        "error": outcome.error,
        "artifacts": [asdict(artifact) for artifact in outcome.artifacts],
        "artifact_problems": [asdict(problem) for problem in outcome.artifact_problems],
        "container": container,
        "usage": outcome.usage and asdict(outcome.usage),
        "notes": list(outcome.notes),
    }


def _as_text(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: data.decode(errors="replace"), f"{name}_base64": base64.b64encode(data).decode()}


def _print_json(value: dict[str, Any]) -> None:
    # Bytes that are not UTF-8 may be in names of artifacts; they were escaped there, and are never in text.
    sys.stdout.buffer.write(json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.flush()


def _report(outcome: Outcome) -> None:
    """Tell on stderr what the exit status alone does not."""
    if outcome.error:
        _complain(outcome.error)
    if outcome.timed_out:
        _complain("timed out; everything in the sandbox was ended")
    if outcome.oom_killed:
        _complain("the kernel killed a process for want of memory; --memory gives more")
    if outcome.output_limited:
        _complain("ended for writing too much output")
    if outcome.background_pids:
        _complain(f"left behind and ended: pids {', '.join(map(str, outcome.background_pids))}")
    for name in ("stdout", "stderr"):
        if getattr(outcome, f"{name}_truncated"):
            _complain(f"{name}: kept less than the {getattr(outcome, f'{name}_bytes'):,} bytes written")
    for artifact in outcome.artifacts:
        _complain(f"artifact {artifact.path}: sha256 {artifact.sha256}, {artifact.bytes} bytes")
    for problem in outcome.artifact_problems:
        _complain(f"artifact {problem.path}: {problem.problem}: {problem.detail}")


def _complain(text: str) -> None:
    typer.echo(f"sandbox: {text}", err=True)


@contextlib.contextmanager
def _errors_as_exit_status(*, as_json: bool) -> Iterator[None]:
    """The one place where an error becomes text and an exit status."""
    try:
        yield
    except ProviderError as error:
        if as_json:
            _print_json({"provider_error": {"kind": type(error).__name__, "message": str(error)}})
        else:
            _complain(str(error))
        raise typer.Exit(REFUSED if isinstance(error, Refused) else PROVIDER_FAILED) from error


def main() -> NoReturn:
    app()
    raise AssertionError


if __name__ == "__main__":
    main()
