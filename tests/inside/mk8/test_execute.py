"""What `inside.mk8.execute` promises: the order of things, what a failure leads to, and how long anything may take."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from provider.inside.mk8 import errors
from provider.inside.mk8.compiled import Compiled, Guard, Rules, Step
from provider.inside.mk8.errors import StepFailure, TimedOut
from provider.inside.mk8.execute import CLEANUP_SECONDS, RESULT_BYTES, execute
from provider.inside.mk8.verb import Done, Verb, World

NAMES = (
    *("stepIndex", "verb", "status", "success", "output", "error", "errorCategory", "exitCode", "attempts"),
    *("duration", "cleanup", "label"),
)
"""Of a step, in the contract's order."""


class Clock:
    """A time that passes only by sleeping, or by what a verb says that it takes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Bench:
    """Verbs for tests, what they were called with, and an executor around them."""

    def __init__(self, root: str = "/workspace") -> None:
        self.clock = Clock()
        self.events: list[dict[str, Any]] = []
        self.calls: list[tuple[str, ...]] = []
        self.worlds: list[World] = []
        self.root = root
        self.failures: dict[str, int] = {}
        self.verbs: dict[str, Verb] = {}
        self.add("Echo", lambda _, args: args[0])
        self.add("Fail", self._fail)
        self.add("Flaky", self._flaky)
        self.add("Takes", self._takes)

    def add(self, name: str, act: Callable[[World, Sequence[str]], Any]) -> None:
        def call(world: World, args: Sequence[str]) -> Any:
            self.calls.append((name, *args))
            self.worlds.append(world)
            return act(world, args)

        self.verbs[name] = Verb(name=name, least=0, most=64, kinds=(), describe="", act=call)

    def _fail(self, world: World, args: Sequence[str]) -> str:
        raise StepFailure(*(args or ["no"]))

    def _flaky(self, world: World, args: Sequence[str]) -> str:
        """Fails as often as its first argument says."""
        count = self.failures[args[0]] = self.failures.get(args[0], 0) + 1
        if count <= int(args[0]):
            message = f"failure {count}"
            raise StepFailure(message)
        return f"after {count}"

    def _takes(self, world: World, args: Sequence[str]) -> str:
        self.clock.now += float(args[0])
        return "done"

    def run(self, *steps: Step, check: Callable[..., Any] | None = None, **options: Any) -> dict[str, Any]:
        compiled = Compiled(
            **{"root": self.root, "user": "tester", "network": "none", "steps": steps, **options},
        )
        return execute(
            compiled,
            self._emit,
            verbs=self.verbs,
            check=check or (lambda step, values, rules, root, *, links: tuple(values)),
            clock=self.clock,
            sleep=self.clock.sleep,
            environ={},
        )

    def _emit(self, event: Mapping[str, Any]) -> None:
        self.events.append(dict(event))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def step(verb: str, *args: str, **given: Any) -> Step:
    return Step(verb=verb, args=args, retries=given.pop("retries", 0), timeout=given.pop("timeout", 30.0), **given)


def guard(kind: str, *args: str) -> tuple[Guard, ...]:
    return (Guard(kind=kind, args=args),)


def statuses(result: Mapping[str, Any]) -> str:
    """One letter a step: S succeeded, F failed, - skipped; cleanup after a bar."""
    letters = {"Succeeded": "S", "Failed": "F", "Skipped": "-"}
    main = "".join(letters[one["status"]] for one in result["steps"] if not one["cleanup"])
    cleanup = "".join(letters[one["status"]] for one in result["steps"] if one["cleanup"])
    return f"{main}|{cleanup}" if cleanup else main


# The result.


def test_the_result_has_the_contracts_shape(bench):
    """Names, order and types are those of the contract, on success and on failure."""
    result = bench.run(step("Echo", "hi", label="one"), step("Fail", "why", retries=0), step("Echo", "x"))
    assert list(result) == ["allSucceeded", "totalDuration", "steps"]
    assert [tuple(one) for one in result["steps"]] == [NAMES] * 3
    first, second, third = (tuple(one.values()) for one in result["steps"])
    zero = "00:00:00.0000000"
    assert first == (0, "Echo", "Succeeded", True, "hi", None, None, None, 1, zero, False, "one")
    assert second == (1, "Fail", "Failed", False, None, "why", "StepFailure", None, 1, zero, False, None)
    assert third == (2, "Echo", "Skipped", True, None, None, None, None, 0, zero, False, None)
    assert (result["allSucceeded"], result["totalDuration"]) == (False, zero)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "00:00:00.2500000"),
        (1e-7, "00:00:00.0000001"),
        (61.5, "00:01:01.5000000"),
        (3600, "01:00:00.0000000"),
        (86400 + 3661.0000002, "1.01:01:01.0000002"),
    ],
)
def test_durations_are_timespans(bench, seconds, text):
    """A step's time and the script's are told as .NET writes them, with seven digits."""
    bench.clock.now = 0.0
    result = bench.run(step("Takes", str(seconds)), script_timeout=1e9)
    assert (result["steps"][0]["duration"], result["totalDuration"]) == (text, text)


def test_a_process_has_stderr_and_exit_code_on_success_too(bench):
    """What ProcRun gives beside its output is in the record."""
    bench.add("Proc", lambda world, args: Done(output="out", error="warning", exit_code=0))
    record = bench.run(step("Proc"))["steps"][0]
    assert (record["output"], record["error"], record["exitCode"], record["success"]) == ("out", "warning", 0, True)
    assert record["errorCategory"] is None


def test_a_failure_keeps_what_was_written(bench):
    """Output and exit code of a process that failed are in the record, and nowhere else."""

    def fail(world, args):
        message = "x exited with code 3"
        raise StepFailure(message, output="partial", exit_code=3)

    bench.add("Proc", fail)
    failed, later = bench.run(
        step("Proc", capture="A"), step("Echo", "[$PREV][$A]"), pipes=True, failure_mode="ContinueOnError"
    )["steps"]
    assert (failed["output"], failed["exitCode"], failed["status"]) == ("partial", 3, "Failed")
    assert later["output"] == "[][]"


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "bcdef"),
        ("abcdef", 0, ""),
        ("a€b", 5, "a€b"),
        ("a€b", 4, "€b"),
        ("a€b", 3, "b"),
        ("a€b", 1, "b"),
        ("€", 2, ""),
        ("😀😀", 7, "😀"),
        ("\udc80x", 100, "\\udc80x"),
    ],
)
def test_the_tail_is_kept_in_whole_characters(bench, text, limit, kept):
    """Too long a text loses its beginning, counted in UTF-8 bytes; no marker, no half character."""
    bench.add("Say", lambda world, args: Done(output=text, error=text))
    record = bench.run(step("Say"), output_bytes=limit, error_bytes=limit)["steps"][0]
    assert (record["output"], record["error"] or "") == (kept, kept)


def test_a_capture_is_cut_like_the_output(bench):
    """What a later step gets is what the record has, trimmed."""
    result = bench.run(step("Echo", "  abc  ", capture="a"), step("Echo", "[$A]"), output_bytes=4)
    assert result["steps"][1]["output"] == "[bc]"


def test_all_outputs_together_have_a_limit(bench):
    """A script of many long outputs keeps its result within bounds; later texts are cut, records are not lost."""
    bench.add("Long", lambda world, args: "\x01" * 1_000_000)
    result = bench.run(*(step("Long") for _ in range(40)))
    assert len(result["steps"]) == 40
    assert result["allSucceeded"]
    written = sum(6 * len(one["output"]) for one in result["steps"])
    assert RESULT_BYTES * 0.5 < written <= RESULT_BYTES


# Order and events.


def test_steps_run_in_order_and_are_told_as_they_happen(bench):
    """Every step is told when it begins and when it has ended, before the next one begins."""
    bench.add("Look", lambda world, args: str(len(bench.events)))
    result = bench.run(step("Look", label="a"), step("Look"), step("Echo", "x", guards=guard("PrevContains", "no")))
    assert [one["output"] for one in result["steps"]] == ["1", "3", None]
    assert [(event["event"], event.get("stepIndex")) for event in bench.events] == [
        *(("step_started", 0), ("step_finished", None), ("step_started", 1), ("step_finished", None)),
        ("step_finished", None),
    ]
    assert bench.events[0] == {
        "event": "step_started",
        "stepIndex": 0,
        "cleanup": False,
        "total": 3,
        "verb": "Look",
        "label": "a",
    }
    assert [event["step"] for event in bench.events if event["event"] == "step_finished"] == result["steps"]


# $PREV and captures.


@pytest.mark.parametrize(
    ("pipes", "steps", "seen"),
    [
        (True, [step("Echo", " one "), step("Echo", "[$PREV]")], "[one]"),
        (True, [step("Echo", "one"), step("Echo", "[$prev][$Prev]")], "[one][one]"),
        (False, [step("Echo", "one"), step("Echo", "[$PREV]")], "[]"),
        (True, [step("Echo", "[$PREV]")], "[]"),
        (True, [step("Echo", "one"), step("Fail"), step("Echo", "[$PREV]")], "[]"),
        (True, [step("Echo", "one"), step("Echo", "x", guards=guard("PrevEmpty")), step("Echo", "[$PREV]")], "[one]"),
        (True, [step("Echo", "$PREV $X", capture="P"), step("Echo", "[$PREV]")], "[$X]"),
        (True, [step("Echo", "$PREVIOUS")], "$PREVIOUS"),
    ],
)
def test_prev_is_the_step_before(bench, pipes, steps, seen):
    """Trimmed; empty after a failure and without pipes; a skipped step leaves it alone (section 9, 2 and 5)."""
    result = bench.run(*steps, pipes=pipes, failure_mode="ContinueOnError")
    assert result["steps"][-1]["output"] == seen


def test_values_are_filled_in_once(bench):
    """What a value contains is never read as a variable."""
    result = bench.run(step("Echo", "$WORKSPACE", capture="A"), step("Echo", "$$A $A"), variables={"WORKSPACE": "$A"})
    assert result["steps"][1]["output"] == "$$A $A"


@pytest.mark.parametrize(
    ("first", "seen"),
    [
        (step("Echo", " value\n", capture="Got"), "[value]"),
        (step("Fail", "x", capture="Got"), "[]"),
        (step("Echo", "x", capture="Got", guards=guard("PrevContains", "never")), "[]"),
        (step("Echo", "x"), "[$GOT]"),
    ],
)
def test_captures_reach_later_steps(bench, first, seen):
    """Under any case of the name; empty after a failed or skipped step; unknown names stay (section 9, 2)."""
    result = bench.run(first, step("Echo", "[$GOT]"), failure_mode="ContinueOnError")
    assert result["steps"][1]["output"] == seen


def test_a_step_that_never_ran_has_an_empty_capture_in_cleanup(bench):
    """Cleanup sees captures of all steps, also of those after the failure."""
    bench.run(
        step("Echo", "one", capture="A"),
        step("Fail"),
        step("Echo", "two", capture="B"),
        cleanup=(step("Echo", "[$A][$B]"),),
        failure_mode="StopAndCleanup",
    )
    assert bench.calls[-1] == ("Echo", "[one][]")


def test_a_capture_cannot_take_the_place_of_a_built_in(bench):
    """Should the compiler ever let one through, the built-in value stays."""
    result = bench.run(
        step("Echo", "/etc", capture="WORKSPACE"), step("Echo", "$WORKSPACE"), variables={"WORKSPACE": "/workspace"}
    )
    assert result["steps"][1]["output"] == "/workspace"


def test_state_ends_with_the_script(bench):
    """A second script sees neither captures nor $PREV of the first."""
    bench.run(step("Echo", "secret", capture="A"), pipes=True)
    assert bench.run(step("Echo", "$A|$PREV"), pipes=True)["steps"][0]["output"] == "$A|"


# The second check.


def test_every_attempt_is_checked_with_real_values(bench):
    """Right before each attempt the check gets the values as they are then, and the verb what it resolved."""
    seen = []

    def check(checked, values, rules, root, *, links):
        seen.append((checked.verb, tuple(values), root, links))
        return tuple(f"/abs/{value}" for value in values)

    bench.add("Flaky", lambda world, args: bench._fail(world, args) if len(seen) < 4 else "ok")
    bench.run(step("Echo", "value", capture="A"), step("Flaky", "$A", retries=3), check=check)
    assert seen == [
        ("Echo", ("value",), "/workspace", True),
        *[("Flaky", ("/abs/value",), "/workspace", True)] * 3,
    ]
    assert bench.calls[1:] == [("Flaky", "/abs//abs/value")] * 3


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (errors.PathViolation("x"), "PathViolation"),
        (errors.UrlViolation("x"), "UrlViolation"),
        (errors.Blacklisted("halt"), "GigaBlacklist"),
        (errors.CompileError("Echo", "x"), "Compile"),
        (errors.InvalidArgument("x"), "InvalidArgument"),
    ],
)
def test_a_refusal_fails_the_step_in_its_own_category_and_is_not_retried(bench, error, category):
    """The verb does not act, no attempt follows, and the text is the rule's own."""

    def check(*_, **__):
        raise error

    record = bench.run(step("Echo", "x", retries=5), check=check)["steps"][0]
    assert bench.calls == []
    assert (record["errorCategory"], record["error"], record["attempts"]) == (category, str(error), 1)
    assert bench.clock.slept == []


