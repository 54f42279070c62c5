"""The two tools for what was left running, over an engine without containers."""

from __future__ import annotations

import asyncio
import signal

import pytest

from provider.dialects.run_shell_command import background
from provider.model import Begun, Chunk, Ending, Leased, Process
from provider.testing import PID, FakeEngine

RUN, LIST, STOP = "run_shell_command", "list_background_processes", "stop_background_process"


def leaves(*pids, text=b"tick\n"):
    """A command that leaves processes behind, which write a little and go on."""
    ending = Ending(reason="exited", exit_code=0, pid=PID, background_pids=pids)
    return [Begun(PID), Chunk("stdout", b"started\n"), Leased(ending), Chunk("stdout", text), Chunk("stderr", b"tock")]


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - output comes when it comes
            await asyncio.sleep(0)


async def left_running(provider, engine, *, session="s", command="npm start &", pids=(8, 9)):
    reply = await provider.call(RUN, {"command": command}, session=session)
    engine.sandboxes[-1].running = tuple(Process(pid, f"node {pid}") for pid in pids)
    lease = provider.leases(session)[-1]
    await until(lambda: lease.stderr.total_bytes)
    return reply, lease


async def test_nothing_runs(made):
    """The contract's sentence."""
    async with made() as provider:
        reply = await provider.call(LIST, {})
    assert (reply.success, reply.content) == (True, {"summary": "No background processes found.", "processes": []})


async def test_what_runs_is_listed(made):
    """Pids, the command as the caller wrote it, output so far, byte counts, time left."""
    engine = FakeEngine(leaves(8, 9))
    async with made(engine) as provider:
        reply, lease = await left_running(provider, engine)
        listed = (await provider.call(LIST, {}, session="s")).content
    assert (reply.content["backgroundPids"], reply.content["stdout"]) == ([8, 9], "started\n")
    (entry,) = listed["processes"]
    assert listed["summary"] == "- [PID 8] RUNNING: `npm start &`\n- [PID 9] RUNNING: `npm start &`"
    assert (entry["lease"], entry["status"], entry["pids"]) == (lease.id, "RUNNING", [8, 9])
    assert entry["processes"][0] == {"pid": 8, "command": "node 8"}
    assert (entry["stdout"], entry["stdoutBytes"], entry["stdoutOmitted"]) == ("tick\n", 5, 0)
    assert (entry["stderr"], entry["stderrBytes"]) == ("tock", 4)
    assert 590 < entry["secondsLeft"] <= 600


async def test_output_is_bounded(made):
    """Head, tail, and the count of what is missing."""
    engine = FakeEngine(leaves(8, text=b"0123456789" * 10))
    async with made(engine, table={"output_characters": 10}) as provider:
        await left_running(provider, engine, pids=(8,))
        (entry,) = (await provider.call(LIST, {}, session="s")).content["processes"]
    assert entry["stdout"] == "01\n... [90 characters omitted] ...\n23456789"
    assert (entry["stdoutBytes"], entry["stdoutOmitted"]) == (100, 90)


async def test_a_session_sees_its_own_only(made):
    """What another session left running is neither listed nor stopped, and the text does not tell that it exists."""
    engine = FakeEngine(leaves(8))
    async with made(engine) as provider:
        _, lease = await left_running(provider, engine, session="mine", pids=(8,))
        assert (await provider.call(LIST, {}, session="theirs")).content["processes"] == []
        for payload, name in (({"pid": 8}, 8), ({"lease": lease.id}, lease.id), ({"pid": 99}, 99)):
            reply = await provider.call(STOP, payload, session="theirs")
            text = f"Access denied. Background process ID {name} not found in this session's history."
            assert (reply.success, reply.content["error"]) == (False, text)
        assert not lease.is_over


