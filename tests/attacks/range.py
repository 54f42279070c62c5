"""Where attacks happen: how one is made against a provider, what is looked at, and the laws that hold for all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attacks.canaries import Canaries, Watch
from attacks.case import Attack, Runs, Seen
from attacks.host import facts, left_of
from attacks.names import IMAGES, OWNER

from provider.errors import ProviderError
from provider.model import Outcome

PATIENCE = 30.0
"""Seconds after its own deadline by which any run must be over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Somebody to attack, somebody beside, and the host."""

    provider: Runs
    neighbour: Runs
    canaries: Canaries
    watched: tuple[Path, ...]
    compiled: Callable[[Path], Path]
    folder: Path


async def attempt(attacked: Range, attack: Attack, user: str) -> Seen:
    canaries = attacked.canaries
    workspace = new_workspace(attacked, attack)
    places = canaries.places | {"WORKSPACE": str(workspace)}
    argv = attack.input.argv
    watch = canaries.listener()
    wishes: dict[str, Any] = {
        "workspace": workspace,
        "image": IMAGES[attack.input.image],
        "seccomp": attack.tier,
        "network": attack.network,
        "limits": attack.limits,
        "timeout": attack.timeout,
        "user": user or None,
        "artifacts": tuple(placed(path, places) for path in attack.artifacts),
        "on_event": watch,
        **{name: placed(value, places) if isinstance(value, str) else value for name, value in attack.wishes.items()},
    }
    if wishes["workspace"] == "~":
        wishes["workspace"] = Path.home()
    outcome: Outcome | None = None
    error: Exception | None = None
    calls = len(canaries.calls)
    before = facts(attacked.watched, begin=True)
    meanwhile = asyncio.ensure_future(others(attacked)) if attack.beside else None
    began = time.monotonic()
    try:
        words = placed(argv, places) if isinstance(argv, str) else [placed(word, places) for word in argv]
        outcome = await asyncio.wait_for(attacked.provider.run(words, **wishes), attack.timeout + PATIENCE)
    except ProviderError as problem:
        error = problem
    seconds = time.monotonic() - began
    after = facts(attacked.watched, begin=False)
    beside = ()
    if meanwhile:
        meanwhile.cancel()
        beside = await meanwhile
    if outcome and outcome.lease:
        await attacked.provider.lease(outcome.lease).stop()
    if outcome:
        await gone(outcome)
    seen = Seen(
        attack=attack,
        user=user,
        outcome=outcome,
        error=error,
        workspace=workspace,
        canaries=canaries,
        before=before,
        after=after,
        seconds=seconds,
        chunks=watch.chunks,
        beside=beside,
        broken=(),
    )
    return replace(seen, broken=tuple(laws(seen, watch, calls)))


def laws(seen: Seen, watch: Watch, calls: int) -> Iterator[str]:
    """What no attack may do, whatever else it was after. Yields what it did."""
    canaries = seen.canaries
    for where in canaries.in_outcome(seen.outcome, seen.error):
        yield f"a canary in {where}"
    for event in watch.found:
        yield f"a canary in an event, {event}"
    for path in canaries.in_tree(seen.workspace):
        yield f"a canary in the file {path}"
    for name in canaries.calls[calls:]:
        yield f"somebody on the host was called: {name}"
    for place in canaries.touched():
        yield f"changed: {place}"
    for (name, was), (_, now) in zip(seen.before.fixed, seen.after.fixed, strict=True):
        if was != now:
            yield f"changed: {name}, from {was!r} to {now!r}"
    if seen.outcome and seen.outcome.container and (left := left_of(seen.outcome.container.id)):
        yield f"processes are left: {left}"


async def gone(outcome: Outcome, seconds: float = 5.0) -> None:
    """Wait until no process of a container is left; the laws say so if it does not come to that."""
    until = time.monotonic() + seconds
    while outcome.container and left_of(outcome.container.id) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def others(attacked: Range) -> tuple[float, ...]:
    """How long each of a few requests took, one after the other, until this is cancelled."""
    taken: list[float] = []
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0.5)
        while len(taken) < 3:
            began = time.monotonic()
            outcome = await attacked.neighbour.run("echo served", image=IMAGES["minimal"])
            assert outcome.stdout == b"served\n"
            taken.append(time.monotonic() - began)
    return tuple(taken)


def placed(text: str, places: dict[str, str]) -> str:
    for name, place in places.items():
        text = text.replace(f"@{name}@", place)
    return text


def new_workspace(attacked: Range, attack: Attack) -> Path:
    """A folder for this attack alone, with what its input puts there."""
    workspace = Path(tempfile.mkdtemp(dir=attacked.folder, prefix=attack.id.replace(" ", "-") + "-"))
    places = attacked.canaries.places
    for name, content in attack.input.files.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(placed(content.decode("latin-1"), places).encode("latin-1"))
    for name, target in attack.input.links.items():
        (workspace / name).symlink_to(placed(target, places))
    if "link" in str(attack.wishes.get("workspace", "")):
        (workspace / "link").symlink_to(attacked.canaries.beside)
    if attack.input.source:
        shutil.copy(attacked.compiled(attack.input.source), workspace / "probe")
    if "socket in the workspace" in attack.canaries:
        attacked.canaries.serve_unix("socket", workspace / "host.sock")
    workspace.chmod(0o777)  # uid 0 has no capability to write where it may not
    if os.geteuid() == 0:
        for path in (workspace, *workspace.rglob("*")):
            os.chown(path, OWNER, OWNER, follow_symlinks=False)
    return workspace