@pytest.mark.parametrize(
    ("verb", "args", "value", "category"),
    [
        ("FileRead", ["$A"], "../../etc/passwd", "PathViolation"),
        ("FileRead", ["$A"], "/etc/passwd", "PathViolation"),
        ("FileRead", ["link/secret"], "", "PathViolation"),
        ("FileWrite", ["$A", "x"], "sub/.git/config", "Compile"),
        ("FileWrite", ["$A", "x"], "evil.js", "Compile"),
        ("FileWrite", ["a.txt", "$A"], "please halt now", "GigaBlacklist"),
        ("DirDelete", ["$A"], ".", "Compile"),
        ("OpenUrl", ["$A"], "http://127.0.0.1/", "UrlViolation"),
        ("FileHead", ["a.txt", "$A"], "5000", "Compile"),
        ("FileGlob", [".", "$A"], "../*", "Compile"),
        ("ProcRun", ["$A", "status"], "bash", "Compile"),
        ("ProcRun", ["git", "$A"], "reset", "Compile"),
        ("FileRead", ["a\tb$A"], "\0", "InvalidArgument"),
    ],
)
def test_the_rules_hold_for_what_only_the_run_knows(tmp_path, verb, args, value, category):
    """With the real checks and verbs, a value from a capture is held against everything a written one is."""
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    compiled = Compiled(
        root=str(root),
        user="u",
        network="none",
        steps=(step("TextTrim", value, capture="A"), step(verb, *args)),
        rules=Rules(blacklist=("halt",)),
    )
    if category == "GigaBlacklist":  # or the first step would be refused already
        first = step("TextReplace", "please hXlt now", "X", "a", capture="A")
        compiled = Compiled(**{**_fields(compiled), "steps": (first, compiled.steps[1])})
    result = execute(compiled, lambda event: None, environ={})
    record = result["steps"][1]
    assert (record["status"], record["errorCategory"]) == ("Failed", category), record
    assert sorted(path.name for path in root.iterdir()) == ["link"]


