"""
Group D: names that lead elsewhere. What a run leaves is hashed by descriptor, and nothing of the host is read, written
or hung up by it. D9 to D13, against somebody who keeps changing things, are `test_race.py`; D23 is `test_engine.py`.
"""

from __future__ import annotations

import hashlib
import json
import stat

from attacks.case import BOTH, Attack, Input, Seen, denied, ends, python, refuses, reports, says, shell, within

from provider.errors import CallError
from provider.model import Limits

OWN = hashlib.sha256(b"own\n").hexdigest()


def only_own(seen: Seen) -> None:
    """Whatever was hashed is what the command wrote itself."""
    assert {artifact.sha256 for artifact in seen.ran.artifacts} <= {OWN}
    assert seen.ran.artifacts or seen.ran.artifact_problems


def no_set_id(seen: Seen) -> None:
    assert seen.outcome is not None
    found = {path.name: oct(path.lstat().st_mode) for path in seen.workspace.rglob("*")}
    assert {name for name, mode in found.items() if int(mode, 8) & 0o6000} == set()


def last_content(seen: Seen) -> None:
    """The digest is of what is in the file now: nobody wrote to it any more when it was taken."""
    (artifact,) = seen.ran.artifacts
    content = (seen.workspace / "shared").read_bytes()
    assert artifact.sha256 == hashlib.sha256(content).hexdigest()
    assert content[:8] != b"\0" * 8, "the writer never wrote"
    assert seen.ran.background_pids


def mode_is_kept(seen: Seen) -> None:
    assert seen.ran.exit_code == 0
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in seen.workspace.iterdir()} == {"closed": 0}
    found = [artifact.sha256 for artifact in seen.ran.artifacts] + list(seen.problems.values())
    assert found in ([OWN], ["unreadable"])  # root may read it; whoever may not says so


def encoded(seen: Seen) -> None:
    """As JSON, which is how it leaves the process, a manifest has no control character, and each name is itself."""
    text = json.dumps(seen.ran.receipt["artifacts"])
    assert not [character for character in text if not " " <= character <= "~"]
    assert len({artifact.path for artifact in seen.ran.artifacts}) == len(seen.ran.artifacts) == 7


def _no_path_through(seen: Seen) -> None:
    assert set(seen.problems.values()) == {"symlink", "missing"}, seen.problems
    assert seen.problems["out/secret"] == seen.problems["in/out/secret"] == "symlink"
    assert seen.ran.artifacts == ()


def _problem(seen: Seen, path: str, problem: str) -> None:
    assert seen.problems == {path: problem}


def _no_breach(seen: Seen) -> None:
    assert "BREACH" not in seen.said


