"""What `provider.run` promises: every run has an outcome or an error, a receipt, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from provider import Provider, run_sync
from provider import run as run_module
from provider import stream as stream_module
from provider.approval import Answer, Question
from provider.errors import (
    ApprovalRefused,
    CallError,
    DisposeFailed,
    EngineUnavailable,
    ImageMissing,
    PlanRejected,
    PolicyRefused,
    SandboxLost,
)
from provider.events import OutputArrived, StateChanged, StepFinished
from provider.model import Begun, BoxPlan, Chunk, Decision, Ending, Image, Limits, Plan, State, Verdict
from provider.questions import Questions
from provider.settings import Settings
from provider.testing import COMPLETES, PID, FakeEngine, FakeSandbox

WAITS = (Begun(PID), Chunk("stdout", b"partial"))
"""A command that lives until it is ended."""
SETTINGS = Settings(grace=0.05, spares=0)

Made = Callable[..., Provider]


pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture
def made(workspace: Path) -> Made:
    """Makes a provider over an engine of the test's own."""

    def make(engine: FakeEngine, **options: Any) -> Provider:
        return Provider(workspace, **{"settings": SETTINGS, "engine": engine, **options})

    return make


class Watcher:
    """Keeps the events of a run, and lets a test wait for one of its states."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self._reached = {state: asyncio.Event() for state in State}
        self._heard = asyncio.Event()

    async def __call__(self, event: Any) -> None:
        self.events.append(event)
        if isinstance(event, StateChanged):
            self._reached[event.state].set()
        if isinstance(event, OutputArrived):
            self._heard.set()

    async def until(self, state: State) -> None:
        await asyncio.wait_for(self._reached[state].wait(), 5)

    async def until_output(self) -> None:
        await asyncio.wait_for(self._heard.wait(), 5)

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.events if isinstance(event, StateChanged)]

    @property
    def steps(self) -> list[tuple[str, str | None]]:
        return [(event.step, event.error) for event in self.events if isinstance(event, StepFinished)]


async def ended(task: asyncio.Task[Any], seconds: float = 2) -> Any:
    """Wait for a task that ought to end by itself; a hang is the failure, not the end of the test run."""
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.cancel()
        pytest.fail(f"still under way after {seconds} s")
    return task.result()


# A run that goes well.


async def test_an_outcome_tells_what_the_command_did(made: Made):
    """Exit code, output, container and pid are told apart."""
    engine = FakeEngine(
        [
            Begun(PID),
            Chunk("stdout", b"out"),
            Chunk("stderr", b"err"),
            Ending(reason="exited", exit_code=3, pid=PID, background_pids=(8,)),
        ]
    )
    async with made(engine) as provider:
        outcome = await provider.run(["false"], run_id="mine")
    assert (outcome.run_id, outcome.status, outcome.exit_code, outcome.signal) == ("mine", State.FAILED, 3, None)
    assert (outcome.stdout, outcome.stderr, outcome.pid, outcome.background_pids) == (b"out", b"err", PID, (8,))
    assert outcome.container == engine.sandboxes[0].container
    assert not outcome.succeeded


async def test_states_and_steps_come_in_order(made: Made):
    """An observer sees each state and each step once, output between them, and the end last."""
    watcher = Watcher()
    engine = FakeEngine([Begun(PID), Chunk("stdout", b"x"), COMPLETES[-1]])
    async with made(engine) as provider:
        outcome = await provider.run(["true"], session="s", run_id="r", on_event=watcher)
    assert watcher.states == ["queued", "starting", "running", "completed"]
    assert watcher.steps == [(step, None) for step in ("judge", "plan", "approve", "open", "run", "collect")]
    told = [getattr(event, "state", None) or getattr(event, "step", None) or event.stream for event in watcher.events]
    assert told == [
        *("queued", "judge", "plan", "approve", "starting", "open", "running", "stdout", "run", "collect"),
        "completed",
    ]
    assert watcher.events[told.index("stdout")] == OutputArrived(stream="stdout", data=b"x")
    assert watcher.events[0] == StateChanged(run_id="r", session="s", state=State.QUEUED)
    assert set(outcome.receipt["timings_ms"]) == {"judge", "plan", "approve", "open", "run", "collect"}


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (Ending(reason="exited", exit_code=0), State.COMPLETED),
        (Ending(reason="exited", exit_code=1), State.FAILED),
        (Ending(reason="exited", signal=11), State.FAILED),
        (Ending(reason="exited", error="program: No such file", error_number=2), State.FAILED),
        (Ending(reason="timed_out", signal=9), State.TIMED_OUT),
        (Ending(reason="timed_out", exit_code=0), State.TIMED_OUT),
        (Ending(reason="canceled", exit_code=0), State.CANCELED),
        (Ending(reason="output_limit", exit_code=0), State.FAILED),
        (Ending(reason="exited", exit_code=0, oom_kills=1), State.COMPLETED),
    ],
)
async def test_every_ending_has_one_status(made: Made, ending: Ending, status: State):
    """Nothing but an exit of its own with 0 reads as success."""
    async with made(FakeEngine([Begun(PID), ending])) as provider:
        outcome = await provider.run(["x"])
    assert outcome.status is status
    assert outcome.succeeded == (status is State.COMPLETED)
    assert outcome.receipt["status"] == status.value


async def test_a_text_is_given_to_the_shell(made: Made):
    """A list of arguments is executed as it is; only a text goes through `sh -c`."""
    engine = FakeEngine()
    async with made(engine) as provider:
        await provider.run("echo $HOME")
        await provider.run(["echo", "$HOME"])
    assert [sandbox.released and sandbox.released.argv for sandbox in engine.sandboxes] == [
        ("sh", "-c", "echo $HOME"),
        ("echo", "$HOME"),
    ]


async def test_options_of_a_run_go_before_those_of_the_provider(made: Made):
    """Each part of the box can be named for all runs, or for one; None is not naming it."""
    engine = FakeEngine()
    wide = Limits(pids=9)
    async with made(engine, image="a", network="open", user="5:6", limits=wide) as provider:
        await provider.run(["x"], image=None)
        await provider.run(["x"], image="b", network="none", user="7:8", limits=Limits(pids=10), seccomp="unix")
    first, second = (sandbox.box for sandbox in engine.sandboxes)
    assert (first.image.name, first.network, first.uid, first.gid, first.limits.pids) == ("a", "open", 5, 6, 9)
    assert (second.image.name, second.network, second.uid, second.gid, second.limits.pids) == ("b", "none", 7, 8, 10)
    assert (first.seccomp, second.seccomp) == ("default", "unix")


async def test_a_command_runs_as_the_owner_of_the_workspace(made: Made, workspace: Path):
    """What it makes belongs to whom the workspace belongs."""
    engine = FakeEngine()
    async with made(engine) as provider:
        await provider.run(["x"])
    status = workspace.stat()
    assert (engine.sandboxes[0].box.uid, engine.sandboxes[0].box.gid) == (status.st_uid, status.st_gid)


async def test_artifacts_are_collected_after_the_command(made: Made, workspace: Path):
    """What the command has written is hashed, and what is not there is told."""

    async def script(sandbox: FakeSandbox) -> AsyncIterator[Any]:
        yield Begun(PID)
        (workspace / "made").write_bytes(b"x")
        yield COMPLETES[-1]

    async with made(FakeEngine(script)) as provider:
        outcome = await provider.run(["x"], artifacts=["made", "missing"])
    assert [artifact.path for artifact in outcome.artifacts] == ["made"]
    assert [problem.path for problem in outcome.artifact_problems] == ["missing"]


async def test_nothing_is_sent_to_a_sandbox_before_its_command(made: Made):
    """Pid 1 gives up at any frame that comes before the command; a signal or a size at that moment must wait or go."""
    engine = FakeEngine()
    sent: list[object] = []

    async def send_too_early(event: Any) -> None:
        if isinstance(event, StepFinished) and event.step == "open":
            assert engine.sandboxes[0].released is None
            (run,) = provider.runs()
            run.signal(signal.SIGINT)
            run.resize(30, 100)
            sent.extend([*engine.sandboxes[0].signals, *engine.sandboxes[0].sizes])

    async with made(engine) as provider:
        outcome = await provider.run(["x"], tty=(24, 80), on_event=send_too_early)
    assert outcome.callback_errors == ()
    assert sent == []


# Canceling.


async def test_a_run_is_canceled_by_its_id(made: Made):
    """Its caller gets a canceled outcome with what there was; the others go on."""
    engine = FakeEngine(WAITS)
    first, second = Watcher(), Watcher()
    async with made(engine) as provider:
        one = asyncio.create_task(provider.run(["x"], run_id="one", on_event=first))
        other = asyncio.create_task(provider.run(["x"], run_id="other", on_event=second))
        await first.until_output()
        await second.until_output()
        assert await provider.cancel("one") is True
        outcome = await ended(one)
        assert (outcome.status, outcome.stdout) == (State.CANCELED, b"partial")
        assert [run.id for run in provider.runs()] == ["other"]
        assert not other.done()
        await provider.cancel("other")
        await other


@pytest.mark.parametrize("reason", ["canceled", "timed_out", "output_limit"])
async def test_observers_hear_how_a_run_that_was_ended_has_ended(made: Made, reason: str):
    """The last state reaches whoever watches, also of a run that was cut short."""
    watcher = Watcher()
    wishes: dict[str, Any] = {"timed_out": {"timeout": 0.02}, "output_limit": {"limits": Limits(flood_bytes=1)}}
    async with made(FakeEngine(WAITS)) as provider:
        running = asyncio.create_task(provider.run(["x"], run_id="r", on_event=watcher, **wishes.get(reason, {})))
        await watcher.until_output()
        if reason == "canceled":
            await provider.cancel("r")
        outcome = await ended(running)
    assert watcher.states[-1] == outcome.status
    assert watcher.steps[-1] == ("collect", None)


async def test_canceling_nobody_is_told(made: Made):
    """An unknown id, or one whose run is over, is False and nothing else."""
    async with made(FakeEngine()) as provider:
        await provider.run(["x"], run_id="over")
        assert await provider.cancel("over") is False
        assert await provider.stop(session="none") == 0


async def test_a_session_is_stopped_and_no_other(made: Made):
    """Every run of that session ends as canceled, and none of another's."""
    engine = FakeEngine(WAITS)
    watchers = [Watcher() for _ in range(3)]
    async with made(engine) as provider:
        runs = [
            asyncio.create_task(provider.run(["x"], session=session, on_event=watcher))
            for session, watcher in zip(("a", "a", "b"), watchers, strict=True)
        ]
        for watcher in watchers:
            await watcher.until(State.RUNNING)
        assert len(provider.runs("a")) == 2
        assert await provider.stop(session="a") == 2
        assert [(await ended(run)).status for run in runs[:2]] == [State.CANCELED] * 2
        assert not runs[2].done()
        assert len(provider.runs()) == 1
    assert (await ended(runs[2])).status is State.CANCELED


