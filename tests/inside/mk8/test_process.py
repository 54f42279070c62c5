"""What `inside.mk8.process` promises: a bare name, no shell, nothing left behind, bounded output, safe git."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from provider.inside.mk8 import environment, process
from provider.inside.mk8.errors import CompileError, StepFailure, TimedOut
from provider.inside.mk8.process import find_binary, run_process
from provider.inside.mk8.verb import World

PYTHON = Path(sys.executable).resolve()
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder that is the fixed search path, and a function that puts programs there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(process, "SEARCH_PATH", f"{folder}:/usr/bin:/bin")

    def write(name: str, source: str) -> None:
        path = folder / name
        path.write_text(f"#!{PYTHON} -IS\n{source}\n")
        path.chmod(0o755)

    return write


@pytest.fixture
def world(tmp_path):
    root = tmp_path / "workspace"
    root.mkdir()

    def make(**given) -> World:
        given.setdefault("deadline", time.monotonic() + 30)
        given.setdefault("environment", {"HOME": str(tmp_path), "LANG": "C.UTF-8", "TERM": "dumb"})
        return World(root=str(root), cwd=given.pop("cwd", str(root)), **given)

    return make


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


# By its bare name.


@pytest.mark.parametrize("name", ["./git", "/usr/bin/git", "x/git", "../git", "", ".", "..", "git\0"])
def test_a_path_is_never_run(name):
    """Whatever is not a bare name is refused, so no file of the workspace is run (section 9, 12)."""
    with pytest.raises(CompileError, match="bare name"):
        find_binary(name)


def test_only_the_fixed_path_is_searched(world, tmp_path, monkeypatch):
    """Neither the caller's PATH nor the working directory can bring in a program."""
    evil = tmp_path / "workspace" / "evil"
    monkeypatch.setenv("PATH", str(tmp_path / "workspace"))
    made = world(environment={"PATH": str(tmp_path / "workspace")})
    evil.write_text("#!/bin/sh\necho evil\n")
    evil.chmod(0o755)
    with pytest.raises(StepFailure, match="evil is not installed"):
        run_process(made, ["evil"])


def test_folders_and_plain_files_are_no_programs(programs, tmp_path):
    """A name on the search path counts only if it can be run."""
    (tmp_path / "bin" / "folder").mkdir()
    (tmp_path / "bin" / "plain").write_text("text")
    for name in ("folder", "plain"):
        with pytest.raises(StepFailure, match="not installed"):
            find_binary(name)


def test_arguments_are_no_shell_text(programs, world):
    """A process gets every argument as it is, whatever a shell would read in it."""
    programs("show", "import json, sys; print(json.dumps(sys.argv[1:]))")
    arguments = ["$HOME", "`id`", "; rm -rf /", "a b", "*", "", "ä"]
    assert json.loads(run_process(world(), ["show", *arguments]).output) == arguments


def test_the_environment_is_made_from_nothing(programs, world, monkeypatch):
    """Only listed variables, MK8_* and what keeps git quiet reach a process."""
    monkeypatch.setenv("SECRET", "host")
    programs("show", "import json, os; print(json.dumps(dict(os.environ)))")
    given = {
        "HOME": "/h",
        "USER": "u",
        "LANG": "C",
        "TZ": "UTC",
        "LC_CTYPE": "C.UTF-8",
        "MK8_SANDBOX_ID": "box",
        "EDITOR": "vi",
        "NODE_ENV": "x",
        "PATH": "/evil",
        "TMPDIR": "/evil",
        "LD_PRELOAD": "/evil.so",
    }
    seen = json.loads(run_process(world(environment=given), ["show"]).output)
    git = {name: value for name, value in seen.items() if name.startswith("GIT_")}
    rest = {name: value for name, value in seen.items() if not name.startswith("GIT_")}
    assert git == process.GIT_VARIABLES
    assert rest == {
        "HOME": "/h",
        "USER": "u",
        "LANG": "C",
        "TZ": "UTC",
        "LC_CTYPE": "C.UTF-8",
        "MK8_SANDBOX_ID": "box",
        "PATH": environment.SEARCH_PATH,
        "TMPDIR": "/tmp",
    }


def test_it_begins_in_its_folder_and_reads_nothing(programs, world, tmp_path):
    """The working directory is the step's, and stdin is empty."""
    folder = tmp_path / "workspace" / "sub"
    folder.mkdir()
    programs("show", "import os, sys; print(os.getcwd(), repr(sys.stdin.read()))")
    assert run_process(world(cwd=str(folder)), ["show"]).output == f"{folder} ''\n"


# How it ended.


