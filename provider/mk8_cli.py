"""`sandbox mk8 …`: sandboxes and jobs of mk8.shell, for the people who run this machine. No agent has any of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from provider.dialects.mk8 import Mk8
from provider.dialects.mk8.jobs import Job
from provider.dialects.mk8.protocol import render_result
from provider.dialects.mk8.registry import Registered, Registry
from provider.dialects.mk8.table import container_id, load_table
from provider.errors import CallError, ConfigError
from provider.inside.mk8.errors import Mk8Error
from provider.provider import Provider
from provider.settings import load_settings

app = typer.Typer(help="Sandboxes and jobs of mk8.shell.", no_args_is_help=True, add_completion=False)

Config = Annotated[Path | None, typer.Option(help="TOML file with settings.")]
Variables = Annotated[list[str] | None, typer.Option("-e", "--env", metavar="K=V", help="Of the signed environment.")]
AsResult = Annotated[bool, typer.Option("--result", help="Only the [TOOL_RESULT] line that the model gets.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="1 to 64 letters and digits.")]


@app.command()
def register(name: Id, root: Path, env: Variables = None, config: Config = None) -> None:
    """Make an empty folder a sandbox, with a signed environment."""
    with _said():
        _show(_registry(config).register(name, root, _pairs(env)))


@app.command("list")
def list_(config: Config = None) -> None:
    """All sandboxes."""
    with _said():
        for found in _registry(config).list():
            _show(found)


@app.command()
def get(name: Id, config: Config = None) -> None:
    """One sandbox, with its signed environment, verified."""
    with _said():
        registry = _registry(config)
        _show(registry.get(name), env=registry.read_env(name))


@app.command()
def update(name: Id, env: Variables = None, config: Config = None) -> None:
    """Replace the environment, and sign it."""
    with _said():
        _show(_registry(config).update(name, _pairs(env)))


@app.command()
def resign(name: Id, config: Config = None) -> None:
    """Sign the environment again, after its file was edited by hand."""
    with _said():
        _show(_registry(config).resign(name))


@app.command("env")
def env_(name: Id, config: Config = None) -> None:
    """Where the file is that can be edited; sign it again afterwards."""
    with _said():
        registry = _registry(config)
        typer.echo(registry.env_path(registry.get(name).id))


@app.command()
def unregister(
    name: Id,
    *,
    delete: Annotated[bool, typer.Option("--delete-files", help="Its folder, too.")] = False,
    config: Config = None,
) -> None:
    """Forget a sandbox."""
    with _said():
        _show(_registry(config).unregister(name, delete_files=delete))


@app.command()
def jobs(
    *,
    waiting: Annotated[bool, typer.Option("--waiting", help="Those that await approval.")] = False,
    config: Config = None,
) -> None:
    """The latest jobs."""
    with _said():
        for job in asyncio.run(_with(config, _list)):
            if not waiting or job.status.name == "AWAITING_APPROVAL":
                typer.echo(
                    f"{job.id}  {job.status.word:<16}  {job.call.action}  {(job.call.payload_text or '')[:80]!r}"
                )


@app.command()
def job(job_id: str, *, result: AsResult = False, config: Config = None) -> None:
    """One job, with its log."""
    with _said():
        _show_job(asyncio.run(_with(config, lambda mk8: _found(mk8, job_id))), result=result)


@app.command()
def approve(job_id: str, *, result: AsResult = False, config: Config = None) -> None:
    """Say yes to a job, which then runs here."""
    with _said():
        _show_job(asyncio.run(_with(config, lambda mk8: mk8.approve(job_id))), result=result)


@app.command()
def cancel(job_id: str, *, result: AsResult = False, config: Config = None) -> None:
    """Say no to a job, or end it."""

    async def said(mk8: Mk8) -> Job:
        return mk8.cancel(job_id)

    with _said():
        _show_job(asyncio.run(_with(config, said)), result=result)


async def _list(mk8: Mk8) -> tuple[Job, ...]:
    return mk8.foreman.jobs.list()


async def _found(mk8: Mk8, job_id: str) -> Job:
    return mk8.foreman.jobs.find(job_id)


async def _with(config: Path | None, ask: Any) -> Any:
    settings = load_settings(config).model_copy(update={"spares": 0})
    async with Provider(settings=settings) as provider:  # each job has its own workspace
        mk8 = provider.dialect("execute_mk8_shell")
        assert isinstance(mk8, Mk8)
        return await ask(mk8)


def _registry(config: Path | None) -> Registry:
    return Registry(load_table(load_settings(config).tools).home)


def _pairs(given: list[str] | None) -> dict[str, str]:
    for pair in given or ():
        if "=" not in pair:
            message = f"-e {pair}: must be NAME=value"
            raise CallError(message)
    return dict(pair.split("=", 1) for pair in given or ())


def _show(found: Registered, **more: object) -> None:
    about = {"id": found.id, "root": str(found.root), "resourceId": container_id(found.id)}
    typer.echo(json.dumps({**about, "registeredAt": found.registered_at.isoformat(), **more}))


def _show_job(found: Job, *, result: bool) -> None:
    typer.echo(render_result(found.answer()) if result else json.dumps(found.record(), indent=2))


@contextlib.contextmanager
def _said() -> Iterator[None]:
    """One line and exit status 1 for whatever is not right."""
    try:
        yield
    except (Mk8Error, CallError, ConfigError, LookupError, OSError) as error:
        typer.echo(f"sandbox: {error}", err=True)
        raise typer.Exit(1) from error