def _fields(compiled: Compiled) -> dict[str, Any]:
    return {name: getattr(compiled, name) for name in Compiled.__dataclass_fields__}


def test_source_and_working_directory_are_checked_too(tmp_path):
    """A template's source and a working directory with a variable in them cannot leave the sandbox."""
    for given in ({"cwd": "$A"}, {"source": "$A", "template": {"K": "v"}}):
        bench = Bench(str(tmp_path))
        record = bench.run(step("Echo", "/etc", capture="A"), step("Echo", "x", **given))["steps"][1]
        assert record["errorCategory"] == "PathViolation"
        (tmp_path / "sub").mkdir(exist_ok=True)
        bench.run(step("Echo", "sub", capture="A"), step("Echo", "x", **given))
        world = bench.worlds[-1]
        assert str(tmp_path / "sub") == (world.cwd if "cwd" in given else world.source)


def test_a_world_has_what_the_script_says(bench):
    """Root, user, network, limits, answers, template and patches reach the verb."""
    bench.run(
        step("Echo", "x", template={"K": "v"}, patches=(("a", "b"),), timeout=7),
        output_bytes=5,
        error_bytes=6,
        answers={"Mk8Info": "info"},
        variables={"WORKSPACE": "/workspace", "MK8_SANDBOX_ID": "box", "SECRET": "s"},
        network="open",
    )
    world = bench.worlds[0]
    assert (world.root, world.cwd, world.user, world.network) == ("/workspace", "/workspace", "tester", "open")
    assert (world.output_bytes, world.error_bytes, world.answers) == (5, 6, {"Mk8Info": "info"})
    assert (world.template, world.patches) == ({"K": "v"}, (("a", "b"),))
    assert 6 < world.deadline - time.monotonic() <= 7
    assert world.environment["MK8_SANDBOX_ID"] == "box"
    assert "SECRET" not in world.environment


