"""What `provider.artifacts` promises, on real files."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import re
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from provider import artifacts as artifacts_module
from provider import hashing
from provider.artifacts import check_patterns, collect
from provider.errors import CallError, SandboxLost
from provider.model import MIB, Artifact, ArtifactProblem, Workspace

GIB = 1024 * MIB
SECRET = b"the host's own secret"
SECRET_SHA256 = hashlib.sha256(SECRET).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return a directory outside the workspace, with one file that must never be read."""
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


def workspace(root: Path) -> Workspace:
    info = root.stat()
    return Workspace(path=root, device=info.st_dev, inode=info.st_ino, uid=info.st_uid, gid=info.st_gid)


async def taken(
    root: Path, *patterns: str, max_file_bytes: int = GIB
) -> tuple[dict[str, Artifact], dict[str, ArtifactProblem]]:
    """Collect, and index both halves by path; a path that comes twice fails the test."""
    artifacts, problems = await collect(workspace(root), patterns, max_file_bytes=max_file_bytes)
    for half in (artifacts, problems):
        paths = [item.path for item in half]
        assert sorted(set(paths)) == paths
    return {item.path: item for item in artifacts}, {item.path: item for item in problems}


def write(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def sparse(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def open_descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def is_open(path: Path) -> bool:
    """Whether this process has the file open."""
    info = path.stat()
    for entry in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.path.samestat(info, os.fstat(int(entry.name))):
                return True
    return False


async def opened(path: Path) -> None:
    while not is_open(path):  # noqa: ASYNC110 -- nobody is told when another thread opens a file
        await asyncio.sleep(0.001)


@contextlib.contextmanager
def meanwhile(step: Callable[[], None]) -> Iterator[None]:
    """Repeat `step` in a thread, without pause, for as long as the block runs."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            step()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# What is hashed.


async def test_a_named_file_is_hashed(root: Path) -> None:
    """A file that is named comes back with its path, its size and the sha256 of its bytes."""
    write(root / "out/report.xml", b"<ok/>")
    artifacts, problems = await taken(root, "out/report.xml")
    sha256 = hashlib.sha256(b"<ok/>").hexdigest()
    assert {"out/report.xml": Artifact(path="out/report.xml", sha256=sha256, bytes=5)} == artifacts
    assert problems == {}


async def test_an_empty_file_is_hashed(root: Path) -> None:
    """A file without a byte has the sha256 of nothing."""
    write(root / "empty", b"")
    artifacts, _ = await taken(root, "empty")
    assert hashlib.sha256().hexdigest() == artifacts["empty"].sha256


async def test_sizes_round_the_buffer_are_hashed_whole(root: Path) -> None:
    """A file of just under, just, and just over any number of buffers loses no byte."""
    sizes = [count * 256 * 1024 + odd for count in (1, 2, 5) for odd in (-1, 0, 1)]
    for size in sizes:
        write(root / str(size), os.urandom(size))
    artifacts, _ = await taken(root, "*")
    for size in sizes:
        assert hashlib.sha256((root / str(size)).read_bytes()).hexdigest() == artifacts[str(size)].sha256


async def test_two_thousand_files_equal_a_plain_sha256(root: Path) -> None:
    """Every one of 2,000 files in a tree has the digest that a plain reading gives, in order of path."""
    for index in range(2_000):
        write(root / f"d{index % 7}/e{index % 13}/f{index}", os.urandom(index % 5_000))
    artifacts, problems = await taken(root, "**")
    plain = {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }
    assert len(plain) == 2_000
    assert plain == {path: artifact.sha256 for path, artifact in artifacts.items()}
    assert problems == {}


async def test_no_patterns_collect_nothing(root: Path) -> None:
    """Without a pattern nothing is collected and nothing is wrong."""
    write(root / "a")
    assert await taken(root) == ({}, {})


# How patterns match.

TREE = ["a.txt", "b.log", "src/a.txt", "src/deep/er/a.txt", ".env", ".git/config", "src/.cache/a.txt", "src/.a.txt"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.txt", ["a.txt"]),
        ("**/*.txt", ["a.txt", "src/a.txt", "src/deep/er/a.txt"]),
        ("**", ["a.txt", "b.log", "src/a.txt", "src/deep/er/a.txt"]),
        ("src/**", ["src/a.txt", "src/deep/er/a.txt"]),
        ("**/**/er/*", ["src/deep/er/a.txt"]),
        ("src/**/a.txt", ["src/a.txt", "src/deep/er/a.txt"]),
        ("*/a.txt", ["src/a.txt"]),
        ("s?c/[ab].tx*", ["src/a.txt"]),
        ("[!a].*", ["b.log"]),
        (".*", [".env"]),
        ("**/.*", [".env", "src/.a.txt"]),
        (".git/*", [".git/config"]),
        (".git/**", [".git/config"]),
        ("**/.cache/*", ["src/.cache/a.txt"]),
        (".*/config", [".git/config"]),
        ("?env", []),
        ("[.]env", []),
        ("*.TXT", []),
        ("src", []),
        ("**/deep", []),
    ],
)
async def test_a_pattern_matches_as_a_shell_would(root: Path, pattern: str, expected: list[str]) -> None:
    """Each kind of pattern matches these files and no others; what begins with a dot has to be asked for with one."""
    for name in TREE:
        write(root / name)
    artifacts, problems = await taken(root, pattern)
    assert expected == list(artifacts)
    assert [problem for problem in problems if expected] == []


async def test_overlapping_patterns_give_each_file_once(root: Path) -> None:
    """A file, or a link, that several patterns and spellings name is reported once."""
    write(root / "out/a.txt")
    (root / "out/link").symlink_to("a.txt")
    artifacts, problems = await taken(
        root, "out/a.txt", "./out//a.txt", "/workspace/out/a.txt", "out/*", "**", "**", "out/link"
    )
    assert list(artifacts) == ["out/a.txt"]
    assert list(problems) == ["out/link"]


async def test_a_name_with_magic_characters_is_taken_literally_first(root: Path) -> None:
    """A pattern that is the name of an existing file means that file; without it, it is a pattern again."""
    write(root / "a[1].txt")
    write(root / "a1.txt")
    assert list((await taken(root, "a[1].txt"))[0]) == ["a[1].txt"]
    (root / "a[1].txt").unlink()
    assert list((await taken(root, "a[1].txt"))[0]) == ["a1.txt"]


async def test_a_literal_prefix_is_not_listed(root: Path) -> None:
    """The entries of a directory do not count when the pattern says which of them to enter."""
    for index in range(300):
        write(root / f"noise{index}")
    write(root / "out/a.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("provider.artifacts._MAX_ENTRIES", 10)
        artifacts, problems = await taken(root, "out/*.txt")
    assert list(artifacts) == ["out/a.txt"]
    assert problems == {}


async def test_a_pattern_made_to_backtrack_is_matched_at_once(root: Path) -> None:
    """Patterns with many wildcards cost no more than the tree is large."""
    deep = root.joinpath(*["a"] * 60)
    write(deep / ("a" * 255))
    begin = time.monotonic()
    _, problems = await taken(root, "**/a/" * 12 + "b", "**/*a*a*a*a*a*a*a*a*a*a*a*b")
    assert time.monotonic() - begin < 2
    assert {"missing"} == {problem.problem for problem in problems.values()}


# What is not hashed, and what is said instead.


async def test_a_file_that_is_not_there_is_missing(root: Path) -> None:
    """A path without a file, below nothing, below a file, or too long for any file, is missing."""
    write(root / "file")
    asked = ["nothing", "no/thing", "file/below", "n" * 300]
    artifacts, problems = await taken(root, *asked)
    assert artifacts == {}
    assert dict.fromkeys(asked, "missing") == {path: problem.problem for path, problem in problems.items()}


async def test_a_pattern_that_matches_nothing_is_missing(root: Path) -> None:
    """A pattern that names no file, or only directories, is reported under its own text."""
    (root / "folder").mkdir()
    for asked in (["no/**"], ["fold*/" + "n" * 300], ["*.none", "fold*", "no/**"]):
        _, problems = await taken(root, *asked)
        assert dict.fromkeys(asked, "missing") == {path: problem.problem for path, problem in problems.items()}


async def test_a_link_is_not_followed(root: Path, secret: Path) -> None:
    """A link is reported as one, whatever it points at: host file, file beside it, device, process memory, nothing."""
    write(root / "file")
    host = str(secret / "secret")
    targets = {"host": host, "beside": "file", "dev": "/dev/zero", "mem": "/proc/self/mem", "gone": "x/y"}
    for name, target in targets.items():
        (root / name).symlink_to(target)
    for patterns in (targets, ["*"]):
        artifacts, problems = await taken(root, *patterns)
        assert set(artifacts) <= {"file"}
        assert dict.fromkeys(sorted(targets), "symlink") == {path: item.problem for path, item in problems.items()}


async def test_a_linked_directory_is_not_entered(root: Path, secret: Path) -> None:
    """A link anywhere on a path ends it, and the problem names the component."""
    (root / "out").mkdir()
    (root / "out/link").symlink_to(secret)
    _, problems = await taken(root, "out/link/secret", "out/link/*", "out/*/secret")
    assert {"out/link/secret", "out/link/*", "out/link"} == set(problems)
    for problem in problems.values():
        assert problem.problem == "symlink"
        assert "'link'" in problem.detail


async def test_a_double_star_does_not_enter_a_linked_directory(root: Path, secret: Path) -> None:
    """`**` passes a linked directory by."""
    write(root / "real/secret", b"own")
    (root / "link").symlink_to(secret)
    (root / "real/loop").symlink_to(root)
    artifacts, problems = await taken(root, "**/secret")
    assert list(artifacts) == ["real/secret"]
    assert problems == {}


async def test_a_directory_is_not_a_file(root: Path) -> None:
    """A path that names a directory is reported as one."""
    (root / "folder").mkdir()
    _, problems = await taken(root, "folder", "folder/")
    assert {path: problem.problem for path, problem in problems.items()} == {"folder": "directory"}


async def test_a_pipe_is_reported_and_never_waited_for(root: Path) -> None:
    """A FIFO that nobody writes to does not hold the collection up."""
    os.mkfifo(root / "pipe")
    for pattern in ("pipe", "*"):
        async with asyncio.timeout(5):
            _, problems = await taken(root, pattern)
        assert problems["pipe"].problem == "fifo"


async def test_a_pipe_is_not_even_opened(root: Path) -> None:
    """A writer that waits for a reader of a FIFO goes on waiting."""
    os.mkfifo(root / "pipe")
    writer = threading.Thread(target=lambda: os.close(os.open(root / "pipe", os.O_WRONLY)))
    writer.start()
    await asyncio.sleep(0.05)
    for _ in range(20):
        await taken(root, "pipe", "*")
    await asyncio.sleep(0.05)
    waits = writer.is_alive()
    os.close(os.open(root / "pipe", os.O_RDONLY | os.O_NONBLOCK))
    writer.join()
    assert waits


async def test_a_socket_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket in the workspace is named and not connected to."""
    monkeypatch.chdir(root)  # a socket's address has room for 108 bytes only
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        _, problems = await taken(root, "sock", "*")
    assert {path: problem.problem for path, problem in problems.items()} == {"sock": "socket"}


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK])
async def test_a_device_is_reported(root: Path, kind: int) -> None:
    """A device node is named and not opened."""
    try:
        os.mknod(root / "node", kind | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("to make a device needs CAP_MKNOD")
    _, problems = await taken(root, "node", "*")
    assert {path: problem.problem for path, problem in problems.items()} == {"node": "device"}


async def test_a_large_file_is_not_read(root: Path) -> None:
    """A sparse file of 1 TiB costs its author nothing and us neither; the cap itself is still within."""
    sparse(root / "tera", 1024 * GIB)
    write(root / "just", b"x" * 1_000)
    write(root / "over", b"x" * 1_001)
    async with asyncio.timeout(5):
        artifacts, problems = await taken(root, "*", max_file_bytes=1_000)
    assert list(artifacts) == ["just"]
    assert {path: item.problem for path, item in problems.items()} == {"tera": "too_large", "over": "too_large"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
async def test_what_cannot_be_read_is_unreadable(root: Path) -> None:
    """A file or directory without permission is reported, and its mode is left as it was."""
    write(root / "shut/file")
    write(root / "file").chmod(0)
    (root / "shut").chmod(0)
    try:
        _, problems = await taken(root, "file", "shut/file", "shut/*", "**/*.none")
        assert stat.S_IMODE((root / "file").stat().st_mode) == 0
    finally:
        (root / "shut").chmod(0o700)
    expected = {"file": "unreadable", "shut/file": "unreadable", "shut/*": "unreadable", "shut": "unreadable"}
    assert expected | {"**/*.none": "missing"} == {path: problem.problem for path, problem in problems.items()}


@pytest.fixture
def mount(root: Path) -> Iterator[Path]:
    """Yield a directory of the workspace that is another filesystem."""
    folder = root / "mount"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=False, capture_output=True).returncode:
        pytest.skip("to mount needs CAP_SYS_ADMIN")
    yield folder
    subprocess.run(["umount", folder], check=True)


async def test_another_filesystem_is_not_entered(root: Path, mount: Path) -> None:
    """What is mounted into the workspace is not part of it."""
    write(mount / "file")
    artifacts, problems = await taken(root, "mount/file", "**/file")
    assert artifacts == {}
    expected = {"mount": "unreadable", "mount/file": "unreadable", "**/file": "missing"}
    assert {path: problem.problem for path, problem in problems.items()} == expected


async def test_a_name_that_is_not_utf8_is_reported_printable(root: Path) -> None:
    """A byte that is not UTF-8 is shown as an escape, can be asked for as Python spells it, and breaks no encoder."""
    with open(os.path.join(os.fsencode(root), b"bad\xff\n.txt"), "wb") as file:  # noqa: PTH118, PTH123
        file.write(b"x")
    (root / "link\udcfe").symlink_to("x")
    for pattern in ("bad*", "bad\udcff\n.txt"):
        artifacts, _ = await taken(root, pattern)
        assert [path.encode() for path in artifacts] == [b"bad\\udcff\n.txt"]
    _, problems = await taken(root, "link\udcfe", "none\udcfd", "none\udcfc*")
    assert list(problems) == ["link\\udcfe", "none\\udcfc*", "none\\udcfd"]
    for problem in problems.values():
        problem.detail.encode()


# Trees made to be too much.


async def test_ten_thousand_files_are_taken_and_no_more(root: Path) -> None:
    """The 10,001st file is one too many, and that is said; the 10,000 before are hashed."""
    for index in range(10_000):
        (root / str(index)).touch()
    artifacts, problems = await taken(root, "*")
    assert (len(artifacts), problems) == (10_000, {})
    (root / "more").touch()
    artifacts, problems = await taken(root, "*")
    assert len(artifacts) == 10_000
    assert [problem.problem for problem in problems.values()] == ["too_many"]


async def test_a_walk_ends_at_its_cap(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many entries nothing is looked at, and what was not found by then is not called missing."""
    monkeypatch.setattr("provider.artifacts._MAX_ENTRIES", 500)
    for index in range(500):
        write(root / f"d{index % 4}/{index}")
    artifacts, problems = await taken(root, "**/*.none", "d3/7", "[!d]*", "d*")
    assert list(artifacts) == ["d3/7"]
    assert len(problems) == 4
    assert {"too_many"} == {problem.problem for problem in problems.values()}


async def test_a_directory_of_any_size_is_read_only_to_the_cap(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many entries as the cap are all seen, and with one more the walk ends."""
    monkeypatch.setattr("provider.artifacts._MAX_ENTRIES", 300)
    for index in range(300):
        write(root / str(index))
    artifacts, problems = await taken(root, "*")
    assert (len(artifacts), problems) == (300, {})
    write(root / "more")
    artifacts, problems = await taken(root, "*")
    assert (len(artifacts), list(problems)) == (300, ["."])


async def test_many_patterns_over_many_files_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns times files is bounded too, not only each of them."""
    monkeypatch.setattr("provider.artifacts._MAX_MATCHES", 50_000)
    for index in range(200):
        write(root / str(index))
    _, problems = await taken(root, *(f"*.none{index}" for index in range(1_000)))
    assert len(problems) == 1_001
    assert {"too_many"} == {problem.problem for problem in problems.values()}


def test_the_caps_are_what_is_documented() -> None:
    """The caps that other tests lower for speed have these values."""
    caps = (artifacts_module._MAX_ENTRIES, artifacts_module._MAX_PATHS, hashing.MAX_DEPTH)
    assert caps == (100_000, 10_000, 64)


async def test_sixty_four_directories_are_entered_and_no_more(root: Path) -> None:
    """A file below 64 directories is hashed, one below 65 is said to be too deep, by name and by pattern."""
    deep = "/".join("d" * 64)
    write(root / deep / "file")
    write(root / deep / "d" / "file")
    artifacts, problems = await taken(root, "**/file", f"{deep}/file", f"{deep}/d/file", f"{deep}/d/*")
    assert [f"{deep}/file"] == list(artifacts)
    assert {f"{deep}/d": "too_many", f"{deep}/d/file": "too_many", f"{deep}/d/*": "too_many"} == {
        path: problem.problem for path, problem in problems.items()
    }


# Files that change under the reader.


async def test_a_swapped_name_never_leads_to_the_host(root: Path, secret: Path) -> None:
    """However often files and directories turn into links or pipes and back, only the workspace's bytes are hashed."""
    write(root / "good", b"own")
    write(root / "folder/secret", b"own")
    (root / "link").symlink_to(secret)
    own = hashlib.sha256(b"own").hexdigest()

    def swap() -> None:
        for make in (lambda new: new.symlink_to(secret / "secret"), os.mkfifo):
            make(root / "new")
            (root / "new").replace(root / "file")
            (root / "new").hardlink_to(root / "good")
            (root / "new").replace(root / "file")
        (root / "folder").rename(root / "aside")
        (root / "link").rename(root / "folder")
        (root / "folder").rename(root / "link")
        (root / "aside").rename(root / "folder")

    seen: set[str] = set()
    end = time.monotonic() + 5
    with meanwhile(swap):
        for _ in itertools.takewhile(lambda _: time.monotonic() < end, range(20_000)):
            artifacts, problems = await taken(root, "file", "folder/secret", "f*/s*")
            assert {own} >= {artifact.sha256 for artifact in artifacts.values()}
            seen |= {problem.problem for problem in problems.values()}
            seen |= set(artifacts)
    assert {"symlink", "file", "folder/secret"} <= seen, "the race was not run"


def grow(file: Path) -> None:
    """Make it so large that whoever reads on to its end does not come back."""
    os.truncate(file, 1024 * GIB)


def shrink(file: Path) -> None:
    os.truncate(file, MIB)


def rewrite(file: Path) -> None:
    """Change the content alone, and put both times that can be set back to what they were."""
    info = file.stat()
    with file.open("r+b") as start:
        start.write(b"other")
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))


