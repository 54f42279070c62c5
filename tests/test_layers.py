"""How the package may be put together, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "provider"
MODULES = sorted(PACKAGE.rglob("*.py"))

# From the bottom. A module may import what stands below its own line, never beside or above; a folder is one module.
LAYERS = (
    {"errors", "gvisor", "inside", "screen"},
    {"client", "model"},
    {"events", "settings"},
    {"assets", "background", "canonical", "capture", "hashing", "worker", "workspace"},
    {"changes", "listeners", "protection", "quota"},
    {"plan", "shown"},
    {"approval"},
    {"policy", "questions", "engine", "artifacts", "receipt", "stream", "testing"},
    {"lease", "underway"},
    {"spawned"},
    {"dialects", "run"},
    {"calls"},
    {"provider"},
    {"__init__", "terminal", "doctor"},
    {"prompt"},
    {"tooljob"},
    {"job", "mk8_cli"},
    {"daemon"},
    {"cli"},
    {"__main__"},
)
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}
INSIDE = "inside"  # runs in the sandbox, as a program of its own

# Declarations, or used by every test; the docker tier, and the tests of what is built on them, cover the others.
WITHOUT_TEST = {"errors", "events", "grammar", "gvisor", "model", "script", "testing"}
WITHOUT_TEST |= {"calls", "docker", "provider", "__main__", "cli", "doctor", "underway", "worker"}
PROCESSES = {"system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp"}
LIVE_ENDPOINTS = ("exec_create", "exec_start", "get_archive", "put_archive", "/exec", "/archive")


def unit(path: Path) -> str:
    """A module by its own name, or by that of its folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level and unit(path) == INSIDE:
                continue  # a package there is found by its place, under another name than here
            assert node.level == 0, f"{path}: relative import"
            # `from provider import receipt` is about the module, not about the package.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def names(path: Path) -> Iterator[str]:
    """Yield dotted names that are used, such as `os.environ`, and plain ones, such as `print`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Name):
            yield node.id


def where(found: set[str], *, but: str | set[str]) -> set[str]:
    """Modules, other than `but`, that import or use any of these."""
    return {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if str(path.relative_to(PACKAGE)) not in ({but} if isinstance(but, str) else but)
        and unit(path) != INSIDE
        and any(
            name in found or any(name.startswith(f"{wanted}.") for wanted in found)
            for name in (*imports(path), *names(path))
        )
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path):
    """A module imports only what stands below it."""
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("provider.")} - {unit(path)}
    if unit(path) == INSIDE:
        assert not ours, "what runs in the sandbox has nothing but Python there"
        return
    assert unit(path) in RANKS, "give the new module its place in LAYERS"
    assert {name for name in ours if RANKS[name] >= RANKS[unit(path)]} == set()


def test_only_one_module_knows_docker():
    """The engine's client and the retries around it are one module's business."""
    assert where({"docker", "tenacity", "requests"}, but="engine/docker.py") == set()


def test_only_settings_read_the_environment():
    """Nothing but settings.py can be steered by a variable; the daemon's client asks for one place, and compares."""
    found = {"os.environ", "os.environb", "os.getenv", "environ", "getenv"}
    assert where(found, but={"settings.py", "client.py"}) == set()
    assert "os.environ" in set(names(PACKAGE / "settings.py"))


def test_only_the_command_line_prints_and_exits():
    """As a library it never writes to the caller's terminal nor ends the caller's process."""
    ends = {"print", "sys.exit", "SystemExit", "exit", "quit", "os._exit", "typer", "sys.stderr", "sys.stdout"}
    assert where(ends, but={"__main__.py", "cli.py", "client.py", "mk8_cli.py"}) == set()


def test_no_process_is_started_on_the_host():
    """The package runs commands in containers and nowhere else; it starts itself, as a daemon and to hash."""
    found = {"subprocess", "multiprocessing", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"}
    found |= {f"os.{name}" for name in (*PROCESSES, *(f"exec{form}" for form in ("v", "ve", "vp", "vpe", "l", "le")))}
    assert where(found, but={"daemon.py", "artifacts.py"}) == set()


def test_no_call_reaches_into_a_living_container():
    """Neither exec nor archive is used on the engine: both run as root on ground that the command has prepared."""
    source = {path: path.read_text() for path in MODULES if unit(path) != INSIDE}
    assert [(str(path), word) for path, text in source.items() for word in LIVE_ENDPOINTS if word in text] == []


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if path.read_text().strip() and unit(path) not in {"__init__", INSIDE, "dialects"}],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_every_module_has_its_test_file(path: Path):
    """A promise of provider/x.py is kept in tests/test_x.py."""
    name = path.parent.name if path.stem == "__init__" else path.stem
    assert name in WITHOUT_TEST or list((ROOT / "tests").rglob(f"test_{name}.py"))