# Retries.


@pytest.mark.parametrize(
    ("retries", "delay", "slept", "attempts", "status"),
    [
        (0, 2.0, [], 1, "Failed"),
        (1, 2.0, [2.0], 2, "Failed"),
        (3, 2.0, [2.0, 4.0, 8.0], 4, "Succeeded"),
        (10, 0.5, [0.5, 1.0, 2.0], 4, "Succeeded"),
        (2, 0.0, [0.0, 0.0], 3, "Failed"),
    ],
)
def test_delays_double(bench, retries, delay, slept, attempts, status):
    """A step that fails three times is retried after the delay, twice the delay, and so on (section 9, 4)."""
    record = bench.run(step("Flaky", "3", retries=retries), retry_delay=delay)["steps"][0]
    assert (bench.clock.slept, record["attempts"], record["status"]) == (slept, attempts, status)
    assert record["error"] == (None if status == "Succeeded" else f"failure {attempts}")


def test_retries_are_told(bench):
    """Each failed attempt that will be repeated is an event, with its reason and the wait."""
    bench.run(step("Flaky", "2", retries=5))
    told = [event for event in bench.events if event["event"] == "progress"]
    assert told == [
        {"event": "progress", "stepIndex": 0, "cleanup": False, "total": 1, "attempt": n, "error": e, "retryIn": s}
        for n, e, s in ((1, "failure 1", 2.0), (2, "failure 2", 4.0))
    ]


