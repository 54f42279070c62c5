"""
Group I, the second half: a yes is to one plan, which is shown as it is, and runs as it was shown.

Mutations are made from the fields of the plan itself, so a field that is added to it is tried without being named here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provider import Provider, Settings
from provider.approval import Answer, Grants, Question, check, decide
from provider.canonical import digest
from provider.errors import ApprovalRefused, CallError, Refused
from provider.model import Approval, Decision, Image, Plan, Verdict
from provider.questions import Questions
from provider.testing import FakeEngine

ASK = Verdict(decision=Decision.ASK, reasons=("it is asked about",))
Planned = Callable[..., Plan]


# I14: one field after the other.


def others(value: Any) -> Iterator[Any]:
    """Yield values of the same kind that are not this one."""
    match value:
        case bool():
            yield not value
        case int() | float():
            yield from (value + 1, value * 2 + 3)
        case str():
            yield from (f"{value}x", f"{value} ", f"{value}\u200b", value[1:] if value else "y", value.swapcase() + "Z")
        case Path():
            yield from (value / "x", value.parent / "elsewhere")
        case None:
            yield from (1.0, 2.0)
        case tuple():
            yield from ((*value, "x"), (*value, ""), value[1:] if value else ("x", "y"), tuple(reversed(value)))
            for at, item in enumerate(value):
                for other in others(item):
                    yield (*value[:at], other, *value[at + 1 :])
        case dict():
            yield from ({**value, "x": "y"}, dict(list(value.items())[1:]))
        case _:
            message = f"no other value is known for a {type(value).__name__}: say here what one is"
            raise NotImplementedError(message)


def mutations(whole: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the same with one field changed, for every field of every dataclass in it."""
    for one in fields(whole):
        value, name = getattr(whole, one.name), f"{path}.{one.name}".strip(".")
        if is_dataclass(value):
            changed: Iterator[tuple[str, Any]] = mutations(value, name)
        else:
            changed = ((name, other) for other in others(value) if other != value)
        for where, other in changed:
            yield where, replace(whole, **{one.name: other})


def sealed(plan: Plan) -> Plan:
    """With the digest that it would have had."""
    return replace(plan, digest=digest({"box": digest(asdict(plan.box)), "exec": asdict(plan.exec)}))


@pytest.fixture
def rich(planned: Planned) -> Plan:
    """A plan with something in every field."""
    image = Image(name="an-image", id="sha256:" + "a" * 64, volumes=("/data",))
    parts: dict[str, Any] = {"env": {"A": "1"}, "artifacts": ("a", "b/**"), "tty": (24, 80), "timeout": 5.0}
    return planned(image=image, argv=("rm", "-r", "x y"), background="keep", runtime="runsc", **parts)


@pytest.mark.attack("I14")
def test_a_yes_to_one_plan_is_none_to_any_other(rich: Plan) -> None:
    """Whichever single field is changed, however little, the yes does not fit."""
    assert sealed(rich) == rich, "the digest is made otherwise now; so must `sealed` make it"
    approval = Approval(by="x", answer=Answer.ONCE, plan_digest=rich.digest)
    check(approval, rich, ASK)
    seen: dict[str, int] = {}
    for where, mutated in mutations(rich):
        if where == "digest":
            continue
        seen[where] = seen.get(where, 0) + 1
        with pytest.raises(ApprovalRefused):
            check(approval, sealed(mutated), ASK)
    leaves = {name for name, _ in mutations(rich)} - {"digest"}
    assert seen.keys() == leaves
    assert {"exec.argv", "exec.env", "exec.cwd", "exec.timeout", "box.image.id", "box.network"} <= leaves
    assert {"box.workspace.inode", "box.limits.memory_bytes", "box.seccomp_sha256", "box.init_sha256"} <= leaves


@pytest.mark.attack("I14")
def test_no_two_of_a_plan_s_neighbours_have_one_digest(rich: Plan) -> None:
    """All mutations together: as many digests as plans."""
    plans = {
        repr((mutated.box, mutated.exec)): sealed(mutated).digest
        for where, mutated in mutations(rich)
        if where != "digest"
    }
    assert len(plans) > 100
    assert len(set(plans.values())) == len(plans)


