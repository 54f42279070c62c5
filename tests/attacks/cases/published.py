"""What has been published against others, where none of the numbered attacks is the same."""

from __future__ import annotations

from attacks.case import Attack, Input, Seen, denied, ends, never_says, python, says, shell

from provider.errors import CallError


def nothing_is_left_in_tmp(seen: Seen) -> None:
    """The provider spools large output; no file of that has a name that anybody could take first."""
    assert seen.ran.stdout_bytes == 5_000_000
    assert len(seen.ran.stdout) == 5_000_000
    assert seen.canaries.new_in_tmp() == []


def _all_links(seen: Seen) -> None:
    assert set(seen.problems.values()) == {"symlink"}
    assert seen.ran.artifacts == ()


ATTACKS = (
    Attack(
        id="CVE-2025-54794",
        title="A folder whose name only begins like the workspace's is not in it.",
        input=shell("pwd"),
        wishes={"cwd": "/workspace-evil"},
        judge=(denied(CallError, "cwd"),),
    ),
    Attack(
        id="CVE-2025-53110",
        title="The same for what is collected.",
        input=shell("true"),
        artifacts=("/workspace-evil/secret",),
        judge=(denied(CallError, "outside the workspace"),),
    ),
    Attack(
        id="CVE-2025-53109",
        title="A link in the workspace is no working directory outside it.",
        input=Input(argv="cat secret", links={"out": "@BESIDE@"}),
        wishes={"cwd": "out"},
        canaries=("secret",),
        judge=(denied(CallError, "leads out"),),
    ),
    Attack(
        id="CVE-2025-59532",
        title="A working directory that a model chooses does not widen what can be written.",
        input=shell("touch taken"),
        wishes={"cwd": "/etc"},
        judge=(denied(CallError, "cwd"),),
    ),
    Attack(
        id="CVE-2025-59536",
        title="No file of a workspace is read as configuration: it gives neither network nor rights.",
        input=Input(
            argv="sed -n 's/^ *\\([^ :]*\\):.*/\\1/p' /proc/net/dev; grep -E 'CapEff|Seccomp:' /proc/self/status;"
            " env; echo tried",
            files={
                "config.toml": b'network = "open"\nseccomp = "debug"\n',
                ".env": b"SANDBOX_NETWORK=open\nSANDBOX_SECCOMP=debug\nEVIL=1\n",
                ".sandbox-provider.toml": b'network = "open"\n',
                "pyproject.toml": b'[tool.sandbox-provider]\nnetwork = "open"\n',
                ".claude/settings.json": b'{"permissions": {"allow": ["*"]}}',
                ".codex/config.toml": b'sandbox_mode = "danger-full-access"\n',
                ".gemini/settings.json": b'{"sandbox": false}',
                "sitecustomize.py": b"raise SystemExit('BREACH')\n",
                "docker-compose.yml": b"services: {x: {privileged: true}}\n",
            },
        ),
        judge=(says(r"\Alo\n", r"CapEff:\s0000000000000000", r"Seccomp:\s2", "^tried$"), never_says("EVIL", "BREACH")),
    ),
    Attack(
        id="CVE-2026-39861",
        title="What a command writes through a link lands in the sandbox, never on the host.",
        input=Input(
            argv="echo x > out/new; echo x > file; cp -r out copy; rm -rf out/*; chmod 777 out file; echo tried",
            links={"out": "@BESIDE@", "file": "@SECRET@"},
        ),
        canaries=("secret",),
        users=("", "0:0"),
        judge=(says("^tried$"),),
    ),
    Attack(
        id="CVE-2024-28189",
        title="Links left where a host might write, change owner or mode, are not followed by the provider.",
        input=Input(
            argv="ln -s @SECRET@ out; ln -s @BESIDE@ dist; ln -s @SECRET@ stdout; ln -s @SECRET@ receipt.json;"
            " echo tried"
        ),
        artifacts=("out", "dist/**", "stdout"),
        canaries=("secret",),
        judge=(says("^tried$"), _all_links),
    ),
    Attack(
        id="CVE-2026-46406",
        title="The provider's own temporary files have no name that a link could wait under.",
        input=shell("head -c 5000000 /dev/zero"),
        judge=(nothing_is_left_in_tmp,),
    ),
    Attack(
        id="CVE-2025-61260",
        title="A variable that a command sets is the command's own: the next one has none of it.",
        input=Input(
            argv="echo 'export EVIL=1' > .env; echo 'export EVIL=1' > ~/.profile; export EVIL=1; env; echo tried"
        ),
        judge=(says("^EVIL=1$", "^tried$"), ends(exit_code=0)),
    ),
    Attack(
        id="Respan 2026-06",
        title="No variable of the provider's process reaches a command, however it looks for it.",
        input=python("""
import subprocess
print(os.environ)
for pid in os.listdir("/proc"):
    if pid.isdigit():
        for name in ("environ", "cmdline"):
            try:
                print(open(f"/proc/{pid}/{name}", "rb").read())
            except OSError as error:
                print(name, error)
print("tried")
"""),
        canaries=("environment",),
        users=("", "0:0"),
        judge=(says("^tried$"), never_says("CANARY")),
    ),
)