async def test_stopping_a_nameless_session_leaves_the_named_alone(made: Made):
    """The empty name is a session like any other."""
    engine = FakeEngine(WAITS)
    named, nameless = Watcher(), Watcher()
    async with made(engine) as provider:
        one = asyncio.create_task(provider.run(["x"], session="a", on_event=named))
        other = asyncio.create_task(provider.run(["x"], on_event=nameless))
        await named.until(State.RUNNING)
        await nameless.until(State.RUNNING)
        assert await provider.stop(session="") == 1
        await ended(other)
        assert not one.done()


async def test_canceling_the_task_disposes_of_the_sandbox(made: Made, tmp_path: Path):
    """Asyncio's own cancellation is passed on, put down, and leaves nothing."""
    engine = FakeEngine(WAITS)
    watcher = Watcher()
    async with made(engine) as provider:
        running = asyncio.create_task(provider.run(["x"], on_event=watcher, receipt=tmp_path / "r.json"))
        await watcher.until(State.RUNNING)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ended(running)
        assert provider.runs() == ()
    assert engine.sandboxes[0].disposals == 1
    assert watcher.states[-1] == "canceled"
    assert json.loads((tmp_path / "r.json").read_text())["status"] == "canceled"


@pytest.mark.parametrize("how", ["id", "task"])
async def test_a_run_can_be_canceled_while_its_sandbox_opens(made: Made, how: str):
    """Nobody waits for an engine that hangs; a sandbox that comes of it all the same is disposed of."""
    engine = FakeEngine(WAITS, open_gate=asyncio.Event())
    async with made(engine) as provider:
        running = asyncio.create_task(provider.run(["x"], run_id="r"))
        await engine.opening.wait()
        if how == "id":
            await provider.cancel("r")
            outcome = await ended(running)
            assert (outcome.status, outcome.container, outcome.stdout) == (State.CANCELED, None, b"")
            assert outcome.receipt["status"] == "canceled"
        else:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ended(running)
    assert engine.sandboxes == []


