"""The `sandbox` command as its users type it: own process, real engine, with a daemon and without."""

import base64
import hashlib
import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.docker
MINIMAL = "sandbox-provider/minimal"
SANDBOX = [sys.executable, "-m", "provider"]


@pytest.fixture(scope="module", params=["alone", "with a daemon"], autouse=True)
def daemon(request, tmp_path_factory):
    """Every promise of the command line holds with a daemon as without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        if request.param == "with a daemon":
            assert sandbox("up").returncode == 0
        yield request.param
        if request.param == "with a daemon":
            assert sandbox("down").stdout == b"down\n"


def sandbox(*words, **options):
    return subprocess.run([*SANDBOX, *words], check=False, capture_output=True, timeout=60, **options)


def run(workspace, *words, **options):
    return sandbox("run", "-w", str(workspace), "--image", MINIMAL, *words, **options)


def run_json(workspace, *words):
    result = run(workspace, "--json", *words)
    return result.returncode, json.loads(result.stdout)


@pytest.mark.parametrize("code", [0, 1, 2, 124, 125, 126, 127, 128, 137, 255])
def test_exit_codes_pass_through(workspace, code):
    """The exit status of `sandbox run` is the command's own."""
    status, said = run_json(workspace, "-c", f"exit {code}")
    assert (status, said["exit_code"], said["signal"]) == (code, code, None)


def test_a_signal_is_told_as_a_signal(workspace):
    """`kill -9 $$` is signal 9, no exit code, and status 137."""
    status, said = run_json(workspace, "-c", "kill -9 $$")
    assert (status, said["signal"], said["exit_code"]) == (137, 9, None)


def test_a_missing_program_is_127(workspace):
    """A program that is not there gives an error and status 127."""
    status, said = run_json(workspace, "--", "no-such-program")
    assert status == 127
    assert "No such file" in said["error"]


def test_a_timeout_is_124_with_partial_output(workspace):
    """`sleep 30` with one second ends within three, and what was written before is kept."""
    began = time.monotonic()
    status, said = run_json(workspace, "--timeout", "1", "-c", "echo before; sleep 30")
    assert (status, said["status"], said["timed_out"], said["stdout"]) == (124, "timed_out", True, "before\n")
    assert said["duration_ms"] < 3000
    assert time.monotonic() - began < 10


def test_a_background_process_is_listed(workspace):
    """`sleep 60 & echo done` comes back at once with the pid."""
    status, said = run_json(workspace, "-c", "sleep 60 & echo done")
    assert (status, said["stdout"], len(said["background_pids"])) == (0, "done\n", 1)
    assert said["duration_ms"] < 2000


def test_json_has_every_promised_field(workspace):
    """The JSON object has the fields of the contract."""
    _, said = run_json(workspace, "-c", "echo hi > out", "--artifact", "out")
    promised = """status exit_code signal stdout stderr stdout_truncated stderr_truncated timed_out oom_killed
        duration_ms pid background_pids error artifacts container usage"""
    assert set(promised.split()) <= set(said)
    digest = hashlib.sha256(b"hi\n").hexdigest()
    assert said["artifacts"] == [{"path": "out", "sha256": digest, "bytes": 3}]
    assert {"id", "image", "runtime", "network", "warm"} <= set(said["container"])


def test_bytes_that_are_no_text_come_as_base64(workspace):
    """Fifty megabytes of random bytes arrive whole through JSON."""
    _, said = run_json(workspace, "-c", "head -c 50000000 /dev/urandom > f; cat f", "--artifact", "f")
    data = base64.b64decode(said["stdout_base64"])
    assert hashlib.sha256(data).hexdigest() == said["artifacts"][0]["sha256"]


def test_output_is_passed_on_as_bytes(workspace):
    """Without --json, stdout and stderr are the command's own."""
    result = run(workspace, "-c", r"printf '\377\000x'; echo e >&2")
    assert (result.stdout, result.stderr, result.returncode) == (b"\xff\x00x", b"e\n", 0)


def test_stdin_is_passed_on_only_when_asked(workspace):
    """-i passes stdin on; without it the command sees its end."""
    assert run(workspace, "-i", "--", "cat", input=b"typed").stdout == b"typed"
    assert run(workspace, "--", "cat", input=b"typed").stdout == b""


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--", "true", "-c"], 0, ""),
        ([], 125, "either -c"),
        (["-c", "x", "--", "y"], 125, "either -c"),
        (["--cwd", "nowhere", "--", "true"], 125, "cwd 'nowhere'"),
        (["--cwd", "../..", "--", "true"], 125, "leads out"),
        (["-e", "HOME", "--", "true"], 125, "NAME=value"),
        (["--timeout", "-1", "--", "true"], 125, "timeout"),
        (["--image", "no/such", "--", "true"], 125, "no/such"),
        (["--memory", "lots", "--", "true"], 125, "lots"),
        (["--network", "host", "--", "true"], 125, "network 'host'"),
        (["--user", "root", "--", "true"], 125, "uid:gid"),
        (["--seccomp", "off", "--", "true"], 125, "seccomp 'off'"),
        (["--artifact", "../x", "--", "true"], 125, "../x"),
        (["--config", "/no/such.toml", "--", "true"], 125, "/no/such.toml"),
    ],
)
def test_bad_input_gets_one_clear_error(workspace, words, status, says):
    """One line says what is wrong, where, and what would be right; nothing runs."""
    result = run(workspace, *words)
    assert result.returncode == status
    assert says in result.stderr.decode()
    assert len(result.stderr.splitlines()) <= 1
    assert b"Traceback" not in result.stderr