@pytest.mark.parametrize("verb", [["Assert", "a", "b"], ["Fail", "no"]])
def test_assert_and_fail_are_final(tmp_path, verb):
    """Another attempt would say the same, so there is none."""
    clock = Clock()
    compiled = Compiled(root=str(tmp_path), user="u", network="none", steps=(step(*verb, retries=5),))
    record = execute(compiled, lambda event: None, clock=clock, sleep=clock.sleep)["steps"][0]
    assert (record["status"], record["attempts"], clock.slept) == ("Failed", 1, [])


def test_a_time_out_is_retried(bench):
    """An attempt that took too long is a failed attempt like another."""

    def late_once(world, args):
        if len(bench.calls) == 1:
            message = "late"
            raise TimedOut(message)
        return "in time"

    bench.add("Late", late_once)
    record = bench.run(step("Late", retries=1))["steps"][0]
    assert (record["output"], record["attempts"]) == ("in time", 2)


# Jumps and failure modes.

STOP, GO_ON, CLEAN_UP = "StopOnFirstError", "ContinueOnError", "StopAndCleanup"


@pytest.mark.parametrize(
    ("mode", "steps", "cleanup", "expected"),
    [
        (STOP, ["Echo", "Fail", "Echo"], [], "SF-"),
        (STOP, ["Echo", "Fail", "Echo"], ["Echo"], "SF-"),
        (GO_ON, ["Echo", "Fail", "Echo", "Fail"], ["Echo"], "SFSF"),
        (CLEAN_UP, ["Echo", "Fail", "Echo"], ["Echo", "Fail", "Echo"], "SF-|SFS"),
        (CLEAN_UP, ["Echo", "Fail", "Echo"], [], "SF-"),
        (CLEAN_UP, ["Echo", "Echo"], ["Echo"], "SS"),
        (STOP, ["Echo"], [], "S"),
        (GO_ON, ["Fail"], ["Echo"], "F"),
    ],
)
def test_failure_modes(bench, mode, steps, cleanup, expected):
    """Stop, go on, or stop and clean up as far as it goes."""
    result = bench.run(
        *(step(verb, "x") for verb in steps),
        cleanup=tuple(step(verb, "x") for verb in cleanup),
        failure_mode=mode,
    )
    assert statuses(result) == expected
    assert result["allSucceeded"] == ("F" not in expected.partition("|")[0])
    assert [one["stepIndex"] for one in result["steps"]] == list(range(len(result["steps"])))


def test_cleanup_steps_go_on_counting_and_do_not_decide(bench):
    """Their indexes follow the script's, also of steps that were skipped; a failed one changes nothing else."""
    result = bench.run(
        step("Fail"), step("Echo", "x"), cleanup=(step("Fail"), step("Echo", "y")), failure_mode=CLEAN_UP
    )
    assert [(one["stepIndex"], one["cleanup"]) for one in result["steps"]] == [
        *((0, False), (1, False), (2, True), (3, True)),
    ]
    assert [event["total"] for event in bench.events if event["event"] == "step_finished"] == [2, 2, 4, 4]