@pytest.mark.parametrize("how", ["id", "task"])
async def test_a_sandbox_that_opens_too_late_is_disposed_of(made: Made, how: str):
    """An engine that cannot be called back delivers; what it delivers is not forgotten."""
    gate = asyncio.Event()

    class Stubborn(FakeEngine):
        async def open(self, box: BoxPlan) -> FakeSandbox:
            opening = asyncio.ensure_future(super().open(box))
            while not opening.done():
                try:
                    await asyncio.shield(opening)
                except asyncio.CancelledError:
                    gate.set()
            return opening.result()

    engine = Stubborn(WAITS, open_gate=gate)
    async with made(engine) as provider:
        running = asyncio.create_task(provider.run(["x"], run_id="r"))
        await engine.opening.wait()
        if how == "id":
            await provider.cancel("r")
        else:
            running.cancel()
        await asyncio.wait({running}, timeout=2)
        assert running.done()
    assert [sandbox.disposals for sandbox in engine.sandboxes] == [1]
    assert engine.sandboxes[0].released is None


async def test_a_run_can_be_canceled_before_it_begins(made: Made):
    """A wish that comes first counts: the command is never let run to its end."""
    engine = FakeEngine(WAITS)
    async with made(engine) as provider:
        running = asyncio.create_task(provider.run(["x"], run_id="r"))
        await asyncio.sleep(0)
        assert await provider.cancel("r")
        assert (await ended(running)).status is State.CANCELED


