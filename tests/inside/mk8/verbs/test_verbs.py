"""Every verb does what its rows say, in a workspace of its own, after the checks that a step goes through."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from rows import Link, Row, all_rows

from provider.inside.mk8.check import check_step
from provider.inside.mk8.compiled import Rules, Step
from provider.inside.mk8.errors import Mk8Error
from provider.inside.mk8.verb import Done, World
from provider.inside.mk8.verbs import VERBS

ROOT = "/workspace"
ROWS = all_rows()
NEVER_SUCCEEDS = {"Fail"} | {name for name, verb in VERBS.items() if verb.control}


def step_of(verb: str, args: tuple[str, ...]) -> Step:
    return Step(verb=verb, args=args, retries=0, timeout=30)


def moved(value: Any, root: Path) -> Any:
    """The same, about this workspace."""
    if isinstance(value, str):
        return value.replace(ROOT, str(root))
    if isinstance(value, re.Pattern):
        return re.compile(value.pattern.replace(ROOT, re.escape(str(root))))
    if isinstance(value, Link):
        return Link(moved(value.target, root))
    if isinstance(value, tuple):
        return tuple(moved(one, root) for one in value)
    if isinstance(value, Mapping):
        return {key: moved(one, root) for key, one in value.items()}
    return value


def make(root: Path, files: Mapping[str, Any]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        elif isinstance(content, Link):
            path.symlink_to(content.target)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


def seen(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder) / name
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = Link(str(path.readlink()))
            elif path.is_file():
                found[key] = path.read_bytes()
            elif not os.listdir(path):
                found[key] = None
    return found


def run(row: Row, root: Path) -> str:
    args = moved(row.args, root)
    options = moved(row.world, root)
    if "deadline" in options:
        options["deadline"] += time.monotonic()
    world = World(root=str(root), cwd=str(root), **options)
    resolved = check_step(step_of(row.verb, args), args, Rules(), str(root), links=True)
    done = VERBS[row.verb].act(world, [value for value in resolved if value is not None])
    return done.output if isinstance(done, Done) else done


def name_of(row: Row) -> str:
    shown = " ".join(repr(arg) for arg in row.args)
    return re.sub(r"[^ -~]|::", "?", f"{row.verb} {shown[:60]} -> {row.fails or 'ok'}")


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_rows(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The output, the files, and the category and words of an error are those of the row."""
    root = tmp_path / "root"
    root.mkdir()
    make(root, moved(row.files, root))
    for where, what in row.patch.items():
        monkeypatch.setattr(f"provider.inside.mk8.{where}", moved(what, root))
    if row.fails is None:
        output, wanted = run(row, root), moved(row.gives, root)
        assert wanted.fullmatch(output) if isinstance(wanted, re.Pattern) else output == wanted
    else:
        with pytest.raises(Mk8Error) as caught:
            run(row, root)
        assert (caught.value.category, moved(row.says, root) in str(caught.value)) == (row.fails, True), str(
            caught.value
        )
    if row.after is not None:
        after = {name: value.encode() if isinstance(value, str) else value for name, value in row.after.items()}
        assert seen(root) == moved(after, root)


def test_every_verb_has_rows():
    """No verb is without a row that succeeds and, where anything can be wrong, one that fails."""
    succeeding = {row.verb for row in ROWS if row.fails is None}
    failing = {row.verb for row in ROWS if row.fails is not None}
    assert len(VERBS) == 159
    assert set(VERBS) - succeeding == NEVER_SUCCEEDS
    assert {row.verb for row in ROWS} <= set(VERBS)
    checked = {name for name, verb in VERBS.items() if verb.check is not VERBS["Echo"].check}
    with_paths = {name for name, verb in VERBS.items() if {"read", "write", "url", "host"} & set(verb.kinds)}
    assert (checked | with_paths) - failing == set()
    assert len(ROWS) > 600


@pytest.mark.parametrize("name", sorted(VERBS))
def test_counts(name: str, tmp_path: Path):
    """One argument too few or too many is a compile error that says how many are right."""
    verb = VERBS[name]
    for count in {verb.least - 1, verb.most + 1} - {-1}:
        with pytest.raises(Mk8Error, match="expected") as caught:
            check_step(step_of(name, ("$X",) * count), [None] * count, Rules(), str(tmp_path))
        assert caught.value.category == "Compile"
        assert f"got {count}" in str(caught.value)


@pytest.mark.parametrize("name", sorted(VERBS))
def test_what_only_the_run_knows_is_not_judged(name: str):
    """At compile time an argument without a value is right, whatever it will be."""
    verb = VERBS[name]
    for count in {verb.least, min(verb.most, verb.least + 3)}:
        if name not in {"FileWriteMany", "FileCopyMany", "JsonFromPairs"} or count % 2 == 0:
            verb.check([None] * count)


def test_the_rows_can_be_counted_by_verb():
    """The documentation's column of tests is a count of these rows."""
    counts = Counter(row.verb for row in ROWS)
    assert counts.keys() == VERBS.keys()
    assert min(counts.values()) >= 1