def test_a_provider_error_in_json_is_not_an_outcome(workspace):
    """What fails on our side never looks like a command's result."""
    status, said = run_json(workspace, "--image", "no/such", "--", "true")
    assert status == 125
    assert said["provider_error"]["kind"] == "ImageMissing"
    assert "exit_code" not in said


def test_a_refused_run_leaves_a_receipt(workspace, tmp_path):
    """A refusal is 126 and has a receipt that says why."""
    config = tmp_path / "c.toml"
    config.write_text("allow_root = false\n")
    path = tmp_path / "receipt.json"
    words = ["--user", "0:0", "--config", str(config), "--receipt", str(path), "--", "true"]
    assert run(workspace, *words).returncode == 126
    receipt = json.loads(path.read_text())
    assert receipt["verdict"]["decision"] == "refuse"
    assert receipt["error"]["kind"] == "PolicyRefused"
    assert receipt["container"] is None


def test_an_unreachable_engine_is_named(workspace):
    """Without an engine the message says where it was looked for."""
    environment = {**os.environ, "DOCKER_HOST": "unix:///no/such.sock"}
    result = run(workspace, "--", "true", env=environment)
    assert result.returncode == 125
    assert b"unix:///no/such.sock (DOCKER_HOST)" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_us_ends_the_command(workspace, number):
    """Ctrl-C ends the sandbox and gives 128 + its number."""
    process = subprocess.Popen(
        [*SANDBOX, "run", "-w", str(workspace), "--image", MINIMAL, "-c", "echo up; sleep 300"], stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline() == b"up\n"
        process.send_signal(number)
        assert process.wait(5) == 128 + number


def test_a_reader_that_stops_reading_cannot_hold_up_ctrl_c(workspace):
    """While nobody reads our stdout and the command floods, SIGINT still ends us within a moment."""
    process = subprocess.Popen(
        [*SANDBOX, "run", "-w", str(workspace), "--image", MINIMAL, "--", "yes"], stdout=subprocess.PIPE
    )
    with process:
        process.stdout.read(65536)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130
        assert time.monotonic() - began < 2


def test_the_shell_is_interactive_and_restores_the_terminal(workspace):
    """`sandbox shell` gives a terminal in the sandbox, passes the exit status on and leaves ours as it was."""
    import termios

    leader, follower = pty.openpty()
    before = termios.tcgetattr(follower)
    process = subprocess.Popen(
        [*SANDBOX, "shell", "-w", str(workspace), "--image", MINIMAL], stdin=follower, stdout=follower, stderr=follower
    )
    said = b""
    while b"$ " not in said and b"# " not in said:
        said += os.read(leader, 4096)
    os.write(leader, b"tty; echo $((40+2)); exit 9\n")
    while b"42\r\n" not in said:
        said += os.read(leader, 4096)
    assert b"/dev/pts/0" in said
    assert process.wait(20) == 9
    assert termios.tcgetattr(follower) == before
    os.close(leader)
    os.close(follower)


def test_several_command_lines_at_once_do_not_mix(workspace):
    """Twelve at the same time each get their own input, output and exit status."""
    started = [
        subprocess.Popen(
            [*SANDBOX, "run", "-w", str(workspace), "--image", MINIMAL, "-i", "-c", f"cat; exit {number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(12)
    ]
    answers = [
        (process.communicate(b"%d" % number, timeout=60)[0], process.returncode)
        for number, process in enumerate(started)
    ]
    assert answers == [(b"%d" % number, number) for number in range(12)]


def test_a_reader_that_went_away_ends_the_command(workspace):
    """`sandbox run -c yes | head -1` ends at once, as if SIGPIPE had reached it."""
    process = subprocess.Popen(
        [*SANDBOX, "run", "-w", str(workspace), "--image", MINIMAL, "--", "yes"], stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(10) == 141


def test_stdin_of_a_script_is_left_alone(workspace):
    """Without -i nothing is read: in `while read x; do sandbox run ...; done` the loop keeps its lines."""
    words = " ".join([*SANDBOX, "run", "-w", str(workspace), "--image", MINIMAL, "-c", "true"])
    result = subprocess.run(
        ["sh", "-c", f"while read x; do {words}; echo $x; done"],
        input=b"1\n2\n",
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert result.stdout == b"1\n2\n"


def test_nothing_is_left_of_a_command_line_that_was_killed(workspace, engine_client):
    """kill -9 of `sandbox run`: its container is gone a moment later, with a daemon as without."""
    from provider.engine.owner import OWNER_LABEL

    def ours():
        found = engine_client.containers(filters={"label": OWNER_LABEL})
        return [item for item in found if any(str(workspace) == mount["Source"] for mount in item["Mounts"])]

    process = subprocess.Popen(
        [*SANDBOX, "run", "-w", str(workspace), "--image", MINIMAL, "--cpus", "0.77", "-c", "echo up; sleep 300"],
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout.readline() == b"up\n"
        busy = {item["Id"] for item in ours()}
        process.kill()
    until = time.monotonic() + 10
    # A daemon has spares of this kind; they wait, and only the one that worked goes.
    while {item["Id"] for item in ours()} >= busy and time.monotonic() < until:
        time.sleep(0.02)
    assert not {item["Id"] for item in ours()} >= busy