async def test_a_sandbox_is_disposed_of_when_its_run_is_canceled_right_after_opening(made: Made):
    """There is no moment between open and run at which a cancellation would leave a container."""
    engine = FakeEngine(WAITS)
    opened = asyncio.Event()

    async def stall_after_open(event: Any) -> None:
        if isinstance(event, StepFinished) and event.step == "open":
            opened.set()
            await asyncio.Event().wait()

    async with made(engine) as provider:
        running = asyncio.create_task(provider.run(["x"], on_event=stall_after_open))
        await opened.wait()
        running.cancel()
        await asyncio.wait({running}, timeout=2)
        assert running.done()
    assert [sandbox.disposals for sandbox in engine.sandboxes] == [1]


@pytest.mark.parametrize("state", [State.QUEUED, State.STARTING, State.RUNNING])
@pytest.mark.parametrize("how", ["id", "task"])
async def test_an_observer_that_stalls_cannot_keep_a_run_from_being_canceled(made: Made, state: State, how: str):
    """Whatever an observer does, and when, a canceled run is over within a second."""
    stalled = asyncio.Event()

    async def stall(event: Any) -> None:
        if stalled.is_set() or getattr(event, "state", None) is state:
            stalled.set()
            await asyncio.Event().wait()

    provider = made(FakeEngine(WAITS))
    running = asyncio.create_task(provider.run(["x"], run_id="r", on_event=stall))
    await stalled.wait()
    if how == "id":
        await provider.cancel("r")
    else:
        running.cancel()
    done, _ = await asyncio.wait({running}, timeout=1)
    if not done:  # let it go, so that the test itself can end
        for run in provider.runs():
            run.listeners.give_up()
        running.cancel()
        await asyncio.wait({running}, timeout=1)
    await provider.close()
    assert done


async def test_a_run_is_timed_out_with_what_it_wrote(made: Made):
    """The deadline is part of the outcome, and so is the output before it."""
    async with made(FakeEngine(WAITS)) as provider:
        outcome = await asyncio.wait_for(provider.run(["x"], timeout=0.02), 5)
    assert (outcome.status, outcome.timed_out, outcome.stdout) == (State.TIMED_OUT, True, b"partial")


async def test_a_command_that_pid_1_cannot_end_has_an_outcome_and_a_receipt(
    made: Made, monkeypatch: pytest.MonkeyPatch
):
    """The second line is an ending like any other."""
    monkeypatch.setattr(stream_module, "SECOND_LINE_SECONDS", 0.01)
    engine = FakeEngine(WAITS, deaf=True)
    async with made(engine) as provider:
        outcome = await asyncio.wait_for(provider.run(["x"], timeout=0.02), 5)
    assert (outcome.status, outcome.signal) == (State.TIMED_OUT, signal.SIGKILL)
    assert outcome.receipt["ending"]["signal"] == 9