@pytest.mark.parametrize("mode", [STOP, GO_ON, CLEAN_UP])
def test_a_jump_comes_before_the_failure_mode(bench, mode):
    """A failed step with a target goes there; what lies between is skipped; the script has failed (section 9, 1)."""
    result = bench.run(
        step("Fail", on_failure="Rescue"),
        step("Echo", "skipped", capture="A"),
        step("Echo", "skipped too"),
        step("Echo", "rescued [$A]", label="rescue"),
        step("Echo", "end"),
        cleanup=(step("Echo", "cleanup"),),
        failure_mode=mode,
    )
    assert statuses(result) == "F--SS"
    assert result["allSucceeded"] is False
    assert bench.calls[1:] == [("Echo", "rescued []"), ("Echo", "end")]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step("Echo", "x", on_failure="b"), step("Echo", "x"), step("Echo", "x", label="b")], "SSS"),
        ([step("Fail", on_failure="b"), step("Echo", "x", label="b")], "FS"),
        ([step("Fail", on_failure="b"), step("Echo", "x"), step("Fail", label="b"), step("Echo", "x")], "F-F-"),
        ([step("Fail", on_failure="b"), step("Fail", label="b", on_failure="c"), step("Echo", "x", label="c")], "FFS"),
        ([step("Fail", on_failure="b", guards=guard("PrevContains", "x")), step("Echo", "x", label="b")], "-S"),
        ([step("Echo", "x", label="a"), step("Fail", on_failure="a"), step("Echo", "x")], "SF-"),
        ([step("Fail", on_failure="nowhere"), step("Echo", "x")], "F-"),
    ],
)
def test_jumps(bench, steps, expected):
    """Only a failure jumps, only forward, as often as there is one; without a target the mode holds."""
    assert statuses(bench.run(*steps)) == expected


def test_a_jump_comes_after_the_retries(bench):
    """The target is for a step that failed for good."""
    result = bench.run(step("Flaky", "1", retries=1, on_failure="b"), step("Echo", "x"), step("Echo", "x", label="b"))
    assert statuses(result) == "SSS"


# Guards.


def test_a_guard_is_asked_right_before_its_step(bench):
    """What it asks about is what the steps before have made, not what was there at the beginning (section 9, 3)."""
    result = bench.run(
        step("Echo", "Build succeeded"),
        step("Echo", "publish", guards=guard("PrevContains", "build SUCCEEDED")),
        step("Echo", "complain", guards=guard("PrevContains", "failed")),
        pipes=True,
    )
    assert statuses(result) == "SS-"
    assert result["allSucceeded"] is True


def test_all_guards_must_hold(bench):
    """Nested Ifs are a list of guards, each of which can say no."""
    both = (*guard("PrevEmpty"), *guard("CaptureEmpty", "a"))
    assert statuses(bench.run(step("Echo", "x", guards=both))) == "S"
    assert statuses(bench.run(step("Echo", "x", capture="a"), step("Echo", "x", guards=both))) == "S-"


def test_a_shared_guard_is_asked_once(bench):
    """Steps of one If go together, although the first of them changes what it asked about."""
    shared = (Guard(kind="PrevEmpty", args=(), once=1),)
    result = bench.run(step("Echo", "x", guards=shared), step("Echo", "y", guards=shared), pipes=True)
    assert statuses(result) == "SS"
    shared = (Guard(kind="CaptureContains", args=("A", "x"), once=2),)
    result = bench.run(
        step("Echo", "y", guards=shared), step("Echo", "x", capture="A"), step("Echo", "z", guards=shared)
    )
    assert statuses(result) == "-S-"


def test_guard_arguments_are_filled_in(bench):
    """A guard can compare with a capture."""
    result = bench.run(
        step("Echo", "1.2", capture="want"),
        step("Echo", "1.2"),
        step("Echo", "same", guards=guard("PrevEquals", "$WANT")),
        pipes=True,
    )
    assert statuses(result) == "SSS"