ATTACKS = (
    Attack(
        id="D1",
        title="A link to a file of the host is told as a link and never read.",
        input=shell("ln -s /etc/shadow a; ln -s @SECRET@ b; ln -s @TENANT@/notes c; echo own > d"),
        artifacts=("a", "b", "c", "d", "*"),
        canaries=("secret", "tenant"),
        judge=(reports(a="symlink", b="symlink", c="symlink"), only_own),
    ),
    Attack(
        id="D2",
        title="So is a link that stays in the workspace.",
        input=shell("echo own > file; ln -s file near; ln -s ../beside/secret far; ln -s gone nowhere"),
        artifacts=("near", "far", "nowhere", "file"),
        canaries=("secret",),
        judge=(reports(near="symlink", far="symlink", nowhere="symlink"), only_own),
    ),
    Attack(
        id="D3",
        title="A linked directory ends every path that leads through it.",
        input=shell("ln -s @BESIDE@ out; ln -s / root; mkdir in; ln -s @BESIDE@ in/out"),
        artifacts=("out/secret", "root@SECRET@", "in/out/secret", "**/secret", "in/*/secret"),
        canaries=("secret",),
        judge=(_no_path_through, only_own),
    ),
    Attack(
        id="D4",
        title="Links into /proc, which name what the reader has open, are links.",
        input=shell("ln -s /proc/self/fd/0 a; ln -s /proc/self/mem b; ln -s /proc/self/environ c; ln -s /dev/stdin d"),
        artifacts=("a", "b", "c", "d"),
        canaries=("environment",),
        judge=(reports(a="symlink", b="symlink", c="symlink", d="symlink"),),
    ),
    Attack(
        id="D5",
        title="A pipe is never opened, so nobody waits for its other end.",
        input=shell("mkfifo a; mkdir d; mkfifo d/b; echo own > c"),
        artifacts=("a", "**"),
        judge=(reports(a="fifo"), only_own, within(8)),
    ),
    Attack(
        id="D5a",
        title="A lease on a file, which makes an opener wait for 45 seconds, does not hold the collection up.",
        input=python("""
import fcntl, signal, time
file = os.open("leased", os.O_RDWR | os.O_CREAT, 0o644)
os.write(file, b"own\\n")
if os.fork() == 0:
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    attempt("lease", fcntl.fcntl, file, 1024, fcntl.F_WRLCK)
    time.sleep(15)
    os._exit(0)
os.close(file)
time.sleep(0.5)
"""),
        artifacts=("leased",),
        wishes={"background": "keep", "lease": 2.0},
        judge=(says("^lease\t"), only_own, within(6)),
    ),
    Attack(
        id="D6",
        title="A device cannot be made, and a link to one is a link.",
        input=shell("mknod a c 1 5; mknod b b 254 0; ln -s /dev/zero c; ln -s /dev/tty d; echo tried"),
        artifacts=("a", "b", "c", "d"),
        users=BOTH,
        judge=(reports(a="missing", b="missing", c="symlink", d="symlink"), says("^tried$"), within(8)),
    ),
    Attack(
        id="D7",
        title="A socket that a command leaves is told as one and never connected to.",
        input=python("""
import socket
server = socket.socket(socket.AF_UNIX)
server.bind("left.sock")
print("bound")
"""),
        tier="unix",
        artifacts=("left.sock",),
        judge=(says("^bound$"), lambda seen: _problem(seen, "left.sock", "socket")),
    ),
    Attack(
        id="D8",
        title="No file from outside the workspace can be hard-linked into it.",
        input=python("""
for name, path in {"image": "/etc/passwd", "init": "/.sandbox-init", "inside": "/.sandbox-inside/__init__.py",
                   "proc": "/proc/self/environ"}.items():
    attempt(name, os.link, path, f"/workspace/{name}")
descriptor = os.open("/etc/passwd", os.O_RDONLY)
attempt("by descriptor", os.link, f"/proc/self/fd/{descriptor}", "/workspace/x", follow_symlinks=True)
attempt("rename", os.rename, "/etc/hostname", "/workspace/y")
"""),
        users=BOTH,
        judge=(refuses("image", "init", "inside", "proc", "by descriptor", "rename"),),
    ),
    Attack(
        id="D14",
        title="What is hashed after the end is not changed under it by a writer left behind.",
        input=python("""
import mmap
with open("shared", "wb") as file:
    file.truncate(65536)
if os.fork() == 0:
    os.setsid()
    with open("shared", "r+b") as file:
        memory = mmap.mmap(file.fileno(), 65536)
        number = 1
        while True:
            memory[:8] = number.to_bytes(8, "little")
            number += 1
import time
time.sleep(0.2)
"""),
        artifacts=("shared",),
        judge=(last_content,),
    ),
    Attack(
        id="D15",
        title="A file larger than is hashed, with nothing in it, costs no time.",
        input=shell("truncate -s 4398046511104 huge; stat -c %s huge; echo own > real"),
        artifacts=("huge", "real"),
        limits=Limits(file_bytes=2**44),
        judge=(says(r"^4398046511104$"), reports(huge="too_large"), only_own, within(8)),
    ),
    Attack(
        id="D16",
        title="A file that nobody may read stays so: the provider changes no mode.",
        input=shell("echo own > closed; chmod 000 closed"),
        artifacts=("closed",),
        judge=(mode_is_kept,),
    ),
    Attack(
        id="D17",
        title="No file can be made immutable or append-only, which its owner could not undo.",
        input=python("""
import fcntl, struct
file = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
attempt("immutable", fcntl.ioctl, file, 0x40086602, struct.pack("l", 0x10))
attempt("append only", fcntl.ioctl, file, 0x40086602, struct.pack("l", 0x20))
"""),
        users=BOTH,
        judge=(refuses("immutable", "append only"),),
    ),
    Attack(
        id="D18",
        title="Extended attributes, as many as fit, change nothing about a digest, and none gives rights.",
        input=python("""
with open("f", "w") as file:
    file.write("own\\n")
try:
    for at in range(100_000):
        os.setxattr("f", f"user.{at}", b"x" * 100)
except OSError as error:
    print("full", errno.errorcode[error.errno])
attempt("capability", os.setxattr, "f", "security.capability", b"\\1\\0\\0\\2" + b"\\xff" * 16)
attempt("trusted", os.setxattr, "f", "trusted.x", b"x")
"""),
        artifacts=("f",),
        users=BOTH,
        judge=(says("^full "), refuses("capability", "trusted"), only_own),
    ),
    Attack(
        id="D19",
        title="No set-id file can be left in the workspace, by uid 0 either.",
        input=shell(
            "echo own > f; for m in u+s g+s 4755 2755 6755; do chmod $m f && echo BREACH; done;"
            " cp /bin/busybox b; chmod 4755 b && echo BREACH; install -m 4755 f g; mkdir -m 2755 d; echo tried"
        ),
        users=BOTH,
        judge=(says("^tried$"), no_set_id, _no_breach),
    ),
    Attack(
        id="D20",
        title="Names that are options, lines, escape codes or turned round are only names.",
        input=python(r"""
for name in ("-rf", "--", "a\nb", "\x1b]0;owned\x07", "\u202egnp.exe", "$(touch x)", "; touch x"):
    open(name, "w").write("own\n")
os.unlink("attack.py")
"""),
        artifacts=("*",),
        judge=(ends(exit_code=0), encoded, only_own),
    ),
    Attack(
        id="D20a",
        title="A pattern that leads out of the workspace is refused before anything runs.",
        input=shell("true"),
        artifacts=("../beside/secret",),
        canaries=("secret",),
        judge=(denied(CallError, r"artifacts\[0\].*\.\."),),
    ),
    Attack(
        id="D20b",
        title="So is an absolute one.",
        input=shell("true"),
        artifacts=("@SECRET@",),
        canaries=("secret",),
        judge=(denied(CallError, "outside the workspace"),),
    ),
    *(
        Attack(
            id=f"D24{letter}",
            title=f"{what} is no workspace.",
            input=shell("touch taken"),
            wishes={"workspace": path},
            judge=(denied(CallError, pattern),),
        )
        for letter, what, path, pattern in (
            ("", "The root of the host", "/", "system directory"),
            ("a", "The folder of all homes", "/home", "system directory"),
            ("b", "A home", "~", "home folder|system directory"),
            ("c", "The engine's own folder", "/var/lib/docker", "engine|must be an existing directory"),
            ("d", "A folder of the kernel's", "/proc/self", "system directory|link"),
            ("e", "A folder that holds homes", "/root/..", "system directory|home folder"),
            ("f", "A link", "@WORKSPACE@/link", "symbolic link"),
        )
    ),
    Attack(
        id="D8a",
        title="What a run leaves as links is not written through by the runs that come after it.",
        input=Input(
            argv="ln -s @SECRET@ out.json; ln -sfn @BESIDE@ dir; ln -s @TENANT@/notes .git; echo x > out.json;"
            " echo x > dir/secret; echo tried"
        ),
        artifacts=("**",),
        canaries=("secret", "tenant"),
        users=BOTH,
        judge=(says("^tried$"), only_own),
    ),
)