# Refusals and faults.


async def test_root_is_noted(made: Made):
    """Running as uid 0 is said in the outcome and in the receipt."""
    async with made(FakeEngine()) as provider:
        outcome = await provider.run(["x"], user="0:0")
        assert any("uid 0" in note for note in outcome.notes)
        assert outcome.receipt["notes"] == list(outcome.notes)
        assert (await provider.run(["x"], user="1:0")).notes == ()


@pytest.mark.parametrize("user", ["0:0", "00:0", "000:1000"])
async def test_root_can_be_forbidden(made: Made, user: str):
    """With allow_root off nothing is opened for uid 0, however it is written."""
    engine = FakeEngine()
    async with made(engine, settings=Settings(allow_root=False)) as provider:
        with pytest.raises(PolicyRefused, match="allow_root"):
            await provider.run(["x"], user=user)
    assert engine.sandboxes == []


async def test_a_root_owned_workspace_is_root(made: Made, tmp_path: Path):
    """The owner decides, also when it is root."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a root-owned directory")
    engine = FakeEngine()
    async with Provider(tmp_path, settings=SETTINGS, engine=engine) as provider:
        assert any("uid 0" in note for note in (await provider.run(["x"])).notes)
    async with Provider(tmp_path, settings=Settings(allow_root=False), engine=engine) as provider:
        with pytest.raises(PolicyRefused):
            await provider.run(["x"])


async def test_a_workspace_that_holds_the_provider_is_noted(made: Made, monkeypatch: pytest.MonkeyPatch):
    """Whoever lets an agent work on the provider itself is told what that means."""
    package = Path(run_module.__file__).parent
    engine = FakeEngine()
    async with Provider(package, settings=SETTINGS, engine=engine) as provider:
        outcome = await provider.run(["x"])
    assert any("provider itself" in note for note in outcome.notes)


async def test_a_refusal_leaves_a_receipt(made: Made, tmp_path: Path):
    """On the error and in the file, with the reasons, and with nothing after the step that said no."""
    watcher = Watcher()
    async with made(FakeEngine(), settings=Settings(allow_root=False)) as provider:
        with pytest.raises(PolicyRefused) as caught:
            await provider.run(["x"], user="0:0", run_id="r", receipt=tmp_path / "r.json", on_event=watcher)
    receipt = caught.value.receipt
    assert receipt is not None
    assert (receipt["run_id"], receipt["status"]) == ("r", "error")
    assert receipt["verdict"]["decision"] == "refuse"
    assert receipt["error"]["kind"] == "PolicyRefused"
    assert receipt["approval"] is None
    assert json.loads((tmp_path / "r.json").read_text()) == receipt
    assert watcher.states == ["queued", "failed"]
    assert [step for step, _ in watcher.steps] == ["judge"]


async def test_an_approver_decides_what_is_asked(made: Made, monkeypatch: pytest.MonkeyPatch):
    """Where the policy asks, the approver sees the plan; without one the answer is no."""
    monkeypatch.setattr(
        run_module, "judge", lambda request, settings, rules: Verdict(decision=Decision.ASK, reasons=("why",))
    )
    seen: list[Plan] = []

    async def ann(question: Question) -> Answer:
        seen.append(question.plan)
        return Answer.ONCE if question.plan.exec.argv == ("good",) else Answer.DENY

    engine = FakeEngine()
    async with made(engine, approver=ann) as provider:
        outcome = await provider.run(["good"])
        with pytest.raises(ApprovalRefused, match="why") as caught:
            await provider.run(["bad"])
    decided = {"by": "ann", "answer": "once", "plan_digest": seen[0].digest, "remembered": []}
    assert outcome.receipt["approval"] == decided
    assert caught.value.receipt is not None
    assert caught.value.receipt["approval"] == {**decided, "answer": "deny", "plan_digest": seen[1].digest}
    assert len(engine.sandboxes) == 1
    async with made(engine) as provider:
        with pytest.raises(ApprovalRefused):
            await provider.run(["good"])


async def test_the_rules_of_a_contract_can_only_make_it_stricter(made: Made):
    """What the caller's contract refuses is refused, and what it allows is still asked of the policy."""
    async with made(FakeEngine(), settings=Settings(allow_root=False)) as provider:
        with pytest.raises(PolicyRefused, match="not in the list"):
            await provider.run(["x"], judged=Verdict(decision=Decision.REFUSE, reasons=("not in the list",)))
        with pytest.raises(PolicyRefused, match="uid 0"):
            await provider.run(["x"], user="0:0", judged=Verdict(decision=Decision.ALLOW))