@pytest.mark.parametrize(
    ("asked", "category"),
    [
        (guard("FileExists", "$A"), "PathViolation"),
        (guard("Unheard", "x"), "Compile"),
        (guard("DirExists", "\0"), "InvalidArgument"),
    ],
)
def test_a_guard_that_cannot_be_asked_fails_its_step(bench, asked, category):
    """A path out of the sandbox is a refusal, not a no."""
    result = bench.run(step("Echo", "/etc/passwd", capture="A"), step("Echo", "x", guards=asked))
    record = result["steps"][1]
    assert (record["status"], record["errorCategory"], record["attempts"]) == ("Failed", category, 0)


# Time.


@pytest.mark.parametrize(
    "hang",
    [
        lambda: time.sleep(60),
        lambda: os.read(os.pipe()[0], 1),
        lambda: threading.Event().wait(60),
        lambda: [None for _ in iter(int, 1)],
    ],
    ids=["sleep", "read", "wait", "loop"],
)
def test_a_verb_that_hangs_is_ended_at_its_step_time_out(bench, hang):
    """Whatever it hangs in, the next step runs soon after the time-out."""
    bench.add("Hang", lambda world, args: hang())
    began = time.monotonic()
    result = bench.run(step("Hang", timeout=0.2), step("Echo", "next"), failure_mode=GO_ON)
    assert 0.2 <= time.monotonic() - began < 5
    assert statuses(result) == "FS"
    record = result["steps"][0]
    assert (record["errorCategory"], record["error"]) == (
        "Timeout",
        "the step took longer than its 0.2 s (stepTimeout)",
    )


def test_every_attempt_has_the_whole_step_time_out(bench):
    """Two attempts that hang take twice the time-out."""
    bench.add("Hang", lambda world, args: time.sleep(60))
    began = time.monotonic()
    record = bench.run(step("Hang", timeout=0.2, retries=1))["steps"][0]
    assert 0.4 <= time.monotonic() - began < 5
    assert record["attempts"] == 2


@pytest.mark.parametrize(
    ("mode", "expected"), [(STOP, "SF--"), (GO_ON, "SF--"), (CLEAN_UP, "SF--|SS")], ids=[STOP, GO_ON, CLEAN_UP]
)
def test_the_scripts_time_out_keeps_what_there_is(bench, mode, expected):
    """The running step fails as Timeout, the rest is skipped, cleanup has time of its own (section 9, 9)."""
    bench.add("Hang", lambda world, args: time.sleep(60))
    bench.clock = RealClock()
    began = time.monotonic()
    result = bench.run(
        step("Echo", "kept"),
        step("Hang", on_failure="later", retries=5),
        step("Echo", "x"),
        step("Echo", "x", label="later"),
        cleanup=(step("Echo", "a"), step("Echo", "b")),
        failure_mode=mode,
        script_timeout=0.3,
    )
    assert 0.3 <= time.monotonic() - began < 5
    assert statuses(result) == expected
    assert result["steps"][0]["output"] == "kept"
    assert (result["steps"][1]["errorCategory"], result["steps"][1]["error"]) == (
        "Timeout",
        "the script's time of 0.3 s is over (scriptTimeout)",
    )


