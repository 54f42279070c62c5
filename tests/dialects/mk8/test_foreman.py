"""What `mk8.foreman` promises: nothing runs that nobody permitted, and every job has an end that its record tells."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from provider.dialects.mk8.call import Call, Result
from provider.dialects.mk8.foreman import Foreman, Session
from provider.dialects.mk8.jobs import Job, JobStore
from provider.dialects.mk8.permissions import Caller, Channel, Clearance, Grant, PermissionSet
from provider.dialects.mk8.resources import Container
from provider.dialects.mk8.status import Status
from provider.errors import EngineUnavailable

ONE = "11111111-1111-4111-8111-111111111111"
ACTION = "execute_mk8_shell"
CALL = Call(id="7", action=ACTION, resource=ONE, script={"operations": []})
HOLDS = PermissionSet(grants=(Grant(action=ACTION, resource=ONE),))
PEER = Caller(kind="user", id="ada", permissions=HOLDS)
STRANGER = Caller(kind="user", id="eve")
SESSION = Session(agent="bot", channel=Channel(id="c"), user=PEER)


def bot(clearance: Clearance) -> Caller:
    grant = Grant(action=ACTION, resource=ONE, clearance=clearance)
    return Caller(kind="agent", id="bot", permissions=PermissionSet(grants=(grant,)))


class Hands:
    """Carries calls out, and remembers them."""

    def __init__(self) -> None:
        self.ran: list[Call] = []
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.gives: Result | BaseException = Result(id="7", status=Status.COMPLETED, result="done")
        self.cancelled = 0

    async def __call__(self, call: Call) -> Result:
        self.ran.append(call)
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.gives, BaseException):
            raise self.gives
        return replace(self.gives, id=call.id)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    with JobStore(tmp_path / "jobs.sqlite3") as opened:
        yield opened


@pytest.fixture
def hands() -> Hands:
    return Hands()


def foreman(store: JobStore, hands: Hands, agent: Caller | None = None) -> Foreman:
    agents = {"bot": agent or bot(Clearance.SAME_LEVEL_USER)}
    return Foreman(store, hands, agents=agents.get, containers=lambda: [Container(id=ONE, sandbox="box")])


def only(store: JobStore) -> Job:
    (job,) = store.list()
    return job


async def test_an_independent_agent_is_answered_at_once(store: JobStore, hands: Hands):
    """No approval; the job is Completed and has its whole way in the log."""
    result = await foreman(store, hands, bot(Clearance.INDEPENDENT)).submit(CALL, SESSION)
    assert (result.id, result.status, result.result, result.error) == ("7", Status.COMPLETED, "done", None)
    job = only(store)
    assert result.job == job.id
    assert (job.status, job.clearance, job.result) == (Status.COMPLETED, Clearance.INDEPENDENT, "done")
    assert [line.message for line in job.logs][1:] == ["the grant needs nobody's approval", "ended as Completed"]


@pytest.mark.parametrize("call", [CALL, replace(CALL, resource=None, sandbox="BOX")])
async def test_what_needs_approval_waits_and_nothing_runs(store: JobStore, hands: Hands, call: Call):
    """Nor does it run because the session's user could approve: it must be said. The resource is settled before."""
    result = await foreman(store, hands).submit(call, SESSION)
    assert (result.status, result.result, result.error) == (Status.AWAITING_APPROVAL, None, None)
    assert only(store).call.resource == ONE
    assert hands.ran == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            replace(CALL, resource="22222222-1111-4111-8111-111111111111"),
            "no grant for execute_mk8_shell on resource 2",
        ),
        (replace(CALL, resource=None), "resourceId is required"),
        (replace(CALL, resource=None, sandbox="nowhere"), "no container has the mk8.shell sandbox 'nowhere'"),
        (Call(id="7", action="create_container"), "no grant for create_container on no resource"),
    ],
)
async def test_a_denied_call_says_why(store: JobStore, hands: Hands, call: Call, said: str):
    """The reason is in the answer and in the log; the origin leaves the answer empty."""
    result = await foreman(store, hands).submit(call, SESSION)
    assert result.status is Status.DENIED
    assert said in str(result.error)
    assert said in only(store).logs[-1].message
    assert hands.ran == []