def test_stderr_comes_along_on_success(programs, world):
    """A process that warns and succeeds has both texts and the exit code 0."""
    programs("warn", "import sys; print('out'); print('warning', file=sys.stderr)")
    done = run_process(world(), ["warn"])
    assert (done.output, done.error, done.exit_code) == ("out\n", "warning\n", 0)


@pytest.mark.parametrize(
    ("source", "text", "code"),
    [
        ("import sys; print('told'); print('why', file=sys.stderr); sys.exit(3)", "it exited with code 3: why", 3),
        ("import sys; print('told'); sys.exit(1)", "it exited with code 1", 1),
        ("import os; print('told', flush=True); os.kill(os.getpid(), 9)", "it was ended by SIGKILL", 137),
        ("import os; print('told', flush=True); os.kill(os.getpid(), 44)", "it was ended by signal 44", 172),
    ],
)
def test_anything_but_zero_is_a_failure_that_says_it(programs, world, source, text, code):
    """The error names program, exit code and stderr; what was written to stdout is kept."""
    programs("it", source)
    with pytest.raises(StepFailure) as caught:
        run_process(world(), ["it"])
    assert (str(caught.value), caught.value.exit_code, caught.value.output) == (text, code, "told\n")
    assert caught.value.category == "StepFailure"


@pytest.mark.parametrize(
    ("cwd", "arguments", "reason"),
    [
        ("/nowhere", ["true"], "No such file or directory"),
        (None, ["true", "a\0b"], "embedded null byte"),
        (None, ["true", "x" * 2**22], "Argument list too long"),
    ],
)
def test_what_cannot_be_started_is_a_failure(world, cwd, arguments, reason):
    """Whatever the kernel says to an argument vector, the agent reads one line."""
    given = {} if cwd is None else {"cwd": cwd}
    with pytest.raises(StepFailure, match=f"^true cannot be started: {reason}$"):
        run_process(world(**given), arguments)


# Time.

TREE = """
import os, subprocess, sys, time
from pathlib import Path
say = lambda name: Path({folder!r}, name).write_text(str(os.getpid()))
print("partial", flush=True); print("why", file=sys.stderr, flush=True)
say("parent")
for name in ("child", "session"):
    if os.fork() == 0:
        if name == "session": os.setsid()
        if os.fork() == 0:
            say("grand" + name)
            time.sleep({seconds})
        say(name)
        time.sleep({seconds})
while sum(1 for _ in Path({folder!r}).iterdir()) < 5: time.sleep(0.01)
{then}
"""


def pids(folder: Path) -> dict[str, int]:
    return {path.name: int(path.read_text()) for path in folder.iterdir()}


def test_a_time_out_kills_the_whole_tree(programs, world, tmp_path):
    """Children, grandchildren and those in a session of their own end with the process; what it wrote is kept."""
    folder = tmp_path / "pids"
    folder.mkdir()
    programs("tree", TREE.format(folder=str(folder), seconds=120, then="time.sleep(120)"))
    began = time.monotonic()
    with pytest.raises(TimedOut, match="tree did not end in its time and was killed: why") as caught:
        run_process(world(deadline=began + 2), ["tree"])
    assert time.monotonic() - began < 10
    assert caught.value.output == "partial\n"
    assert len(pids(folder)) == 5
    assert {name for name, pid in pids(folder).items() if is_alive(pid)} == set()


def test_what_a_process_leaves_behind_ends_with_it(programs, world, tmp_path):
    """A process that is done is not waited for because others hold its output open, and they end."""
    folder = tmp_path / "pids"
    folder.mkdir()
    programs("tree", TREE.format(folder=str(folder), seconds=120, then="os._exit(0)"))
    began = time.monotonic()
    done = run_process(world(), ["tree"])
    assert time.monotonic() - began < 10
    assert done.output == "partial\n"
    left = {name for name, pid in pids(folder).items() if is_alive(pid)}
    # A session whose parents are gone is out of sight unless orphans come to us, as they do in the program.
    assert left <= {"session", "grandsession"}
    for name in left:
        os.kill(pids(folder)[name], signal.SIGKILL)


def test_orphans_come_to_the_program(programs, tmp_path):
    """Once orphans are adopted, not even a session whose parents are gone outlives its step."""
    folder = tmp_path / "pids"
    folder.mkdir()
    programs("tree", TREE.format(folder=str(folder), seconds=120, then="os._exit(0)"))
    code = (
        "import time\n"
        "from provider.inside.mk8 import process\n"
        "from provider.inside.mk8.verb import World\n"
        f"process.SEARCH_PATH = {str(tmp_path / 'bin')!r}\n"
        "process.adopt_orphans()\n"
        f"world = World(root={str(tmp_path)!r}, cwd={str(tmp_path)!r}, deadline=time.monotonic() + 30)\n"
        "process.run_process(world, ['tree'])\n"
        "assert process._descendants(process._processes(), process.os.getpid()) == set()\n"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, timeout=60)
    assert {name for name, pid in pids(folder).items() if is_alive(pid)} == set()


