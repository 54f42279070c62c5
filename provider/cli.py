"""
The words of the `sandbox` command line: what can be asked for, and the smaller answers.

What `run` and `shell` ask for is a job. It goes to the context's object: performed here, or noted by the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from provider.errors import CallError, ProviderError, Refused
from provider.job import PROVIDER_FAILED, REFUSED, Job, RunJob, perform
from provider.terminal import OwnConsole
from provider.tooljob import Approve, ToolJob

if TYPE_CHECKING:
    from provider.doctor import Finding

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
    context: typer.Context,
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
    workspace_limit: Annotated[str | None, typer.Option(help="Bytes it may add to the workspace, such as 2g.")] = None,
    workspace_files: Annotated[int | None, typer.Option(help="Files and directories it may add there.")] = None,
    runtime: Annotated[str | None, typer.Option(help="A runtime of the engine, such as runsc.")] = None,
    seccomp: Annotated[str | None, typer.Option(help="default, unix or debug.")] = None,
    user: Annotated[str | None, typer.Option(help="uid:gid; the workspace's owner unless given.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Mount the workspace for reading only.")] = False,
    protect: Annotated[list[str] | None, typer.Option(help="Name in the workspace that can only be read.")] = None,
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
            "read_only": read_only,
            "protect": protect or [],
        }
        limits = {"memory": memory, "cpus": cpus, "pids": pids}
        limits |= {"workspace": workspace_limit, "workspace_files": workspace_files}
        job = RunJob(
            command=text if text is not None else tuple(argv or ()),
            workspace=workspace,
            config=config,
            limits={name: value for name, value in limits.items() if value is not None},
            options=options,
            receipt=receipt,
            as_json=as_json,
            stdin=interactive or terminal,
            tty=terminal,
        )
    context.obj(job)


@app.command()
def shell(
    context: typer.Context,
    workspace: Workspace = Path(),
    image: str | None = None,
    network: str | None = None,
    config: Config = None,
) -> None:
    """Open an interactive shell in a sandbox."""
    options = {"image": image, "network": network}
    context.obj(RunJob(command=SHELL, workspace=workspace, config=config, options=options, stdin=True, tty=True))


@app.command()
def tool(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Such as shell_cmd; `sandbox tools` lists them.")],
    *,
    workspace: Workspace = Path(),
    approve: Annotated[str, typer.Option(help="Who answers when a rule asks: ask (you), never, always.")] = "never",
    events: Annotated[Path | None, typer.Option(help="Append events to this file, as JSON lines.")] = None,
    session: Annotated[str, typer.Option(help="Whose call it is.")] = "",
    config: Config = None,
) -> None:
    """Answer a tool call: payload on stdin, reply on stdout, in the tool's own contract."""
    with _errors_as_exit_status(as_json=False):
        if approve not in get_args(Approve):
            message = f"--approve {approve}: must be one of {', '.join(get_args(Approve))}"
            raise CallError(message)
        wanted = cast("Approve", approve)
        job = ToolJob(tool=name, workspace=workspace, config=config, approve=wanted, events=events, session=session)
    context.obj(job)


@app.command()
def check(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Such as shell_cmd.")],
    *,
    workspace: Workspace = Path(),
    session: Annotated[str, typer.Option(help="Whose call it would be.")] = "",
    config: Config = None,
) -> None:
    """Tell what the rules say to a tool call, and why. No container."""
    context.obj(ToolJob(tool=name, workspace=workspace, config=config, session=session, check=True))


@app.command()
def tools(
    style: Annotated[str, typer.Option("--format", help="openai, anthropic or mcp.")] = "openai",
) -> None:
    """Print the schemas of every tool."""
    from provider.dialects import all_tools

    shapes = {"openai": "parameters", "anthropic": "input_schema", "mcp": "inputSchema"}
    with _errors_as_exit_status(as_json=False):
        if style not in shapes:
            message = f"--format {style}: must be one of {', '.join(shapes)}"
            raise CallError(message)
        listed: list[dict[str, object]] = [
            {"name": tool.name, "description": tool.description, shapes[style]: tool.parameters} for tool in all_tools()
        ]
        if style == "openai":
            listed = [{"type": "function", "function": tool} for tool in listed]
        typer.echo(json.dumps({"tools": listed} if style == "mcp" else listed, indent=2))


_REST = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


@app.command(context_settings=_REST, add_help_option=False)
def mk8(context: typer.Context) -> None:
    """Sandboxes and jobs of mk8.shell: register, list, get, update, resign, env, unregister, jobs, approve, cancel."""
    from provider import mk8_cli

    mk8_cli.app(context.args, prog_name="sandbox mk8")


@app.command()
def doctor(*, as_json: Json = False, config: Config = None) -> None:
    """Tell what this engine is, and prove by containers what it enforces."""
    with _errors_as_exit_status(as_json=as_json):
        findings = asyncio.run(_examine(config))
        if as_json:
            typer.echo(json.dumps({"findings": [asdict(finding) for finding in findings]}))
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
def up(
    *,
    foreground: Annotated[bool, typer.Option(help="Stay in the foreground, for a service manager.")] = False,
    idle: Annotated[float, typer.Option(help="Seconds without a request after which it ends by itself.")] = 900.0,
    config: Config = None,
) -> None:
    """Keep a provider running for this user, so that `run` and `shell` find containers waiting."""
    from provider import daemon

    with _errors_as_exit_status(as_json=False):
        if foreground:
            asyncio.run(daemon.serve(parse, config=config, idle=idle))
        else:
            typer.echo(daemon.start(config=config, idle=idle))


@app.command()
def down() -> None:
    """End it, and wait until its containers are gone."""
    from provider import daemon

    typer.echo("down" if daemon.stop() else "none was up")


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


def _environment(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            message = f"-e {pair}: must be NAME=value; variables of this machine are never passed on by name alone"
            raise CallError(message)
    return dict(pair.split("=", 1) for pair in pairs)


@contextlib.contextmanager
def _errors_as_exit_status(*, as_json: bool) -> Iterator[None]:
    """The one place where an error becomes text and an exit status."""
    try:
        yield
    except ProviderError as error:
        if as_json:
            typer.echo(json.dumps({"provider_error": {"kind": type(error).__name__, "message": str(error)}}))
        else:
            typer.echo(f"sandbox: {error}", err=True)
        raise typer.Exit(REFUSED if isinstance(error, Refused) else PROVIDER_FAILED) from error


def parse(words: list[str]) -> Job | None:
    """The job that a command line asks for; None for one that asks for something else, or is mistaken."""
    jobs: list[Job] = []
    nowhere = io.StringIO()
    with contextlib.suppress(Exception), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        app(words, standalone_mode=False, obj=jobs.append)
    return jobs[0] if jobs else None


def main_here() -> None:
    """Do what the command line asks for, in this process, and leave it with the exit status."""
    app(obj=_perform_and_leave)


def _perform_and_leave(job: Job) -> None:
    async def perform_here(folder: Path) -> int:
        return await perform(job, OwnConsole(), folder=folder)

    with _errors_as_exit_status(as_json=False):
        try:
            folder = Path.cwd()
        except OSError as error:
            message = "the current folder no longer exists; change to one that does"
            raise CallError(message) from error
    raise typer.Exit(asyncio.run(perform_here(folder)))