async def test_an_agent_that_nobody_knows_may_do_nothing(store: JobStore, hands: Hands):
    """No agent, no grant."""
    result = await foreman(store, hands).submit(CALL, replace(SESSION, agent="ghost"))
    assert result.status is Status.DENIED


async def test_who_hands_a_call_in_counts_as_approving_it(store: JobStore, hands: Hands):
    """A user who submits a job that the user may approve has approved it."""
    work = foreman(store, hands)
    assert (await work.submit(CALL, replace(SESSION, caller=PEER))).status is Status.COMPLETED
    assert (await work.submit(CALL, replace(SESSION, caller=STRANGER))).status is Status.AWAITING_APPROVAL


async def test_a_channel_pre_authorises(store: JobStore, hands: Hands):
    """With its grant the job runs, and the log names the channel."""
    session = replace(SESSION, channel=Channel(id="c", permissions=HOLDS))
    assert (await foreman(store, hands).submit(CALL, session)).status is Status.COMPLETED
    assert only(store).logs[1].message == "pre-authorised by channel c"
    await foreman(store, hands).submit(CALL, replace(session, user=STRANGER))
    assert store.list()[0].status is Status.AWAITING_APPROVAL


async def waiting(work: Foreman) -> str:
    result = await work.submit(CALL, SESSION)
    assert result.status is Status.AWAITING_APPROVAL
    assert result.job
    return result.job


async def test_an_approval_runs_the_call_that_was_asked_for(store: JobStore, hands: Hands):
    """The job is Completed, with who approved it."""
    work = foreman(store, hands)
    job = await work.approve(await waiting(work), PEER)
    assert (job.status, job.result) == (Status.COMPLETED, "done")
    assert hands.ran == [CALL]
    assert "approved by user ada" in [line.message for line in job.logs]


@pytest.mark.parametrize("who", [STRANGER, Caller(kind="agent", id="bot", permissions=HOLDS)])
async def test_an_approval_that_does_not_suffice_changes_nothing(store: JobStore, hands: Hands, who: Caller):
    """It still waits, and the log has a warning; the agent itself does not suffice either."""
    work = foreman(store, hands)
    job = await work.approve(await waiting(work), who)
    assert job.status is Status.AWAITING_APPROVAL
    assert job.logs[-1].level == "warning"
    assert "cannot approve it" in job.logs[-1].message
    assert hands.ran == []


@pytest.mark.parametrize("agent", [None, Caller(kind="agent", id="bot")])
async def test_an_approval_after_the_right_is_gone_is_a_denial(store: JobStore, hands: Hands, agent: Caller | None):
    """The agent lost its grant, or is gone itself, while the job waited."""
    job_id = await waiting(foreman(store, hands))
    job = await Foreman(store, hands, agents={"bot": agent}.get).approve(job_id, PEER)
    assert job.status is Status.DENIED
    assert "no grant" in str(job.error)
    assert hands.ran == []


async def test_what_does_not_wait_is_not_approved(store: JobStore, hands: Hands):
    """Done once, it is not done again: the log has a warning, the job is as it was."""
    work = foreman(store, hands)
    job_id = await waiting(work)
    first = await work.approve(job_id, PEER)
    second = await work.approve(job_id, PEER)
    assert replace(second, logs=first.logs) == first
    assert second.logs[-1].level == "warning"
    assert len(hands.ran) == 1
    with pytest.raises(LookupError):
        await work.approve("nothing", PEER)
    with pytest.raises(LookupError):
        work.cancel("nothing")


async def test_two_approvals_at_once_run_it_once(store: JobStore, hands: Hands):
    """Also through two foremen with stores of their own."""
    work = foreman(store, hands)
    job_id = await waiting(work)
    hands.may_end.clear()
    with JobStore(store.path) as mine:
        both = [asyncio.create_task(one.approve(job_id, PEER)) for one in (work, foreman(mine, hands))]
        await hands.begun.wait()
        hands.may_end.set()
        assert {job.status for job in await asyncio.gather(*both)} <= {Status.EXECUTING, Status.COMPLETED}
        assert mine.find(job_id).status is Status.COMPLETED
    assert len(hands.ran) == 1