async def test_a_cancel_does_not_wait_for_an_approver(made: Made):
    """A run that waits for an answer is canceled at once, and the late answer starts nothing."""
    questions = Questions()
    engine = FakeEngine()
    ask = Verdict(decision=Decision.ASK, reasons=("why",))
    async with made(engine, approver=questions) as provider:
        running = asyncio.create_task(provider.run(["x"], run_id="r", session="s", judged=ask))
        question = await questions.wait()
        await provider.cancel("r")
        outcome = await running
        with pytest.raises(CallError):
            questions.answer("r", Answer.ONCE, session="s", plan_digest=question.plan.digest)
    assert (outcome.status, outcome.container, engine.sandboxes) == (State.CANCELED, None, [])


async def test_a_session_is_asked_once_for_what_its_contract_remembers(made: Made):
    """A yes for the session covers the same again, for that session, until it is stopped; nothing else."""
    asked: list[str] = []

    async def ann(question: Question) -> Answer:
        asked.append(question.session)
        return Answer.SESSION

    ask = Verdict(decision=Decision.ASK, reasons=("why",))
    async with made(FakeEngine(), approver=ann) as provider:
        for session, remember in [("a", ("git",)), ("a", ("git",)), ("a", ("git", "rm")), ("b", ("git",)), ("a", ())]:
            await provider.run(["x"], session=session, remember=remember, judged=ask)
        assert asked == ["a", "a", "b", "a"]
        again = await provider.run(["x"], session="a", remember=("rm",), judged=ask)
        assert again.receipt["approval"]["by"] == "session"
        await provider.stop(session="a")
        await provider.run(["x"], session="a", remember=("git",), judged=ask)
    assert asked == ["a", "a", "b", "a", "a"]


@pytest.mark.parametrize("error", [PlanRejected("p"), EngineUnavailable("e"), SandboxLost("s")])
async def test_an_engine_that_fails_to_open_is_an_error_with_a_receipt(made: Made, error: Exception, tmp_path: Path):
    """There is no outcome, and the plan that could not be had is in the receipt."""
    watcher = Watcher()
    async with made(FakeEngine(open_error=error)) as provider:
        with pytest.raises(type(error)) as caught:
            await provider.run(["x"], receipt=tmp_path / "r.json", on_event=watcher)
        assert provider.runs() == ()
    assert caught.value.receipt
    assert caught.value.receipt["plan"]["sha256"]
    assert caught.value.receipt["ending"] is None
    assert watcher.steps[-1] == ("open", str(error))
    assert watcher.states[-1] == "failed"
    assert json.loads((tmp_path / "r.json").read_text()) == caught.value.receipt


async def test_a_missing_image_is_an_error(made: Made):
    """It is looked up before anything is created."""

    class Empty(FakeEngine):
        async def image(self, name: str) -> Image:
            raise ImageMissing(name)

    engine = Empty()
    async with made(engine) as provider:
        with pytest.raises(ImageMissing):
            await provider.run(["x"], image="none")
    assert engine.sandboxes == []


async def test_a_sandbox_lost_in_the_middle_is_disposed_of(made: Made):
    """What it had written is no result; the container is removed all the same."""
    engine = FakeEngine([*WAITS, SandboxLost("gone")])
    async with made(engine) as provider:
        with pytest.raises(SandboxLost, match="gone") as caught:
            await provider.run(["x"])
    assert engine.sandboxes[0].disposals == 1
    assert caught.value.receipt