@pytest.mark.parametrize("change", [grow, shrink, rewrite])
async def test_a_file_that_changes_while_it_is_read_is_unstable(root: Path, change: Callable[[Path], None]) -> None:
    """A file that is changed between the first byte and the last has no digest."""
    file = sparse(root / "file", GIB // 2 + 1)
    collecting = asyncio.create_task(taken(root, "file"))
    await opened(file)
    await asyncio.sleep(0.02)
    change(file)
    async with asyncio.timeout(30):
        artifacts, problems = await collecting
    assert artifacts == {}
    assert problems["file"].problem == "unstable"


async def test_a_growing_file_is_read_to_its_size_at_most(root: Path) -> None:
    """A file that is appended to all the time is unstable, or is exactly what it was at the size that is reported."""
    file = write(root / "log", os.urandom(4 * MIB))
    block = os.urandom(4_096)

    def append() -> None:
        with file.open("ab") as end:
            end.write(block)
        time.sleep(0.0005)

    results: list[Artifact | ArtifactProblem] = []
    with meanwhile(append):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            artifacts, problems = await taken(root, "log")
            results += [*artifacts.values(), *problems.values()]
    content = file.read_bytes()
    assert any(isinstance(result, ArtifactProblem) for result in results)
    for result in results:
        if isinstance(result, Artifact):
            assert hashlib.sha256(content[: result.bytes]).hexdigest() == result.sha256
        else:
            assert result.problem == "unstable"


@pytest.mark.parametrize("replace", [lambda root: root.mkdir(), lambda root: root.symlink_to("old"), lambda _: None])
async def test_a_replaced_workspace_is_lost(root: Path, replace: Callable[[Path], None]) -> None:
    """Another directory under the workspace's name, a link to the old one, or nothing there, is an error."""
    validated = workspace(root)
    root.rename(root.with_name("old"))
    replace(root)
    with pytest.raises(SandboxLost, match=re.escape(str(root))):
        await collect(validated, ["**"], max_file_bytes=GIB)


# What it leaves behind, and how it runs.


async def test_no_descriptor_is_left_open(root: Path, secret: Path) -> None:
    """After files, links, pipes, missing and too deep paths, there are as many open descriptors as before."""
    for index in range(300):
        write(root / f"d{index % 5}/f{index}")
    write(root.joinpath(*["d"] * 65, "f"))
    (root / "link").symlink_to(secret)
    os.mkfifo(root / "pipe")
    asked = ["**", "link/secret", "pipe/x", "pipe", "none", "d0", "d0/none", "/".join("d" * 65)]
    await taken(root, *asked)
    before = open_descriptors()
    for _ in range(20):
        await taken(root, *asked)
    assert before == open_descriptors()


async def test_the_event_loop_runs_on(root: Path) -> None:
    """While a large file is hashed, other tasks get their turn."""
    sparse(root / "large", GIB // 2)
    collecting = asyncio.create_task(taken(root, "large"))
    turns = 0
    while not collecting.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 20
    assert list((await collecting)[0]) == ["large"]


async def test_cancellation_ends_the_hashing_and_closes_everything(root: Path) -> None:
    """Canceled collections, running or still waiting for a thread, end at once and hold nothing open."""
    files = [sparse(root / name, 1024 * GIB) for name in ("one", "two", "three")]
    await taken(root, "none")
    before = open_descriptors()
    collecting = [asyncio.create_task(taken(root, "*", max_file_bytes=2048 * GIB)) for _ in range(12)]
    await opened(files[0])
    begin = time.monotonic()
    for task in collecting:
        task.cancel()
    results = await asyncio.gather(*collecting, return_exceptions=True)
    assert time.monotonic() - begin < 3
    assert {asyncio.CancelledError} == {type(result) for result in results}
    assert before == open_descriptors()


# What is refused before anything runs.


@pytest.mark.parametrize(
    ("pattern", "relative"),
    [
        ("a/b", "a/b"),
        ("./a//b/.", "a/b"),
        ("/workspace/a/b", "a/b"),
        ("//workspace//a", "a"),
        ("/workspace/**", "**"),
        ("/workspace/workspace/a", "workspace/a"),
        ("a..b/...", "a..b/..."),
        ("~/a", "~/a"),
        ("bad\udcff", "bad\udcff"),
        ("é" * 2_048, "é" * 2_048),
    ],
)
def test_a_pattern_is_made_relative_to_the_workspace(pattern: str, relative: str) -> None:
    """Spellings of a path below the workspace come out as one, and checking again changes nothing."""
    assert (relative,) == check_patterns([pattern])
    assert (relative,) == check_patterns([relative])


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("", "names no file; name one"),
        (".", "names no file; name one"),
        ("/workspace/", "names no file; name one"),
        ("/", "outside the workspace; use a path relative"),
        ("/etc/passwd", "outside the workspace; use a path relative"),
        ("/workspaces/a", "outside the workspace; use a path relative"),
        ("/./etc/workspace", "outside the workspace; use a path relative"),
        ("..", "`..` component; name the path"),
        ("a/../b", "`..` component; name the path"),
        ("**/../../etc/shadow", "`..` component; name the path"),
        ("/workspace/../etc/passwd", "`..` component; name the path"),
        ("a\0b", "NUL or a lone surrogate, which no file name can have; remove"),
        ("a\ud800b", "NUL or a lone surrogate, which no file name can have; remove"),
        ("a" * 4_097, "longer than 4096 bytes; shorten"),
        ("é" * 2_049, "longer than 4096 bytes; shorten"),
    ],
)
async def test_a_pattern_that_cannot_be_right_is_refused(root: Path, pattern: str, advice: str) -> None:
    """The error says which pattern, what is wrong with it and what would be right; it can be printed."""
    with pytest.raises(CallError, match=r"^artifacts\[1\] '") as caught:
        check_patterns(["fine", pattern])
    assert advice in str(caught.value)
    assert len(str(caught.value).encode()) < 400
    with pytest.raises(CallError):
        await collect(workspace(root), [pattern], max_file_bytes=GIB)


@pytest.mark.parametrize("patterns", [["a"] * 1_001, "report.xml"])
def test_a_list_that_cannot_be_right_is_refused(patterns: Sequence[str]) -> None:
    """More than 1,000 patterns, or one text where a list belongs, is an error; 1,000 are not."""
    with pytest.raises(CallError, match=r"^artifacts (has 1001 patterns|is the text 'report.xml'; give a list)"):
        check_patterns(patterns)
    assert len(check_patterns(["a"] * 1_000)) == 1_000
