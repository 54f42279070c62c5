"""What `inside.mk8.main` promises: a script in, lines of JSON out, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provider.inside.mk8.compiled import Compiled, Guard, Rules, Step
from provider.inside.mk8.main import INPUT_BYTES, run

INSIDE = Path(__file__).parents[3] / "provider" / "inside"
PROGRAM = "import sys; sys.path.insert(0, {!r}); from mk8.main import program; sys.exit(program())"


def step(verb: str, *args: str, **given: Any) -> Step:
    return Step(verb=verb, args=args, retries=0, timeout=30.0, **given)


def script(root: Path, *steps: Step, **given: Any) -> Compiled:
    return Compiled(root=str(root), user="tester", network="none", steps=steps, **given)


def start(data: bytes, **given: Any) -> subprocess.CompletedProcess[bytes]:
    """As it runs in a sandbox: with nothing but Python around it."""
    command = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM.format(str(INSIDE))]
    return subprocess.run(command, input=data, capture_output=True, timeout=60, check=False, **given)


def lines(data: bytes) -> list[dict[str, Any]]:
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data[:-1].split(b"\n")]


def test_a_script_becomes_lines_of_json(tmp_path):
    """Each event is a line, the result is the last, and the status is 0."""
    compiled = script(tmp_path, step("Echo", "ä\n\u2028\x00"), step("FileWrite", "a.txt", "text"))
    done = start(json.dumps(compiled.to_json()).encode())
    events = lines(done.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [event["event"] for event in events] == ["step_started", "step_finished"] * 2 + ["result"]
    result = events[-1]["result"]
    assert [one["output"] for one in result["steps"]] == [
        "ä\n\u2028\x00",
        f"Written 4 chars to {tmp_path}/a.txt",
    ]
    assert [event["step"] for event in events if event["event"] == "step_finished"] == result["steps"]
    assert (tmp_path / "a.txt").read_text() == "text"


def test_a_failed_script_ends_with_one(tmp_path):
    """The status says whether all went well."""
    done = start(json.dumps(script(tmp_path, step("Fail", "no")).to_json()).encode())
    assert done.returncode == 1
    assert lines(done.stdout)[-1]["result"]["allSucceeded"] is False


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"null", b"[]", b"{}", b'"x"', b"\xff", b'{"rules": 1}', b"[" * 100_000, b'{"steps": []}'],
    ids=repr,
)
def test_a_broken_input_is_two_and_no_output(data):
    """What is no compiled script is told on stderr, in one line."""
    done = start(data)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"mk8: stdin is no compiled script: ")
    assert done.stderr.count(b"\n") == 1


def test_input_has_a_limit(tmp_path):
    """More than any script can be is not even parsed."""
    assert run(b" " * (INPUT_BYTES + 1), lambda line: None) == 2


def test_everything_in_a_script_survives_the_way(tmp_path):
    """What the host compiles is what the sandbox executes."""
    rules = Rules(blacklist=("x",), words={"A": ("b", "c")}, freetext={"enabled": True}, project_bases=("P",))
    one = step(
        "Echo",
        "a",
        label="l",
        on_failure="m",
        capture="c",
        guards=(Guard(kind="PrevEmpty", args=("x",), once=3),),
        cwd="sub",
        source="s",
        template={"K": "v"},
        patches=(("f", "r"),),
    )
    compiled = script(
        tmp_path,
        one,
        cleanup=(replace(one, label=None),),
        rules=rules,
        variables={"A": "1"},
        answers={"Mk8Info": "x"},
        failure_mode="StopAndCleanup",
        pipes=True,
    )
    assert Compiled.from_json(json.loads(json.dumps(compiled.to_json()))) == compiled


REPLACED = (
    "import os, dataclasses, mk8.verbs as verbs\n"
    "def act(world, args):\n"
    "    {body}\n"
    "verbs.VERBS['Echo'] = dataclasses.replace(verbs.VERBS['Echo'], act=act)\n"
)


def start_with(body: str, data: bytes) -> subprocess.CompletedProcess[bytes]:
    """As it runs in a sandbox, but for what Echo does."""
    program = PROGRAM.format(str(INSIDE)).replace("from mk8", f"exec({REPLACED.format(body=body)!r}); from mk8", 1)
    command = [sys.executable, "-I", "-S", "-B", "-c", program]
    return subprocess.run(command, input=data, capture_output=True, timeout=60, check=True)


def test_only_events_reach_stdout(tmp_path):
    """Whatever a verb or its process writes to stdout by mistake does not get into the events."""
    data = json.dumps(script(tmp_path, step("Echo", "x")).to_json()).encode()
    done = start_with("print('no', flush=True); os.write(1, b'no'); os.system('echo no'); return 'said'", data)
    assert [event["event"] for event in lines(done.stdout)] == ["step_started", "step_finished", "result"]
    assert done.stderr.count(b"no") == 3


@pytest.mark.parametrize(("more", "adopts"), [((), "0"), ((step("ProcRun", "which", "git"),), "1")])
def test_orphans_are_adopted_where_there_are_processes(tmp_path, more, adopts):
    """A script with ProcRun makes the program the parent of what processes leave behind."""
    data = json.dumps(script(tmp_path, step("Echo", "x"), *more).to_json()).encode()
    ask = "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(37, ctypes.byref(n)); return str(n.value)"
    assert lines(start_with(ask, data).stdout)[-1]["result"]["steps"][0]["output"] == adopts


def test_events_come_as_they_happen(tmp_path):
    """The first step is told while the second one is still running."""
    compiled = script(tmp_path, step("Echo", "first"), step("Sleep", "20"))
    command = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM.format(str(INSIDE))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(json.dumps(compiled.to_json()).encode())
        process.stdin.close()
        began = time.monotonic()
        told = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert time.monotonic() - began < 15
        assert [event["event"] for event in told] == ["step_started", "step_finished", "step_started"]
        process.kill()


def test_nobody_listening_is_no_crash(tmp_path):
    """When the reader is gone, the program ends without a word."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM.format(str(INSIDE))]
    data = json.dumps(script(tmp_path, step("Echo", "x")).to_json()).encode()
    done = subprocess.run(command, input=data, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_time_out_inside_the_program(tmp_path):
    """A script whose time is over still ends with its result."""
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "fifo")
    compiled = script(tmp_path, step("Echo", "kept"), step("Sleep", "20"), script_timeout=0.5)
    began = time.monotonic()
    done = start(json.dumps(compiled.to_json()).encode())
    assert time.monotonic() - began < 10
    result = lines(done.stdout)[-1]["result"]
    assert [(one["status"], one["errorCategory"]) for one in result["steps"]] == [
        ("Succeeded", None),
        ("Failed", "Timeout"),
    ]


HEAVY = {"asyncio", "urllib.request", "http.client", "ssl", "zipfile", "tarfile", "sqlite3", "subprocess", "ctypes"}


def test_it_starts_light():
    """Nothing is imported that a script without processes, archives and network does not need."""
    code = f"import sys; sys.path.insert(0, {str(INSIDE)!r}); import mk8.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, timeout=60, check=True)
    assert HEAVY & set(done.stdout.decode().split()) == set()
