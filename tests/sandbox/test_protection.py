"""Protected names, against commands that want to write them all the same."""

import os
import subprocess

import pytest

from provider import Provider
from provider.engine import docker as engine
from provider.errors import CallError, PlanRejected

pytestmark = pytest.mark.docker

MINIMAL = "sandbox-provider/minimal"
DEFAULT = "sandbox-provider/default"


def own(path):
    """Give it to the workspace's owner, as all that a person has there is."""
    for one in (path, *path.rglob("*")):
        os.chown(one, 1000, 1000, follow_symlinks=False)


@pytest.fixture
def repository(workspace):
    """A repository with a hook, and an ordinary file beside it."""
    (workspace / ".git/hooks").mkdir(parents=True)
    (workspace / ".git/config").write_text("[core]\n")
    (workspace / ".git/hooks/pre-commit").write_text("good\n")
    (workspace / ".envrc").write_text("good\n")
    (workspace / "file").write_text("x")
    own(workspace)
    return workspace


def state(folder):
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
    }


EXCHANGE = 'ctypes.CDLL(None).renameat2(-100, b"evil", -100, b".git", 2)'
ATTACKS = {
    "write a hook": "echo evil > .git/hooks/post-checkout",
    "change a hook": "echo evil >> .git/hooks/pre-commit",
    "change a mode": "chmod 777 .git/hooks/pre-commit",
    "change a time": "touch .git/config",
    "remove": "rm -rf .git",
    "rename": "mv .git old; mkdir -p .git/hooks; echo evil > .git/hooks/post-checkout",
    "rename over it": "mkdir -p evil/hooks; echo evil > evil/hooks/pre-commit; rm -rf .git/*; mv -T evil .git",
    "exchange": f"mkdir evil; python3 -c 'import ctypes; {EXCHANGE}'",
    "rename what is in it": "mv .git/hooks hooks; mkdir hooks2; mv hooks2 .git/hooks",
    "a link over it": "ln -sfn evil .git; ln -sfnT /tmp .git",
    "a second name for a file": "ln .git/hooks/pre-commit second && echo evil > second",
    "a second name for the protected file": "ln .envrc second && echo evil > second",
    "write the protected file": "echo evil > .envrc",
    "replace the protected file": "echo evil > new; mv -f new .envrc; cp -f file .envrc; rm -f .envrc",
    "unmount": "mount -o remount,rw .git; umount -l .git; unshare -rm umount .git; echo evil > .git/config",
    "by another way": "echo evil > /proc/self/cwd/.git/config; echo evil > /workspace/../workspace/.git/config",
    "by a descriptor": "exec 3<.git/config; echo evil > /proc/self/fd/3",
    "move the workspace": "mv /workspace /tmp/w; mv /workspace /workspace2",
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_nothing_changes_a_protected_name(repository, attack):
    """Whatever is tried, what is protected is afterwards what it was, and others can be written."""
    before = state(repository / ".git"), (repository / ".envrc").read_text(), (repository / ".git").stat().st_ino
    async with Provider(repository, image=DEFAULT, protect=[".git", ".envrc"]) as provider:
        outcome = await provider.run(f"{ATTACKS[attack]}; echo ok > written")
    after = state(repository / ".git"), (repository / ".envrc").read_text(), (repository / ".git").stat().st_ino
    assert after == before
    assert (repository / "written").read_text() == "ok\n"
    assert outcome.control_changes == ()


async def test_gvisor_holds_it_too(repository, gvisor):
    """There its own kernel keeps the mount, and pid 1 tells of it."""
    before = state(repository / ".git")
    attacks = "; ".join(ATTACKS[name] for name in ("change a hook", "rename", "a link over it", "remove"))
    async with Provider(repository, image=MINIMAL, runtime=gvisor, protect=[".git"]) as provider:
        outcome = await provider.run(f"{attacks}; echo ok > written")
    assert state(repository / ".git") == before
    assert (repository / "written").read_text() == "ok\n"
    assert outcome.container.runtime == gvisor


async def test_it_can_be_read(repository):
    """Protected is not hidden."""
    async with Provider(repository, image=MINIMAL, protect=[".git"]) as provider:
        outcome = await provider.run("cat .git/hooks/pre-commit; echo x > file")
    assert outcome.succeeded
    assert outcome.stdout == b"good\n"


@pytest.mark.parametrize(
    "attack",
    ["mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit", "rmdir .git; mkdir .git", "mv .git x; ln -s x .git"],
)
async def test_a_name_that_is_not_there_cannot_be_made(workspace, attack):
    """Its place is held while the provider lives, and free again afterwards."""
    async with Provider(workspace, image=MINIMAL, protect=[".git"]) as provider:
        outcome = await provider.run(f"{attack}; echo evil > .git; ls -A .git | wc -l")
        assert outcome.stdout.split()[-1] == b"0"
        assert list((workspace / ".git").iterdir()) == []
    assert not os.path.lexists(workspace / ".git")


async def test_a_place_that_two_providers_hold_stays_held(workspace):
    """The one that made it and closes first takes no mount from under the other's command."""
    async with Provider(workspace, image=MINIMAL, protect=[".git"]) as second:
        async with Provider(workspace, image=MINIMAL, protect=[".git"]) as first:
            await first.run("true")
            running = await second.spawn(
                "read line; mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit; ls -A .git"
            )
        await running.write(b"\n")
        outcome = await running.wait()
    assert outcome.stdout == b""
    assert list((workspace / ".git").iterdir()) == []


async def test_git_takes_a_placeholder_for_nothing(workspace):
    """A held place does not make a folder a repository, nor break git in it."""
    async with Provider(workspace, image=DEFAULT, protect=[".git"]) as provider:
        outcome = await provider.run("git status; git init; echo done")
    assert b"not a git repository" in outcome.stderr
    assert outcome.stdout.endswith(b"done\n")


async def test_a_link_is_refused(repository):
    """The known hole: a mount on what a link leads to leaves the link itself to be replaced."""
    (repository / ".git").rename(repository / "real")
    (repository / ".git").symlink_to("real")
    async with Provider(repository, image=MINIMAL, protect=[".git"]) as provider:
        with pytest.raises(CallError, match="symbolic link"):
            await provider.run("true")


async def test_a_name_that_becomes_a_link_before_the_start_is_rejected(repository, tmp_path, monkeypatch):
    """Swapped after it was looked at, the engine would mount a folder of the host: pid 1 and the kernel tell."""
    (tmp_path / "host").mkdir()
    (tmp_path / "host/secret").write_text("s")
    real = engine.DockerEngine._start

    async def swap(self, sandbox):
        (repository / ".git").rename(repository / "moved")
        (repository / ".git").symlink_to(tmp_path / "host")
        await real(self, sandbox)

    monkeypatch.setattr(engine.DockerEngine, "_start", swap)
    async with Provider(repository, image=MINIMAL, protect=[".git"]) as provider:
        with pytest.raises(PlanRejected):
            await provider.run("cat .git/secret")


async def test_a_mount_that_is_left_out_or_can_be_written_is_rejected(repository, monkeypatch):
    """An engine that applied the plan without it is found out, also when it reports what it was told."""
    real = engine.container_request

    def weaker(box, **options):
        request = real(box, **options)
        for mount in request["HostConfig"]["Mounts"]:
            if mount["Target"] == "/workspace/.git":
                del mount["ReadOnly"], mount["BindOptions"]["NonRecursive"]
        return request

    monkeypatch.setattr(engine, "container_request", weaker)
    async with Provider(repository, image=MINIMAL, protect=[".git"]) as provider:
        with pytest.raises(PlanRejected, match=r"\.git of the workspace (is rw|can be written)"):
            await provider.run("true")


async def test_a_spare_is_not_used_when_the_name_is_another(repository):
    """A repository made anew on the host is another box: the waiting container covers the old one."""
    async with Provider(repository, image=MINIMAL, protect=[".git"]) as provider:
        await provider.prewarm(1)
        (repository / ".git").rename(repository / "old")
        (repository / ".git").mkdir()
        os.chown(repository / ".git", 1000, 1000)
        outcome = await provider.run("echo evil > .git/config || echo held")
    assert outcome.stdout == b"held\n"
    assert list((repository / ".git").iterdir()) == []


async def test_the_command_line_protects(repository):
    """`--protect`, more than once."""
    words = ["sandbox", "run", "--image", MINIMAL, "-w", str(repository), "--protect", ".git", "--protect", ".envrc"]
    words += ["-c", "echo evil > .git/config; echo evil > .envrc; echo evil > file"]
    subprocess.run([f".venv/bin/{words[0]}", *words[1:]], check=False, capture_output=True, timeout=60)  # noqa: ASYNC221
    assert (repository / ".git/config").read_text() == "[core]\n"
    assert (repository / ".envrc").read_text() == "good\n"
    assert (repository / "file").read_text() == "evil\n"


async def test_control_files_of_a_real_run_are_told(repository):
    """Without protection, what was left for the host's programs is in the outcome."""
    script = "echo evil > .git/hooks/post-checkout; git config -f .git/config core.fsmonitor ./evil"
    script += "; mkdir .vscode; echo > .vscode/tasks.json"
    async with Provider(repository, image=DEFAULT) as provider:
        outcome = await provider.run(script)
    assert [(change.path, change.change) for change in outcome.control_changes] == [
        (".git/config", "changed"),
        (".git/hooks/post-checkout", "created"),
        (".vscode/tasks.json", "created"),
    ]