async def test_a_lease_is_stopped(made):
    """By its id, with everything in it; afterwards it is listed as exited."""
    engine = FakeEngine(leaves(8, 9))
    async with made(engine) as provider:
        _, lease = await left_running(provider, engine)
        reply = await provider.call(STOP, {"lease": lease.id}, session="s")
        assert (reply.success, reply.content) == (True, {"lease": lease.id, "stopped": True, "processes": []})
        (entry,) = (await provider.call(LIST, {}, session="s")).content["processes"]
        again = await provider.call(STOP, {"lease": lease.id}, session="s")
    assert (entry["status"], entry["reason"], entry["pids"], entry["stdout"]) == (
        "EXITED",
        "canceled",
        [8, 9],
        "tick\n",
    )
    assert not again.success


class Obeys:
    """Makes a fake sandbox lose a process when a signal reaches it."""

    def __init__(self, sandbox, number):
        self.sent = []
        self.sandbox, self.number = sandbox, number
        sandbox.signal = self

    def __call__(self, number, pid=None):
        self.sent.append((number, pid))
        if number == self.number:
            self.sandbox.running = tuple(one for one in self.sandbox.running if one.pid != pid)


async def test_one_process_is_stopped_by_its_pid(made):
    """It is asked to end; the others go on and are named."""
    engine = FakeEngine(leaves(8, 9))
    async with made(engine) as provider:
        _, lease = await left_running(provider, engine)
        obeys = Obeys(engine.sandboxes[0], signal.SIGTERM)
        reply = await provider.call(STOP, {"pid": 8}, session="s")
        assert (obeys.sent, lease.is_over) == ([(signal.SIGTERM, 8)], False)
    assert reply.content == {"lease": lease.id, "stopped": True, "processes": [{"pid": 9, "command": "node 9"}]}


async def test_a_process_that_does_not_end_is_killed(made, monkeypatch):
    """TERM, and KILL when it is still there."""
    monkeypatch.setattr(background, "GRACE_SECONDS", 0.05)
    engine = FakeEngine(leaves(8))
    async with made(engine) as provider:
        await left_running(provider, engine, pids=(8,))
        obeys = Obeys(engine.sandboxes[0], signal.SIGKILL)
        reply = await provider.call(STOP, {"pid": 8}, session="s")
    assert ([number for number, _ in obeys.sent], reply.success) == ([signal.SIGTERM, signal.SIGKILL], True)


async def test_a_process_that_survives_is_no_success(made, monkeypatch):
    """What cannot be killed is said to live."""
    monkeypatch.setattr(background, "GRACE_SECONDS", 0.02)
    engine = FakeEngine(leaves(8))
    async with made(engine) as provider:
        await left_running(provider, engine, pids=(8,))
        reply = await provider.call(STOP, {"pid": 8}, session="s")
    assert (reply.success, reply.content["stopped"]) == (False, False)


async def test_the_same_pid_in_two_sandboxes(made):
    """Each sandbox counts for itself; the lease tells them apart."""
    engine = FakeEngine(leaves(8))
    async with made(engine) as provider:
        _, first = await left_running(provider, engine, command="a &", pids=(8,))
        _, second = await left_running(provider, engine, command="b &", pids=(8,))
        reply = await provider.call(STOP, {"pid": 8}, session="s")
        assert first.id in reply.content["error"]
        assert second.id in reply.content["error"]
        Obeys(engine.sandboxes[1], signal.SIGTERM)
        reply = await provider.call(STOP, {"pid": 8, "lease": second.id}, session="s")
        assert (reply.success, first.is_over) == (True, False)


@pytest.mark.parametrize("payload", [{}, None, [], {"pid": "8"}, {"pid": True}, {"lease": 1}])
async def test_a_stop_that_names_nothing(payload, made):
    """The error says what to name."""
    async with made() as provider:
        reply = await provider.call(STOP, payload, session="s")
        verdict = provider.check(STOP, payload, session="s")
    assert (reply.success, reply.content["errorType"]) == (False, "INVALID_TOOL_PARAMS")
    assert verdict.decision.name == "REFUSE"


async def test_the_end_of_the_session_ends_them(made):
    """And nothing is listed as running any more."""
    engine = FakeEngine(leaves(8))
    async with made(engine) as provider:
        await left_running(provider, engine, pids=(8,))
        assert await provider.stop(session="s") == 1
        assert [one["status"] for one in (await provider.call(LIST, {}, session="s")).content["processes"]] == [
            "EXITED"
        ]
