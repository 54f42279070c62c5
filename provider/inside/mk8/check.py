"""
The one place where a step is held against everything: terms, paths, URLs, counts, what its verb demands, and for
ProcRun the templates.

On the host at compile time, with None for a value that only the run knows, and by the text of paths alone. Inside
again, right before each attempt: with real values, and with every link followed (`links`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from . import blacklist
from .compiled import Guard, Rules, Step
from .errors import Blacklisted, CompileError, Mk8Error
from .paths import check_name_pattern, is_root, resolve_read, resolve_write
from .urls import check_host, check_url
from .variables import literals
from .verb import HOST, NAME_PATTERN, READ, TEXT, URL, WRITE, Verb
from .verbs import VERBS

NOT_THE_ROOT: Final = frozenset({"FileDelete", "FileMove", "DirDelete"})
"""Verbs whose first argument is gone afterwards."""
PATH_GUARDS: Final = frozenset({"FileExists", "DirExists"})


def check_step(
    step: Step, values: Sequence[str | None], rules: Rules, root: str, *, links: bool = False
) -> tuple[str | None, ...]:
    """
    Check one step and give its arguments as its verb gets them: paths absolute, below the root; ProcRun's as the
    program gets them.

    `values` are `step.args` with variables filled in; None is one that is not known yet. Of `step.source` and
    `step.cwd`, which may still have variables in them, only the terms are looked at: `check_path` is for them.

    Raises:
        Mk8Error: of the category that fits; its text names the argument.
    """
    verb = VERBS.get(step.verb)
    if verb is None:
        raise CompileError(step.verb, "there is no such verb; Mk8Verbs lists all.")
    _check_terms(step, values, rules, root)
    if step.verb == "ProcRun":
        return _check_process(step, verb, values, rules, root, links=links)
    resolved = _resolved(verb, values, root, links=links)
    _check_count(verb, len(values))
    if step.verb in NOT_THE_ROOT and resolved[0] is not None and is_root(resolved[0], root, links=links):
        raise CompileError(step.verb, "argument 1 is the workspace itself, which is neither deleted nor moved.")
    verb.check(resolved)
    return resolved


def check_path(text: str, rules: Rules, root: str, *, links: bool = False) -> str:
    """
    Check a path that is only read, such as a template's source or a working directory, and give where it lies.

    Raises:
        Mk8Error: of the category that fits.
    """
    blacklist.check(text, rules.blacklist, root)
    return resolve_read(text, root, links=links)


def check_guard(
    guard: Guard, values: Sequence[str | None], rules: Rules, root: str, *, links: bool = False
) -> tuple[str | None, ...]:
    """
    Check what an `If` looks at, and give its arguments, paths absolute.

    Raises:
        Mk8Error: of the category that fits.
    """
    if guard.kind not in PATH_GUARDS:
        return tuple(values)
    return tuple(value if value is None else check_path(value, rules, root, links=links) for value in values[:1])


def texts(step: Step, values: Sequence[str | None]) -> list[str]:
    """Everything that a script says in a step."""
    said = [value for value in values if value is not None]
    if len(said) < len(values):  # the rest of an open text is known, and as much a part of the argument
        said += (text for place, value in enumerate(values) if value is None for text in literals(step.args[place]))
    said += (text for path in (step.source, step.cwd) if path is not None for text in literals(path))
    if step.template is not None:
        said += (text for pair in step.template.items() for text in pair)
    said += (text for patch in step.patches for text in patch)
    return said


def at(error: Mk8Error, place: str) -> Mk8Error:
    """The same error, which also says where."""
    error.args = (f"{error} ({place})",)
    return error


def _check_terms(step: Step, values: Sequence[str | None], rules: Rules, root: str) -> None:
    if not rules.blacklist:
        return
    said = texts(step, values)
    # All at once first: nearly every step has no such term, and there are a hundred of them to look for.
    try:
        blacklist.check("\0".join(said), rules.blacklist, root)
    except Blacklisted:
        for place, value in enumerate(values, start=1):
            _check_term(literals(step.args[place - 1]) if value is None else (value,), rules, root, f"argument {place}")
        _check_term(said, rules, root, "beside the arguments")


def _check_term(found: Iterable[str], rules: Rules, root: str, place: str) -> None:
    for text in found:
        try:
            blacklist.check(text, rules.blacklist, root)
        except Mk8Error as error:
            raise at(error, place) from None


def _check_process(
    step: Step, verb: Verb, values: Sequence[str | None], rules: Rules, root: str, *, links: bool
) -> tuple[str | None, ...]:
    from .command import check_command  # late: 128 templates, and most scripts run nothing

    _check_count(verb, len(values))
    # Elsewhere than in the root, a path as it was written would be another one for the program.
    return check_command(values, rules, root, links=links, relative=step.cwd is None)


def _check_count(verb: Verb, count: int) -> None:
    if not verb.least <= count <= verb.most:
        wanted = str(verb.least) if verb.least == verb.most else f"{verb.least}–{verb.most}"  # noqa: RUF001 - the contract's
        right = verb.describe or "none"
        raise CompileError(verb.name, f"expected {wanted} arguments ({right}), got {count}.")


def _resolved(verb: Verb, values: Sequence[str | None], root: str, *, links: bool) -> tuple[str | None, ...]:
    resolved = list(values)
    last = len(verb.kinds) - 1
    for place, value in enumerate(values):
        kind = verb.kinds[min(place, last)] if verb.kinds else TEXT
        if value is not None and kind != TEXT:
            try:
                resolved[place] = _RESOLVE[kind](verb.name, value, root, links)
            except Mk8Error as error:
                raise at(error, f"argument {place + 1}") from None
    return tuple(resolved)


_RESOLVE: Final[dict[str, Callable[[str, str, str, bool], str]]] = {
    READ: lambda verb, value, root, links: resolve_read(value, root, links=links),  # noqa: ARG005 - the shape of all
    WRITE: lambda verb, value, root, links: resolve_write(verb, value, root, links=links),
    NAME_PATTERN: lambda verb, value, root, links: check_name_pattern(verb, value),  # noqa: ARG005
    URL: lambda verb, value, root, links: check_url(value),  # noqa: ARG005
    HOST: lambda verb, value, root, links: check_host(value),  # noqa: ARG005
}