@pytest.mark.parametrize(
    "wish",
    [
        {"argv": []},
        {"cwd": ".."},
        {"env": {"": "x"}},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"limits": Limits(cpus=float("nan"))},
        {"argv": ["x", "\ud800"]},
        {"env": {"A": "\ud800"}},
        {"user": "me"},
        {"user": "1" * 5000 + ":1"},
        {"network": "host"},
        {"artifacts": ["../x"]},
        {"artifacts": ["/etc/passwd"]},
        {"tty": (1, 70_000)},
    ],
    ids=" ".join,
)
async def test_a_callers_mistake_opens_nothing_and_leaves_a_receipt(made: Made, wish: dict[str, Any], tmp_path: Path):
    """Every mistake is told as one, before anything is created, and put down."""
    engine = FakeEngine()
    async with made(engine) as provider:
        with pytest.raises(CallError) as caught:
            await provider.run(**{"argv": ["x"], "receipt": tmp_path / "r.json", **wish})
        assert provider.runs() == ()
    assert engine.sandboxes == []
    assert caught.value.receipt
    assert json.loads((tmp_path / "r.json").read_text()) == caught.value.receipt


async def test_a_receipt_that_cannot_be_written_does_not_hide_what_happened(made: Made, tmp_path: Path):
    """A wrong path for the receipt is told before the command runs, or beside its outcome, but never in its place."""
    engine = FakeEngine()
    missing = tmp_path / "missing/r.json"
    async with made(engine) as provider:
        try:
            outcome = await provider.run(["x"], receipt=missing)
        except CallError:
            assert engine.sandboxes == []
        else:
            assert outcome.succeeded
        with pytest.raises((CallError, PolicyRefused)):
            await provider.run(["x"], user="me", receipt=missing)


async def test_a_run_id_is_taken_while_its_run_lasts(made: Made):
    """A second run under the same id is refused, and does not disturb the first."""
    engine = FakeEngine(WAITS)
    watcher = Watcher()
    async with made(engine) as provider:
        running = asyncio.create_task(provider.run(["x"], run_id="r", on_event=watcher))
        await watcher.until(State.RUNNING)
        with pytest.raises(CallError, match="'r' is taken"):
            await provider.run(["x"], run_id="r")
        assert [run.id for run in provider.runs()] == ["r"]
        await provider.cancel("r")
        assert (await ended(running)).status is State.CANCELED
        again = asyncio.create_task(provider.run(["x"], run_id="r"))
        await asyncio.sleep(0)
        assert [run.id for run in provider.runs()] == ["r"]
        await provider.cancel("r")
        await ended(again)


async def test_callback_errors_are_in_the_outcome(made: Made):
    """A broken callback is told beside the outcome, not instead of it."""

    async def broken(_: bytes) -> None:
        raise ValueError

    async with made(FakeEngine([*WAITS, COMPLETES[-1]])) as provider:
        outcome = await provider.run(["x"], on_stdout=broken)
    assert outcome.succeeded
    assert [type(error) for error in outcome.callback_errors] == [ValueError]


# Closing.


async def test_after_close_nothing_is_left(made: Made):
    """Runs under way are canceled, every sandbox is disposed of, and the engine is closed."""
    engine = FakeEngine(WAITS)
    watchers = [Watcher() for _ in range(3)]
    async with made(engine) as provider:
        runs = [asyncio.create_task(provider.run(["x"], on_event=watcher)) for watcher in watchers]
        for watcher in watchers:
            await watcher.until(State.RUNNING)
    assert [(await run).status for run in runs] == [State.CANCELED] * 3
    assert [sandbox.disposals for sandbox in engine.sandboxes] == [1] * 3
    assert engine.closed


async def test_closing_ends_all_runs_at_once(made: Made):
    """One command that is slow to die does not keep the others alive."""
    engine = FakeEngine(WAITS, deaf=True)
    watchers = [Watcher() for _ in range(2)]
    provider = made(engine)
    runs = [asyncio.create_task(provider.run(["x"], on_event=watcher)) for watcher in watchers]
    for watcher in watchers:
        await watcher.until(State.RUNNING)
    closing = asyncio.create_task(provider.close())
    await asyncio.wait({closing}, timeout=0.1)
    told = [list(sandbox.terminated) for sandbox in engine.sandboxes]
    for sandbox in engine.sandboxes:  # now they die
        await sandbox.dispose()
    await asyncio.gather(*runs, return_exceptions=True)
    await ended(closing)
    assert told == [["canceled"], ["canceled"]]