class RealClock(Clock):
    def __call__(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def test_time_that_runs_out_between_steps_is_told_by_the_next(bench):
    """The step that should have begun fails without an attempt; one that ended in time is not taken back."""
    result = bench.run(step("Takes", "9"), step("Echo", "x"), step("Echo", "x"), script_timeout=9)
    assert statuses(result) == "SF-"
    assert (result["steps"][1]["errorCategory"], result["steps"][1]["attempts"]) == ("Timeout", 0)
    assert statuses(bench.run(step("Takes", "9"), script_timeout=9)) == "S"


def test_waiting_for_a_retry_ends_with_the_script(bench):
    """A delay longer than what is left is not waited out; the error says both things."""
    record = bench.run(step("Flaky", "5", retries=5), step("Echo", "x"), script_timeout=9, retry_delay=2)["steps"][0]
    assert bench.clock.slept == [2.0, 4.0, 3.0]
    assert record["errorCategory"] == "Timeout"
    assert "before attempt 4; attempt 3: failure 3" in record["error"]


def test_cleanup_has_a_budget(bench):
    """Thirty seconds for all of it, whatever was left of the script; then the rest is skipped."""
    steps = (step("Takes", "20"), step("Takes", "20"), step("Echo", "x"), step("Echo", "x"))
    result = bench.run(step("Fail"), cleanup=steps, failure_mode=CLEAN_UP, script_timeout=1)
    assert CLEANUP_SECONDS == 30
    assert statuses(result) == "F|SSF-"
    assert result["steps"][3]["errorCategory"] == "Timeout"


def test_a_verb_that_ends_itself_in_time_keeps_its_output(bench):
    """A verb that looks at its deadline comes before the alarm."""

    def look(world, args):
        time.sleep(max(0, world.deadline - time.monotonic()))
        message = "killed"
        raise TimedOut(message, output="partial")

    bench.add("Look", look)
    record = bench.run(step("Look", timeout=0.2))["steps"][0]
    assert (record["output"], record["errorCategory"], record["error"]) == ("partial", "Timeout", "killed")
    bench.clock = RealClock()
    record = bench.run(step("Look"), script_timeout=0.2)["steps"][0]
    assert (record["output"], record["errorCategory"]) == ("partial", "Timeout")
    assert record["error"] == "the script's time of 0.2 s is over (scriptTimeout): killed"


# Whatever a verb does.


class Spiteful(Exception):
    def __str__(self) -> str:
        return "several\nlines  of\ttext"


def _raise(error: BaseException) -> Callable[..., str]:
    def act(world: World, args: Sequence[str]) -> str:
        raise error

    return act


def _recurse(world: World, args: Sequence[str]) -> str:
    return _recurse(world, args)


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (_raise(KeyError("missing")), "KeyError: 'missing'"),
        (_raise(Spiteful()), "Spiteful: several lines of text"),
        (_raise(ValueError()), "ValueError"),
        (_raise(ValueError("x" * 1000)), "ValueError: " + "x" * 288),
        (_raise(FileNotFoundError(2, "No such file or directory", "a.txt")), "No such file or directory: a.txt"),
        (_raise(OSError(28, "No space left on device")), "No space left on device"),
        (_raise(MemoryError()), "MemoryError"),
        (_raise(SystemExit(0)), "SystemExit: 0"),
        (lambda world, args: sys.exit(3), "SystemExit: 3"),
        (_recurse, "RecursionError: maximum recursion depth exceeded"),
        (lambda world, args: None, "Odd gave NoneType in place of text"),
        (lambda world, args: b"bytes", "Odd gave bytes in place of text"),
    ],
)
def test_a_mistake_in_a_verb_is_one_line(bench, act, text):
    """Whatever it raises is a failed step with one line of text, never a traceback (section 9, 25)."""
    bench.add("Odd", act)
    result = bench.run(step("Odd"), step("Echo", "next"), failure_mode=GO_ON)
    record = result["steps"][0]
    assert (record["error"], record["errorCategory"]) == (text, "StepFailure")
    assert statuses(result) == "FS"


def test_a_mistake_in_a_check_is_one_line(bench):
    """The checks are held to the same."""
    record = bench.run(step("Echo", "x"), check=_raise(ZeroDivisionError("x")))["steps"][0]
    assert (record["status"], record["error"].partition(":")[0]) == ("Failed", "TypeError")


@pytest.mark.parametrize("verb", ["Nothing", "ForEach"])
def test_what_never_acts_fails(bench, verb):
    """A verb that is not there, and one that is expanded by the compiler, cannot be reached by a forged script."""
    act = bench.verbs["Echo"].act
    bench.verbs["ForEach"] = Verb(name="ForEach", least=0, most=0, kinds=(), describe="", act=act, control=True)
    record = bench.run(step(verb))["steps"][0]
    assert (record["errorCategory"], record["attempts"]) == ("Compile", 1)


def test_ctrl_c_ends_the_program(bench):
    """Only what is meant for the program itself goes through."""
    bench.add("Stop", _raise(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        bench.run(step("Stop"))


# With the real verbs.


def test_a_thousand_steps_are_quick(tmp_path):
    """At least 500 in-process steps a second, with all checks (issue: bench row); some twenty times that here."""
    verbs = (("Echo", "hello"), ("TextToUpper", "hello"), ("FileWrite", "a.txt", "hello"))
    steps = tuple(step(*verbs[number % 3]) for number in range(1023))
    compiled = Compiled(root=str(tmp_path), user="u", network="none", steps=steps)
    began = time.perf_counter()
    result = execute(compiled, lambda event: None)
    assert result["allSucceeded"], result["steps"][:3]
    assert 1023 / (time.perf_counter() - began) > 500
