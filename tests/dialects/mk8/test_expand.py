"""ForEach, If, Include and batch verbs, written out."""

from __future__ import annotations

from typing import Any

import pytest

from provider.dialects.mk8.expand import Expansion, Primitive
from provider.dialects.mk8.limits import MOST_CHARS
from provider.dialects.mk8.script import parse_script
from provider.inside.mk8.errors import CompileError, Mk8Error

ECHO = {"verb": "Echo", "args": ["x"]}


def echo(*args: str, **fields: Any) -> dict[str, Any]:
    return {"verb": "Echo", "args": list(args), **fields}


def loop(items: list[str], body: dict, **fields: Any) -> dict[str, Any]:
    return {"verb": "ForEach", "forEach": {"items": items, "body": body}, **fields}


def when(then: dict, kind: str = "PrevEmpty", args: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    return {"verb": "If", "if": {"predicate": {"kind": kind, "args": list(args)}, "then": then}, **fields}


def include(name: str = "build", **fields: Any) -> dict[str, Any]:
    return {"verb": "Include", "args": [name], **fields}


def written_out(*operations: dict, fragments: dict | None = None) -> list[Primitive]:
    return Expansion(fragments or {}).write_out(parse_script({"operations": list(operations)}).operations, "operations")


def args(*operations: dict, **options: Any) -> list[tuple[str, ...]]:
    return [step.args for step in written_out(*operations, **options)]


# ForEach.


def test_a_loop_is_written_out():
    """`$ITEM` and `$INDEX` by the identifier rule, in any case; `$ITEMS` is another name."""
    steps = written_out(loop(["a", "b"], echo("$item-$INDEX-$ITEMS")))
    assert [step.args for step in steps] == [("a-0-$ITEMS",), ("b-1-$ITEMS",)]
    assert [step.place for step in steps] == [f"operations[0].forEach.body, item {index}" for index in (0, 1)]


def test_a_loop_over_nothing_is_nothing():
    """Zero items are no mistake."""
    assert args(loop([], ECHO), echo("y")) == [("y",)]


def test_items_reach_everything_that_has_variables():
    """Source, working directory, predicates, and what stands inside an If; not values and patches."""
    template = {"source": "$ITEM.tmpl", "values": {"K": "v"}}
    body = when(
        {"verb": "FileTemplate", "args": ["$ITEM"], "template": template, "workingDirectory": "d/$ITEM"},
        "FileExists",
        ("$ITEM",),
    )
    (step,) = written_out(loop(["a"], body))
    assert (step.args, step.source, step.cwd, step.guards[0].args) == (("a",), "a.tmpl", "d/a", ("a",))


def test_variables_in_items_are_those_of_the_step():
    """An item is filled in as it is; what it contains is then part of the argument."""
    assert args(loop(["$WORKSPACE/$ITEM"], echo("$ITEM"))) == [("$WORKSPACE/$ITEM",)]


def test_256_items_are_the_most():
    """The limit itself is allowed."""
    assert len(args(loop(["x"] * 256, ECHO))) == 256
    with pytest.raises(CompileError, match="257 items; 256 is the most"):
        args(loop(["x"] * 257, ECHO))


def test_no_loop_inside_a_loop():
    """Neither directly nor through an If or a fragment."""
    for body in (loop(["b"], ECHO), when(loop(["b"], ECHO)), include()):
        with pytest.raises(CompileError, match="a loop inside a loop"):
            args(loop(["a"], body), fragments={"build": [loop(["b"], ECHO)]})


# If.


def test_an_if_becomes_a_guard():
    """The operation inside is compiled regardless; Ifs inside each other add up."""
    (step,) = written_out(when(when(ECHO, "PrevContains", ("b",)), "captureempty", ("a",)))
    assert [(guard.kind, guard.args) for guard in step.guards] == [("CaptureEmpty", ("a",)), ("PrevContains", ("b",))]


def test_steps_of_one_if_share_its_answer():
    """A batch under an If is asked about once; each turn of a loop has an If of its own."""
    batch = {"verb": "FileDeleteMany", "args": ["a", "b"]}
    first, second = written_out(when(batch))
    assert first.guards == second.guards
    assert first.guards[0].once is not None
    first, second = written_out(loop(["a", "b"], when(ECHO)))
    assert first.guards[0].once != second.guards[0].once


# Include.


def test_a_fragment_is_written_out():
    """Its name is taken in any case; the loop's item is nothing to it, but its name may be one."""
    fragments = {"Build": [echo("$ITEM"), loop(["y"], echo("$ITEM"))]}
    assert args(include("BUILD"), fragments=fragments) == [("$ITEM",), ("y",)]
    assert args(loop(["build"], include("$ITEM")), fragments={"build": [echo("$ITEM")]}) == [("$ITEM",)]


@pytest.mark.parametrize(
    ("operation", "fragments", "says"),
    [
        (include("none"), {"build": [ECHO]}, "no fragment 'none'.*one of: build"),
        (include("none"), {}, "none is registered"),
        (include("a b"), {"a b": [ECHO]}, "no fragment 'a b'"),
        (include("x" * 129), {"x" * 129: [ECHO]}, "no fragment"),
        ({"verb": "Include", "args": []}, {"build": [ECHO]}, "expected 1 argument, got 0"),
        ({"verb": "Include", "args": ["a", "b"]}, {"a": [ECHO]}, "expected 1 argument, got 2"),
        (include(), {"build": []}, "has no operations"),
        (include(), {"build": [include("other")], "other": [ECHO]}, "includes no other one"),
        (include(), {"build": [when(include("other"))], "other": [ECHO]}, "includes no other one"),
        (include(), {"build": [{"verb": "Nope", "args": []}]}, r"no verb 'Nope'.*fragment build\[0\]"),
        (include(), {"build": "x"}, "cannot be read: fragment 'build'"),
    ],
)
def test_what_is_no_fragment(operation, fragments, says):
    """Unregistered, empty, including another one, or wrong in itself."""
    with pytest.raises(CompileError, match=says):
        args(operation, fragments=fragments)


def test_a_fragment_s_name_has_128_characters_at_most():
    """The limit itself is allowed."""
    assert args(include("x" * 128), fragments={"x" * 128: [ECHO]})


# Batch.


def test_batches_are_written_out():
    """Each entry is a step; retries and time-out are inherited."""
    steps = written_out(
        {"verb": "FileWriteMany", "args": ["a", "1", "b", "2"], "maxRetries": 3, "stepTimeout": "00:00:07"},
        {"verb": "filecopymany", "args": ["a", "b"]},
        {"verb": "FileDeleteMany", "args": ["a", "b"]},
    )
    assert [(step.verb, step.args) for step in steps] == [
        ("FileWrite", ("a", "1")),
        ("FileWrite", ("b", "2")),
        ("FileCopy", ("a", "b")),
        ("FileDelete", ("a",)),
        ("FileDelete", ("b",)),
    ]
    assert [(step.retries, step.timeout) for step in steps[1:3]] == [(3, 7.0), (None, None)]


@pytest.mark.parametrize("verb", ["FileWriteMany", "FileCopyMany", "FileDeleteMany"])
def test_64_entries_are_the_most(verb):
    """At least one, at most 64, and pairs are pairs."""
    size = 1 if verb == "FileDeleteMany" else 2
    assert len(args({"verb": verb, "args": ["x"] * 64 * size})) == 64
    for count in (0, 65 * size, *((3,) if size == 2 else ())):
        with pytest.raises(CompileError, match=rf"{count} arguments. Right: "):
            args({"verb": verb, "args": ["x"] * count})


# All of them.


@pytest.mark.parametrize("field", ["label", "captureAs", "onFailure"])
@pytest.mark.parametrize(
    "operation",
    [loop(["a"], ECHO), when(ECHO), include(), {"verb": "FileDeleteMany", "args": ["a"]}],
    ids=lambda o: o["verb"],
)
def test_what_belongs_to_one_step_is_not_put_around_several(operation, field):
    """It would be lost in silence."""
    with pytest.raises(CompileError, match=f"{field} belongs to one step"):
        args({**operation, field: "x"}, fragments={"build": [ECHO]})


def test_retries_and_time_out_are_inherited_and_overridden():
    """The inner operation's own win."""
    inner, outer = echo("x", maxRetries=1), {"maxRetries": 5, "stepTimeout": "00:00:05"}
    steps = written_out(loop(["a"], inner, **outer), when(ECHO, **outer))
    assert [(step.retries, step.timeout) for step in steps] == [(1, 5.0), (5, 5.0)]


def test_three_levels_are_the_deepest():
    """ForEach, If and Include count alike."""
    assert len(args(when(when(when(ECHO))))) == 1
    assert len(args(when(loop(["a"], include())), fragments={"build": [ECHO]})) == 1
    with pytest.raises(CompileError, match="4 deep"):
        args(when(when(when(when(ECHO)))))
    with pytest.raises(CompileError, match="4 deep"):
        args(when(loop(["a"], include())), fragments={"build": [when(ECHO)]})


def test_1024_steps_are_the_most():
    """Written out, with loops and batches, and it stops growing there."""
    assert len(args(*[ECHO] * 1024)) == 1024
    assert len(args(loop(["x"] * 256, ECHO), *[ECHO] * 768)) == 1024
    for operations in (
        [loop(["x"] * 256, ECHO), *[ECHO] * 769],
        [loop(["x"] * 256, {"verb": "FileDeleteMany", "args": ["$INDEX"] * 64})],
    ):
        with pytest.raises(CompileError, match="more than 1024 operations"):
            args(*operations)


def test_operations_and_cleanup_share_the_limit():
    """1000 and 25 are too many."""
    expansion = Expansion({})
    expansion.write_out(parse_script({"operations": [ECHO] * 1000}).operations, "operations")
    with pytest.raises(CompileError, match=r"more than 1024 operations.*cleanup\[24\]"):
        expansion.write_out(parse_script({"operations": [ECHO] * 25}).operations, "cleanup")


@pytest.mark.parametrize(
    "operations",
    [
        [echo("x" * (MOST_CHARS + 1))],
        [echo("x" * (MOST_CHARS // 2))] * 3,
        [loop(["x" * 10_000], echo("$ITEM" * 10_000))],
        [loop(["x" * 10_000] * 256, echo("$ITEM"))],
        [{"verb": "FilePatch", "args": ["a"], "patches": [{"find": "x" * MOST_CHARS, "replace": "y"}]}],
        [when(ECHO, "PrevContains", ("x" * MOST_CHARS,))],
    ],
)
def test_the_texts_of_a_script_have_a_limit_together(operations):
    """Ours: a short script cannot become gigabytes."""
    with pytest.raises(CompileError, match="more than 1048576 characters"):
        args(*operations)


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        (
            {"verb": "Rm", "args": []},
            r"\[Rm\]: there is no verb 'Rm'; the verb Mk8Verbs lists all. \(operations\[0\]\)",
        ),
        ({"verb": "", "args": []}, "no verb ''"),
        ({"verb": "7", "args": []}, "no verb '7'"),
        ({"verb": "Echo\n", "args": []}, r"\[\?\]: there is no verb"),
        ({"verb": "Echo"}, r"args is missing. Right: \"args\": \["),
        ({"verb": "ForEach", "args": []}, '`forEach` is missing. Right: {"items"'),
        ({"verb": "If"}, '`if` is missing. Right: {"predicate"'),
        ({"verb": "FileTemplate", "args": ["a"]}, '`template` is missing. Right: {"source"'),
        ({"verb": "FilePatch", "args": ["a"]}, "`patches` is missing"),
        ({"verb": "FilePatch", "args": ["a"], "patches": []}, "`patches` is missing"),
        (echo("x", patches=[]), "`patches` belongs to FilePatch"),
        (echo("x", template={"source": "a"}), "`template` belongs to FileTemplate"),
        (echo("x", forEach={"items": [], "body": ECHO}), "`forEach` belongs to ForEach"),
        (loop(["a"], ECHO, args=["x"]), "takes no args"),
        (echo("\ud800"), "surrogate"),
        ({"verb": "FilePatch", "args": ["a"], "patches": [{"find": "\udfff", "replace": "y"}]}, "surrogate"),
    ],
)
def test_forms_that_are_wrong(operation, says):
    """Each names the verb, the place and the right form."""
    with pytest.raises(Mk8Error, match=says):
        args(operation)


def test_verbs_are_taken_in_any_case():
    """And spelled as the table has them."""
    assert [step.verb for step in written_out({"verb": "fileREAD", "args": ["a"]})] == ["FileRead"]
    assert args({"verb": "foreach", "forEach": {"items": ["a"], "body": ECHO}}) == [("x",)]
