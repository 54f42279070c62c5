"""Attacks that need to see, or to stand in for, the engine itself."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from attacks.host import digests
from attacks.names import IMAGES, OWNER

import provider
import provider.engine.docker as docker_engine
from provider import PlanRejected, Settings, run_sync

pytestmark = pytest.mark.docker
SOURCES = sorted(Path(provider.__file__).parent.rglob("*.py"))
LIVING = ("exec_create", "exec_start", "exec_run", "get_archive", "put_archive", "/exec", "/archive")
HOSTILE = f"""
FROM {IMAGES["minimal"]}
COPY suid /suid
RUN chmod 6755 /suid && printf '#!/proc/self/exe\\n' > /evil && chmod 755 /evil
ENV LD_PRELOAD=/evil.so BASH_ENV=/evil EVIL=1
ENTRYPOINT ["/evil"]
CMD ["/proc/self/exe"]
USER 0
WORKDIR /proc/self/fd/7
HEALTHCHECK CMD /evil
VOLUME /data
"""


SUID = """
#include <stdio.h>
#include <unistd.h>
int main(void) { return printf("%d\\n%d\\n", (int)geteuid(), (int)getegid()) < 0; }
"""


def calls(path: Path) -> set[str]:
    """Names of methods and texts in a module, outside its docstrings."""
    tree = ast.parse(path.read_text())
    words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            words |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return {word for word in words if isinstance(word, str)}


@pytest.mark.attack("A18", "A19")
def test_no_call_reaches_into_a_living_container() -> None:
    """Neither exec nor archive: both would run as root on ground that the command has prepared."""
    found = {
        (str(path.relative_to(SOURCES[0].parent)), word)
        for path in SOURCES
        if "inside" not in path.parts and any(word in path.read_text() for word in LIVING)
        for word in calls(path)
        if word in LIVING or any(part in word for part in LIVING if part.startswith("/"))
    }
    assert found == set()


@pytest.fixture
def hostile_image(engine_client: docker.APIClient, tmp_path: Path, compiled: Callable[[Path], Path]) -> Iterator[str]:
    (tmp_path / "image").mkdir()
    (tmp_path / "suid.c").write_text(SUID)
    shutil.copy(compiled(tmp_path / "suid.c"), tmp_path / "image" / "suid")
    (tmp_path / "image" / "Dockerfile").write_text(HOSTILE)
    tag = f"sandbox-provider-test/attack-{os.getpid()}"
    said = list(engine_client.build(path=str(tmp_path / "image"), tag=tag, rm=True, forcerm=True, decode=True))
    assert not [line for line in said if "error" in line], said
    yield tag
    engine_client.remove_image(tag, force=True)


@pytest.mark.attack("A11a", "A21")
def test_a_hostile_image_has_no_say(
    hostile_image: str, workspace: Path, watched: tuple[Path, ...], runtime: str, no_container_is_left: None
) -> None:
    """Its entrypoint, user, directory and variables do not apply, and its set-id program gives nothing."""
    before = digests(watched)
    outcome = run_sync(
        "id -u; id -g; pwd; env; ls -l /suid; /suid; /evil; mount | grep /data; echo done",
        workspace,
        image=hostile_image,
        runtime=runtime,
        settings=Settings(spares=0),
    )
    lines = outcome.stdout.decode().splitlines()
    assert lines[:3] == [str(OWNER), str(OWNER), "/workspace"]
    assert lines[-1] == "done"
    assert "EVIL" not in outcome.stdout.decode() + outcome.stderr.decode()
    at = next(number for number, line in enumerate(lines) if line.endswith("/suid"))
    assert lines[at].startswith("-rwsr-sr-x"), "the image holds no set-id program after all"
    assert lines[at + 1 : at + 3] == [str(OWNER), str(OWNER)]
    assert "on /data type tmpfs" in outcome.stdout.decode()
    assert digests(watched) == before


@pytest.mark.attack("D23")
@pytest.mark.parametrize("moment", ["_create", "_start"])
def test_a_workspace_swapped_on_the_way_is_noticed(
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    runtime: str,
    no_container_is_left: None,
) -> None:
    """When its name leads elsewhere by the time that the engine mounts it, the command is not let go."""
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o777)
    victim = workspace / "victim"
    victim.mkdir()
    step = getattr(docker_engine.DockerEngine, moment)

    async def swapped(self: object, *args: object) -> None:
        victim.rename(workspace / "moved")
        victim.symlink_to(secret)
        await step(self, *args)

    monkeypatch.setattr(docker_engine.DockerEngine, moment, swapped)
    with pytest.raises(PlanRejected):
        run_sync("touch stolen", victim, image=IMAGES["minimal"], user="0:0", runtime=runtime)
    assert list(secret.iterdir()) == []