async def test_closing_waits_for_disposals(made: Made):
    """An outcome does not wait for the container's removal; close does."""
    removed = asyncio.Event()

    class Slow(FakeEngine):
        async def open(self, box: BoxPlan) -> FakeSandbox:
            sandbox = await super().open(box)
            dispose = sandbox.dispose

            async def slowly() -> None:
                await removed.wait()
                await dispose()

            sandbox.dispose = slowly
            return sandbox

    engine = Slow()
    provider = made(engine)
    assert (await asyncio.wait_for(provider.run(["x"]), 2)).succeeded
    closing = asyncio.create_task(provider.close())
    await asyncio.wait({closing}, timeout=0.02)
    assert not closing.done()
    removed.set()
    await ended(closing)
    assert engine.sandboxes[0].disposals == 1


async def test_settling_waits_for_what_has_served_and_for_nothing_else(made: Made):
    """Afterwards the containers of ended runs are gone; the provider and its other runs go on."""
    engine = FakeEngine(WAITS)
    watcher = Watcher()
    async with made(engine) as provider:
        over = asyncio.create_task(provider.run(["x"], run_id="over", on_event=watcher))
        await watcher.until_output()
        going_on = asyncio.create_task(provider.run(["x"]))
        await provider.cancel("over")
        await ended(over)
        await asyncio.wait_for(provider.settle(), 2)
        assert engine.sandboxes[0].disposals == 1
        assert not going_on.done()
        assert not engine.closed


async def test_a_container_that_cannot_be_removed_keeps_the_outcome_and_surfaces_at_close(made: Made):
    """The caller gets what the command did; whoever closes the provider is told what may be left."""
    provider = made(FakeEngine(dispose_error=DisposeFailed("container c may still exist")))
    outcome = await provider.run(["x"])
    assert outcome.succeeded
    with pytest.raises(DisposeFailed, match="container c"):
        await provider.close()


async def test_a_container_left_by_a_canceled_open_surfaces_at_close(made: Made):
    """An engine that could not undo its own half-made container says so, and it is not lost on the way."""

    leak = DisposeFailed("container c may still exist")

    class Leaky(FakeEngine):
        async def open(self, box: BoxPlan) -> FakeSandbox:
            try:
                return await super().open(box)
            except asyncio.CancelledError:
                raise leak from None

    engine = Leaky(open_gate=asyncio.Event())
    provider = made(engine)
    running = asyncio.create_task(provider.run(["x"], run_id="r"))
    await engine.opening.wait()
    await provider.cancel("r")
    assert (await ended(running)).status is State.CANCELED
    with pytest.raises(DisposeFailed, match="container c"):
        await provider.close()


async def test_an_error_in_the_body_is_not_lost_when_closing(made: Made):
    """The context manager disposes and lets the error through."""
    engine = FakeEngine()

    async def fail() -> None:
        async with made(engine) as provider:
            await provider.run(["x"])
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert engine.sandboxes[0].disposals == 1
    assert engine.closed


async def test_a_workspace_is_checked_again_for_every_run(made: Made, workspace: Path):
    """A directory that was swapped for a link since is not taken."""
    async with made(FakeEngine()) as provider:
        await provider.run(["x"])
        workspace.rename(workspace.with_name("moved"))
        workspace.symlink_to("moved")
        with pytest.raises(CallError, match="symbolic link"):
            await provider.run(["x"])
    workspace.unlink()


# Without a loop.


def test_run_sync_needs_no_loop(workspace: Path):
    """A plain program gets the same outcome, with the options of both."""
    engine = FakeEngine([Begun(PID), Chunk("stdout", b"hi"), COMPLETES[-1]])
    outcome = run_sync(["echo", "hi"], workspace, settings=SETTINGS, engine=engine, image="i", env={"A": "1"})
    assert outcome.stdout == b"hi"
    assert outcome.container
    assert outcome.container.image == "i"
    assert engine.sandboxes[0].disposals == 1
    assert engine.closed


def test_run_sync_passes_errors_on(workspace: Path):
    """An error is raised as it is, with its receipt."""
    with pytest.raises(PlanRejected) as caught:
        run_sync(["x"], workspace, settings=SETTINGS, engine=FakeEngine(open_error=PlanRejected("no")))
    assert caught.value.receipt
