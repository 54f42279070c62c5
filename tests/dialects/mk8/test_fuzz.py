"""
Scripts made at random never crash the compiler, never hold it up, and never reach a path outside of the sandbox.

2,000 in a normal run; `MK8_FUZZ=100000` for as many as one likes, `MK8_FUZZ_SEED` to see one batch again.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from scripts import PATHS, TEXTS, Writer

from provider.dialects.mk8.compile import compile_script
from provider.dialects.mk8.configuration import Sandbox
from provider.dialects.mk8.script import parse_script
from provider.inside.mk8 import blacklist, words
from provider.inside.mk8.check import check_step
from provider.inside.mk8.compiled import Compiled, Rules
from provider.inside.mk8.errors import Mk8Error
from provider.inside.mk8.variables import expand
from provider.inside.mk8.verb import READ, WRITE
from provider.inside.mk8.verbs import VERBS

COUNT = int(os.environ.get("MK8_FUZZ", "2000"))
SEED = int(os.environ.get("MK8_FUZZ_SEED", "6"))
BATCH = 500
SECONDS = 0.1
ECHO = {"verb": "Echo", "args": ["$ITEM"]}
SANDBOX = Sandbox(
    id="fuzz",
    root_on_host=Path("/nowhere"),
    env={"STAGE": "test", "UP": "..", "BIG": "x" * 50_000, "MK8_SANDBOX_ID": "fuzz"},
    rules=Rules(
        blacklist=blacklist.effective(),
        words=words.merged({"GitCloneUrls": ["https://example.com/a.git"]}),
        project_bases=("Shop",),
    ),
    fragments={
        "build": [ECHO, {"verb": "ForEach", "forEach": {"items": ["1"], "body": ECHO}}],
        "nested": [{"verb": "Include", "args": ["build"]}],
        "empty": [],
    },
)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A workspace with links that lead everywhere."""
    base = tmp_path_factory.mktemp("fuzz")
    root = base / "root"
    (root / "sub" / ".git").mkdir(parents=True)
    for name, target in (
        ("link", base),
        ("file-out", "/etc/hostname"),
        ("up", ".."),
        ("in", "sub"),
        ("self", "."),
        ("loop", "loop"),
        ("to-git", "sub/.git"),
    ):
        (root / name).symlink_to(target)
    return root


@pytest.mark.timeout(max(120, COUNT // 100))
@pytest.mark.parametrize("batch", range(-(-COUNT // BATCH)))
def test_any_script_is_compiled_or_refused(batch, root):
    """Only our own errors, each within 100 ms of processor time; and every path stays inside, at run time too."""
    for number in range(batch * BATCH, min(COUNT, (batch + 1) * BATCH)):
        writer = Writer(SEED * 10**9 + number)
        data = writer.script()
        made, took = _compiled(data)
        if took >= SECONDS:  # what is slow by itself is slow each time; what others caused is not
            took = min(_compiled(data)[1] for _ in range(3))
        assert took < SECONDS, f"script {number} took {took:.3f} s"
        if made is not None:
            _stays_inside(made, writer, root)


def _compiled(data: object) -> tuple[Compiled | None, float]:
    """With the processor time that it took."""
    began = time.process_time()
    try:
        made = compile_script(parse_script(data), SANDBOX)
    except Mk8Error as error:
        made = None
        str(error).encode()  # can be told to anybody
    return made, time.process_time() - began


def _stays_inside(made: Compiled, writer: Writer, root: Path) -> None:
    """With values of any kind for what only the run knows."""
    values = {**made.variables, "WORKSPACE": str(root), "CWD": str(root)}
    for step in (*made.steps, *made.cleanup):
        values["PREV"] = writer.random.choice((*TEXTS, *PATHS))
        if step.capture:
            values[step.capture.upper()] = writer.random.choice((*TEXTS, *PATHS))
        try:
            found = check_step(step, [expand(text, values) for text in step.args], made.rules, str(root), links=True)
        except Mk8Error:
            continue
        kinds = VERBS[step.verb].kinds
        for place, value in enumerate(found):
            kind = kinds[min(place, len(kinds) - 1)] if kinds else ""
            assert value is not None
            if kind in {READ, WRITE} or (step.verb == "ProcRun" and value.startswith((".", "/"))):
                real = os.path.realpath(root / value)
                assert real == str(root) or real.startswith(f"{root}/"), (step, found)


def test_the_scripts_are_worth_trying():
    """A good part of them compiles, and among the others every kind of error is met."""
    fine, categories = 0, set()
    for number in range(400):
        try:
            compile_script(parse_script(Writer(number).script()), SANDBOX)
            fine += 1
        except Mk8Error as error:
            categories.add(error.category)
    assert fine > 60
    assert categories == {"Compile", "PathViolation", "UrlViolation", "GigaBlacklist", "InvalidArgument"}