def test_children_that_were_there_before_are_left_alone(world):
    """Only what came with the process is killed."""
    with subprocess.Popen(["sleep", "60"]) as other:
        run_process(world(), ["true"])
        assert other.poll() is None
        other.kill()


def test_a_process_that_closes_its_output_is_waited_for(programs, world):
    """The end of the output is not the end of the process."""
    programs("quiet", "import os, sys, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(4)")
    with pytest.raises(StepFailure, match="quiet exited with code 4"):
        run_process(world(), ["quiet"])


def test_the_alarm_leaves_no_process_behind(programs, world, tmp_path):
    """Ended from outside in the middle of reading, it still kills what it started."""
    from provider.inside.mk8.alarm import within

    programs("hang", f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(120)")
    with pytest.raises(TimedOut, match="alarm"):
        within(1.0, lambda: run_process(world(), ["hang"]), "alarm")
    assert not is_alive(int((tmp_path / "pid").read_text()))


# Output.


@pytest.mark.parametrize(
    ("written", "limit", "kept"),
    [
        ("'abc'", 3, "abc"),
        ("'abcd'", 3, "bcd"),
        ("'a' * 1_000_000 + 'end'", 3, "end"),
        ("'ab' + chr(0x20AC)", 4, "b€"),
        ("'ab' + chr(0x20AC)", 3, "€"),
        ("'ab' + chr(0x20AC)", 2, ""),
        ("'ab' + chr(0x20AC) + 'c'", 2, "c"),
        ("'x'", 0, ""),
    ],
)
def test_the_end_is_kept_in_whole_characters(programs, world, written, limit, kept):
    """Output is cut in front, in bytes, and never inside a character."""
    programs("write", f"import sys; sys.stdout.buffer.write(({written}).encode())")
    assert run_process(world(output_bytes=limit), ["write"]).output == kept


def test_bytes_that_are_no_text_do_not_break_it(programs, world):
    """Whatever a process writes, the step has a text."""
    programs("write", r"import sys; sys.stdout.buffer.write(b'a\xff\x00\x1b[2Jb\r\n')")
    assert run_process(world(), ["write"]).output == "a\ufffd\x00\x1b[2Jb\r\n"


def test_a_flood_is_read_in_little_memory(programs, world):
    """Hundreds of megabytes cost time, not memory, and the process can go on writing."""
    import resource

    programs("flood", "import os\nfor _ in range(3000): os.write(1, b'x' * 100_000)\nos.write(1, b'end')")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert run_process(world(output_bytes=1000), ["flood"]).output == "x" * 997 + "end"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_long_stderr_leaves_room_for_what_happened(programs, world):
    """However much a process complains, the error still names it and its exit code."""
    programs("it", "import sys; sys.stderr.write('e' * 100_000); sys.exit(1)")
    with pytest.raises(StepFailure, match=r"^it exited with code 1: e+$") as caught:
        run_process(world(error_bytes=1000), ["it"])
    assert len(str(caught.value)) <= 1000


# git.

needs_git = pytest.mark.skipif(shutil.which("git", path=environment.SEARCH_PATH) is None, reason="needs git")


@pytest.fixture
def repository(world, tmp_path):
    """A repository on branch `feature/api` with one commit, in the workspace."""
    made = world()
    run = Runner(made)
    run("init")
    run("checkout", "-b", "feature/api")
    (tmp_path / "workspace" / "a.txt").write_text("a")
    run("add", ".")
    run("commit", "-m", "Initial commit")
    return run


class Runner:
    def __init__(self, made: World) -> None:
        self.root = made.root
        self._environment: Mapping[str, str] = made.environment

    def __call__(self, *arguments: str) -> str:
        deadline = time.monotonic() + 20
        made = World(root=self.root, cwd=self.root, environment=self._environment, deadline=deadline)
        return run_process(made, ["git", *arguments]).output


@needs_git
@pytest.mark.parametrize(
    "branch", ["main", "master", "develop", "staging", "production", "live", "release", "release/2.0", "trunk"]
)
@pytest.mark.parametrize("action", [["commit"], ["merge", "feature/api"], ["push", "origin", "feature/api"]])
def test_a_protected_branch_is_not_changed(repository, branch, action):
    """With a protected branch checked out, what would change it is refused for good, and told how to go on."""
    repository("checkout", "-b", branch)
    with pytest.raises(
        CompileError, match=f"`git {action[0]}` is refused while the protected branch {branch}"
    ) as caught:
        repository(*action)
    assert not caught.value.retried
    assert repository("log", "--oneline").count("\n") == 1


@needs_git
def test_a_branch_without_a_commit_is_protected_too(world):
    """The very first commit cannot go to `main` either."""
    run = Runner(world())
    run("init")
    run("checkout", "-b", "main")
    with pytest.raises(CompileError, match="protected branch main"):
        run("commit", "-m", "Initial commit")


@needs_git
@pytest.mark.parametrize("head", ["feature/api", "maintenance", "mainline", "releases", None])
def test_other_branches_are_free(repository, head, tmp_path):
    """A name that only looks like a protected one, and a detached HEAD, are not refused."""
    repository(*(["checkout", "-b", head] if head not in {None, "feature/api"} else ["status"]))
    if head is None:
        repository("checkout", "--detach")
    (tmp_path / "workspace" / "b.txt").write_text("b")
    repository("add", ".")
    assert "Add tests" in repository("commit", "-m", "Add tests")


@needs_git
def test_git_commit_waits_for_no_editor(repository, tmp_path):
    """Without -m it fails at once in place of waiting (section 9, 22)."""
    (tmp_path / "workspace" / "b.txt").write_text("b")
    repository("add", ".")
    began = time.monotonic()
    with pytest.raises(StepFailure, match="empty commit message"):
        repository("commit")
    assert time.monotonic() - began < 10


HOOKS = ("pre-commit", "post-commit", "commit-msg", "prepare-commit-msg", "post-checkout", "post-index-change")
HOSTILE = {
    "fsmonitor": ("core.fsmonitor", "touch {flag}; false"),
    "pager": ("core.pager", "touch {flag}"),
    "editor": ("core.editor", "touch {flag}"),
    "credentials": ("credential.helper", "!touch {flag}"),
    "ssh": ("core.sshCommand", "touch {flag}; false"),
    "askpass": ("core.askPass", "{script}"),
    "commands for URLs": ("protocol.ext.allow", "always"),
    "signatures": ("gpg.program", "{script}"),
}


class AsksForPassword(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    """A server that wants to know who one is."""
    with http.server.HTTPServer(("127.0.0.1", 0), AsksForPassword) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/x"
        made.shutdown()
        thread.join()


@needs_git
@pytest.mark.parametrize("name", ["hooks", *HOSTILE])
def test_a_repository_cannot_make_git_run_programs(repository, server, name, tmp_path):
    """Hooks and commands that a repository's own configuration names are not run."""
    flag, hooks = tmp_path / "flag", tmp_path / "workspace" / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for path in (tmp_path / "script", *(hooks / hook for hook in HOOKS if name == "hooks")):
        path.write_text(f"#!/bin/sh\ntouch {flag}\n")
        path.chmod(0o755)
    key, value = HOSTILE.get(name, ("mk8.test", "1"))
    for option, said in ((key, value), ("commit.gpgSign", "true"), ("tag.gpgSign", "true")):
        text = said.format(flag=flag, script=tmp_path / "script")
        subprocess.run(["git", "config", option, text], cwd=repository.root, check=True, timeout=20)
    (tmp_path / "workspace" / "b.txt").write_text("b")
    for action in (["status"], ["log", "--oneline"], ["add", "."], ["commit", "-m", "Add tests"], ["commit"]):
        try:
            repository(*action)
        except StepFailure:
            assert action == ["commit"]
    repository("tag", "-a", "v1", "-m", "Add tests")
    repository("checkout", "-b", "feature/cli")
    for place, url in enumerate((server, "ssh://nowhere.invalid/x", f"ext::sh -c touch% {flag}")):
        repository("remote", "add", f"r{place}", url)
        with pytest.raises(StepFailure):
            repository("push", f"r{place}", "feature/cli")
    assert not flag.exists()


@needs_git
def test_a_repository_says_who_commits(repository, tmp_path):
    """Its own user.name counts; only where there is none, ours is taken."""
    assert repository("log", "--format=%an") == "mk8.shell\n"
    subprocess.run(["git", "config", "user.name", "Ada"], cwd=repository.root, check=True, timeout=20)
    (tmp_path / "workspace" / "b.txt").write_text("b")
    repository("add", ".")
    repository("commit", "-m", "Add tests")
    assert repository("log", "-n", "1", "--format=%an") == "Ada\n"


@needs_git
def test_the_home_folder_says_nothing(repository, tmp_path):
    """A ~/.gitconfig, which a process may have written, is not read."""
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Eve\n")
    (tmp_path / "workspace" / "b.txt").write_text("b")
    repository("add", ".")
    repository("commit", "-m", "Add tests")
    assert repository("log", "-n", "1", "--format=%an") == "mk8.shell\n"