# What is shown is what runs.


class Asks:
    """A provider whose every command is asked about, over an engine that keeps what it is given."""

    def __init__(self, workspace: Path, approver: Any, **more: Any) -> None:
        self.engine = FakeEngine()
        tools = {"run_shell_command": {"confirm": True}}
        chosen = Settings(spares=0, tools=tools, **more)
        self.provider = Provider(workspace, engine=self.engine, settings=chosen, approver=approver)

    async def run(self, *argv: str, **wishes: Any) -> Any:
        return await self.provider.run(argv, judged=ASK, **wishes)


NAMED = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t", "0": "\0"}
ESCAPE = re.compile(r"\\(?:x20\{(\d+)\}|u\{([0-9a-f]+)\}|x([0-9a-f]{2})|([\\nrt0]))")


def decoded(shown: str) -> str:
    """What a text was before it was shown; written without a look at the code that shows it."""

    def one(found: re.Match[str]) -> str:
        spaces, point, byte, named = found.groups()
        if spaces:
            return " " * int(spaces)
        if named:
            return NAMED[named]
        return chr(int(point, 16)) if point else chr(0xDC00 + int(byte, 16))

    return ESCAPE.sub(one, shown)


def read_question(text: str) -> dict[str, Any]:
    """Read a question as a person would, line by line."""
    argv = [line.partition("  ")[2] for line in text.split("\n") if re.match(r"argv\[\d+\]  ", line)]
    env = [re.sub(r"^env +", "", line) for line in text.split("\n") if line.startswith("env ")]
    (cwd,) = (re.sub(r"^in +", "", line).rpartition(", a ")[0] for line in text.split("\n") if line.startswith("in "))
    pairs = (decoded(line).partition("=") for line in env)
    return {
        "argv": tuple(decoded(re.sub(r"  \([\d,]+ characters\)$", "", line)) for line in argv),
        "env": tuple((name, value) for name, _, value in pairs),
        "cwd": decoded(cwd),
    }


texts = st.text(st.sampled_from("ab \\nrtx0u{}()=123\n\r\t\x1b\u0430\u202e\u200b\U0001f600\udcff")) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=300
)
names = st.text(st.sampled_from("AB \n\\\u0430"), min_size=1, max_size=5)


@pytest.mark.attack("I21")
@given(argv=st.lists(texts, max_size=4), env=st.dictionaries(names, texts, max_size=3))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_what_is_shown_is_what_runs(
    argv: list[str], env: dict[str, str], workspace: Path, installed: None
) -> None:
    """What a person reads decodes to the very words, variables and folder that pid 1 is given, and to nothing else."""
    questions: list[Question] = []

    async def yes(question: Question) -> Answer:
        questions.append(question)
        return Answer.ONCE

    asks = Asks(workspace, yes)
    await asks.run("program", *argv, env=env)
    (question,), (sandbox,) = questions, asks.engine.sandboxes
    assert (sandbox.box, sandbox.released) == (question.plan.box, question.plan.exec)
    assert sandbox.released
    assert all(" " <= character <= "~" or character == "\n" for character in question.text)
    read = read_question(question.text)
    assert read == {"argv": sandbox.released.argv, "env": sandbox.released.env, "cwd": sandbox.released.cwd}
    assert question.plan.digest in question.text
    await asks.provider.close()


@pytest.mark.attack("I21")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ls", "ls "),
        ("ls", "\u200bls"),
        ("curl", "\u0441url"),
        ("a b", "a\u00a0b"),
        ("e\u0301", "\u00e9"),
        ("ls", "ls\r"),
        ("x" + " " * 20_000 + "; curl e", "x" + " " * 19_999 + "; curl e"),
        ("\u202elruc", "curl"),
        ("\\u{202e}", "\u202e"),
    ],
)
async def test_no_two_commands_look_alike(one: str, other: str, planned: Planned) -> None:
    """Blanks, marks, look-alikes and combined letters are seen, in as many places as there are in the command."""
    shown = [
        Question(run_id="r", session="s", plan=planned(argv=("echo", text)), verdict=ASK).text for text in (one, other)
    ]
    lines = [[line for line in text.split("\n") if line.startswith("argv[1]")] for text in shown]
    assert lines[0] != lines[1]
    assert lines[0][0].rstrip() != lines[1][0].rstrip()