@pytest.mark.parametrize("who", [PEER, STRANGER, None])
async def test_a_waiting_job_can_be_cancelled(store: JobStore, hands: Hands, who: Caller | None):
    """By anyone, as the contract has it; it is never run then."""
    work = foreman(store, hands)
    job_id = await waiting(work)
    job = work.cancel(job_id, who)
    assert job.status is Status.CANCELLED
    assert job.error == f"cancelled by {f'user {who.id}' if who else 'the program'}"
    assert (await work.approve(job_id, PEER)).status is Status.CANCELLED
    again = work.cancel(job_id, who)
    assert (again.status, again.logs[-1].level) == (Status.CANCELLED, "warning")
    assert hands.ran == []


async def test_a_running_job_is_ended_by_cancelling_it(store: JobStore, hands: Hands):
    """What it runs is stopped, and whoever waits for the answer has it."""
    work = foreman(store, hands, bot(Clearance.INDEPENDENT))
    hands.may_end.clear()
    running = asyncio.create_task(work.submit(CALL, SESSION))
    await hands.begun.wait()
    work.cancel(only(store).id, PEER)
    result = await running
    assert (result.status, result.error) == (Status.CANCELLED, "cancelled by user ada")
    assert hands.cancelled == 1


async def test_a_job_cancelled_elsewhere_stays_cancelled(store: JobStore, hands: Hands):
    """Another process cancels it in the record; the run comes to its end, and its result is dropped."""
    work = foreman(store, hands, bot(Clearance.INDEPENDENT))
    hands.may_end.clear()
    running = asyncio.create_task(work.submit(CALL, SESSION))
    await hands.begun.wait()
    with JobStore(store.path) as mine:
        foreman(mine, hands).cancel(only(store).id, PEER)
    hands.may_end.set()
    result = await running
    assert (result.status, result.result) == (Status.CANCELLED, None)
    assert "its result is dropped" in only(store).logs[-1].message


async def test_when_nobody_waits_any_more_the_job_is_cancelled(store: JobStore, hands: Hands):
    """The task that submitted it is cancelled: what it ran is stopped, and the record has an end."""
    hands.may_end.clear()
    running = asyncio.create_task(foreman(store, hands, bot(Clearance.INDEPENDENT)).submit(CALL, SESSION))
    await hands.begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert hands.cancelled == 1
    assert only(store).status is Status.CANCELLED


@pytest.mark.parametrize(
    ("gives", "error", "logged"),
    [
        (Result(id="", status=Status.FAILED, error="exit code 3"), "exit code 3", "ended as Failed"),
        (Result(id="", status=Status.FAILED), "it failed and did not say why", "ended as Failed"),
        (Result(id="", status=Status.DENIED, error="odd"), "odd", "ended as Failed"),
        (EngineUnavailable("the engine is gone"), "the engine is gone", "ended as Failed"),
        (
            KeyError("secret"),
            f"{ACTION} could not be carried out here (KeyError); see the job's log",
            "KeyError: 'secret'",
        ),
    ],
)
async def test_what_goes_wrong_is_a_failed_job(store: JobStore, hands: Hands, gives, error: str, logged: str):
    """Whatever comes of the run; an exception's own words are for the log and not for the model."""
    hands.gives = gives
    result = await foreman(store, hands, bot(Clearance.INDEPENDENT)).submit(CALL, SESSION)
    assert (result.status, result.error) == (Status.FAILED, error)
    job = only(store)
    assert job.status is Status.FAILED
    assert logged in [line.message for line in job.logs]


@pytest.mark.parametrize(
    ("user", "yes", "status", "asked"),
    [
        (PEER, True, Status.COMPLETED, 1),
        (PEER, False, Status.CANCELLED, 1),
        (STRANGER, True, Status.CANCELLED, 0),
        (None, True, Status.CANCELLED, 0),
    ],
)
async def test_in_a_stream_the_user_is_asked_at_once(
    store: JobStore, hands: Hands, user: Caller | None, yes: bool, status: Status, asked: int
):
    """Yes approves, no cancels; a user who could not approve is not asked, and the job does not wait."""
    questions: list[Job] = []

    async def ask(job: Job) -> bool:
        questions.append(job)
        return yes

    result = await foreman(store, hands).submit(CALL, replace(SESSION, user=user, ask=ask))
    assert result.status is status
    assert len(questions) == asked
    assert len(hands.ran) == (status is Status.COMPLETED)
    assert only(store).status is status