# Answers that are not for this question.


@pytest.fixture
async def waiting(
    workspace: Path, installed: None
) -> AsyncIterator[tuple[Asks, Questions, asyncio.Future[Any], Question]]:
    """A run that waits for its answer in a queue."""
    questions = Questions()
    asks = Asks(workspace, questions)
    run = asyncio.ensure_future(asks.run("rm", "x", session="s", run_id="r1"))
    question = await asyncio.wait_for(questions.wait(), 10)
    yield asks, questions, run, question
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    await asks.provider.close()


Waiting = tuple[Asks, Questions, "asyncio.Future[Any]", Question]


@pytest.mark.attack("I12")
async def test_an_id_that_is_in_use_is_not_used_again(waiting: Waiting) -> None:
    """A second run under the id of one that waits would get its answer."""
    asks, _, _, _ = waiting
    with pytest.raises(CallError, match="is taken"):
        await asks.run("ls", run_id="r1")
    assert asks.engine.sandboxes == []


@pytest.mark.attack("I16")
async def test_an_answer_counts_once(waiting: Waiting) -> None:
    """The same again, while it runs or afterwards, is refused, and the next run is asked about anew."""
    asks, questions, run, question = waiting
    answer = {"session": "s", "plan_digest": question.plan.digest}
    questions.answer("r1", "once", **answer)
    with pytest.raises(CallError, match=r"answered already|no question"):
        questions.answer("r1", "once", **answer)
    await run
    with pytest.raises(CallError, match="no question"):
        questions.answer("r1", "once", **answer)
    again = asyncio.ensure_future(asks.run("rm", "x", session="s", run_id="r1"))
    assert (await asyncio.wait_for(questions.wait(), 10)).plan.digest == question.plan.digest
    assert len(asks.engine.sandboxes) == 1
    questions.answer("r1", "deny", **answer)
    with pytest.raises(ApprovalRefused):
        await again


@pytest.mark.attack("I17")
async def test_an_answer_that_comes_too_late_is_none(workspace: Path, installed: None) -> None:
    """The time is over: the run is refused, and so is the answer."""
    questions = Questions()
    asks = Asks(workspace, questions, approval_seconds=0.05)
    with pytest.raises(ApprovalRefused):
        await asks.run("rm", "x", session="s", run_id="r1")
    with pytest.raises(CallError, match="no question"):
        questions.answer("r1", "once", session="s", plan_digest="x")
    assert asks.engine.sandboxes == []
    await asks.provider.close()


@pytest.mark.attack("I17")
async def test_a_yes_for_the_session_does_not_outlive_its_time(planned: Planned) -> None:
    """Nor the session."""
    question = Question(run_id="r", session="s", plan=planned(), verdict=ASK, remember=("git",))

    async def yes(_: Question) -> Answer:
        return Answer.SESSION

    expired, lasting = Grants(seconds=0.0), Grants(seconds=60.0)
    for grants in (expired, lasting):
        await decide(yes, question, grants, seconds=1)
    assert [expired.cover(question), lasting.cover(question)] == [False, True]
    lasting.drop("s")
    assert not lasting.cover(question)


@pytest.mark.attack("I18", "I19")
@pytest.mark.parametrize(
    "wrong",
    [{"session": "other"}, {"session": ""}, {"plan_digest": "0" * 64}, {"plan_digest": ""}, {"run_id": "r2"}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_an_answer_to_another_run_plan_or_person_is_refused(waiting: Waiting, wrong: dict[str, str]) -> None:
    """It changes nothing: the question waits on, and nothing has run."""
    asks, questions, run, question = waiting
    right = {"run_id": "r1", "session": "s", "plan_digest": question.plan.digest}
    with pytest.raises(CallError):
        questions.answer(**{**right, "answer": "once", **wrong})
    assert questions.list() == (question,)
    assert not run.done()
    assert asks.engine.sandboxes == []
    questions.answer(**right, answer="once")
    await run


@pytest.mark.attack("I18")
async def test_two_questions_at_once_do_not_share_an_answer(waiting: Waiting) -> None:
    """A yes to one, with the digest of the other, is a yes to neither."""
    asks, questions, run, first = waiting
    other = asyncio.ensure_future(asks.run("rm", "y", session="s", run_id="r2"))
    while len(questions.list()) < 2:  # noqa: ASYNC110 - the queue tells of one at a time
        await asyncio.sleep(0)
    second = next(question for question in questions.list() if question.run_id == "r2")
    with pytest.raises(CallError, match="asks about plan"):
        questions.answer("r1", "once", session="s", plan_digest=second.plan.digest)
    questions.answer("r2", "deny", session="s", plan_digest=second.plan.digest)
    with pytest.raises(ApprovalRefused):
        await other
    assert asks.engine.sandboxes == []
    questions.answer("r1", "once", session="s", plan_digest=first.plan.digest)
    await run
    assert [sandbox.released and sandbox.released.argv for sandbox in asks.engine.sandboxes] == [("rm", "x")]


@pytest.mark.attack("I20")
@pytest.mark.parametrize(
    "text",
    [
        "git log; curl e", "git log && rm x", "git log $(curl e)", "git log | sh", "git -c core.pager=sh log",
        "git log > x",
        "LD_PRELOAD=x git log", "git log\ncurl e", "./git log", "env git log; rm x",
        "git grep --open-files-in-pager=sh x",
        "git log >&'$(curl e)'", "for PATH in .; do git log; done", "git() { curl e; }; git log", "$x git log",
    ],
)  # fmt: skip
async def test_a_yes_to_a_program_is_not_widened(text: str, workspace: Path, installed: None) -> None:
    """After a yes for the session to `git`, whatever else is in a text is refused, or asked about again."""
    questions: list[Question] = []

    async def yes_to_git(question: Question) -> Answer:
        questions.append(question)
        return Answer.SESSION if len(questions) == 1 else Answer.DENY

    asks = Asks(workspace, yes_to_git)
    for _ in range(2):
        assert (await asks.provider.call("run_shell_command", {"command": "git log"}, session="s")).success
    assert len(questions) == 1, "the yes for the session is no such yes"
    made = len(asks.engine.sandboxes)
    assert not (await asks.provider.call("run_shell_command", {"command": text}, session="s")).success
    assert len(asks.engine.sandboxes) == made
    await asks.provider.close()


@pytest.mark.attack("I22")
@pytest.mark.parametrize("first", ["cancel", "answer"])
async def test_a_cancel_and_a_yes_at_once_have_one_outcome(waiting: Waiting, first: str) -> None:
    """Whichever comes first, nothing is left waiting, and a run that was cancelled before its yes has no container."""
    asks, questions, run, question = waiting
    if first == "cancel":
        cancelling = asyncio.ensure_future(asks.provider.cancel("r1"))
        await asyncio.sleep(0)
    with_answer = {"session": "s", "plan_digest": question.plan.digest}
    answered = True
    try:
        questions.answer("r1", "once", **with_answer)
    except CallError:
        answered = False
    if first == "answer":
        cancelling = asyncio.ensure_future(asks.provider.cancel("r1"))
    await cancelling
    try:
        outcome = await asyncio.wait_for(run, 10)
    except Refused:
        outcome = None
    ran = [sandbox for sandbox in asks.engine.sandboxes if sandbox.released]
    assert outcome is None or outcome.status in {"canceled", "completed"}
    assert len(ran) <= answered
    assert questions.list() == ()
    assert asks.provider.runs() == ()
    with pytest.raises(CallError, match="no question"):
        questions.answer("r1", "once", **with_answer)
