"""
The nouns of what is attacked before anything runs: a trick, the ways it can be put to a provider, and what came of it.

A trick is a text that tries to have a verdict say yes to one thing and bash do another. It is put to every contract
that takes such text, over an engine without containers that counts what it is asked for: a call that was refused or
asked about (the answer is no) must have made none. Where a contract lets a spelling pass, the trick says why that does
no harm.
"""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from provider import Provider, Settings
from provider.approval import Answer, Question
from provider.dialects.mk8.registry import Registry
from provider.errors import CallError, Refused
from provider.model import Workspace
from provider.testing import FakeEngine, FakeSandbox

Said = Literal["refused", "asked", "allowed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trick:
    id: str
    """Its number in the list of attacks."""
    title: str
    """The promise, in one sentence."""
    spellings: tuple[str, ...]
    words: bool = False
    """Whether it is one without a shell, too: put as words to the ways that take them."""
    only: tuple[str, ...] = ()
    """The ways that promise something about it, where not all do."""
    harmless: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Way to spelling to why it may run; `*` is every spelling, and every way."""

    def excuse(self, way: str, spelling: str) -> str:
        found = (self.harmless.get(name, {}) for name in (way, "*"))
        return next((reasons[key] for reasons in found for key in (spelling, "*") if key in reasons), "")


@dataclass(frozen=True, slots=True)
class Came:
    """What a provider made of one call."""

    said: Said
    containers: int
    """That were asked for."""
    because: str
    given: str = ""
    """All that the command was given: words, variables, stdin."""
    box: str = ""
    """The container that was asked for, its workspace aside: each has one of its own here."""
    timeout: float = 0.0


# The operator of all these allows a few programs for reading, and refuses two.

READS: Final = ("echo", "ls", "cat", "git status", "npm test", "find", "rg", "true")
NEVER: Final = ("curl", "rm")
RULES: Final = """
default = "ask"

[[rule]]
name = "reading"
decision = "allow"
because = "it only reads"
program = ["echo", "ls", "cat", "rg", "true"]
matches = ["ls -la"]

[[rule]]
name = "finding"
decision = "allow"
because = "it only reads"
program = "find"
unless = ["-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls"]
matches = ["find . -name x"]

[[rule]]
name = "git status"
decision = "allow"
because = "it only reads"
program = "git"
prefix = ["status"]
matches = ["git status"]

[[rule]]
name = "npm test"
decision = "allow"
because = "the project's own tests"
program = "npm"
prefix = ["test"]
matches = ["npm test"]

[[rule]]
name = "never"
decision = "refuse"
because = "nothing is fetched, nothing is deleted"
program = ["curl", "rm"]
matches = ["curl x", "rm x"]
"""
EXEC_RULES: Final = "\n".join(
    [f'prefix_rule(pattern=["{program}"], decision="forbidden")' for program in NEVER]
    + [f"prefix_rule(pattern={entry.split()!r})".replace("'", '"') for entry in READS if entry not in {"find", "rg"}]
)
SYSTEM_USER: Final = "6d6b3800-0000-4000-8000-0000000000aa"
BOX: Final = "box"
NOWHERE: Final = Workspace(path=Path("/"), device=0, inode=0, uid=0, gid=0)


def tables(home: Path) -> dict[str, dict[str, Any]]:
    rules = home / "rules"
    rules.mkdir()
    (rules / "default.rules").write_text(EXEC_RULES)
    return {
        "run_shell_command": {
            "core_tools": [f"run_shell_command({entry})" for entry in READS],
            "exclude_tools": [f"run_shell_command({entry})" for entry in NEVER],
        },
        "workspace_run": {"allowed_commands": sorted({entry.split()[0] for entry in READS})},
        "codex": {"approval_policy": "untrusted", "rules": rules},
        "mk8": {
            "home": home / "mk8",
            "agent_permissions": {
                "grants": [
                    {"action": action, "clearance": 5} for action in ("execute_dangerous_shell", "execute_mk8_shell")
                ]
            },
            "system_users": [{"id": SYSTEM_USER, "uid": 1000, "gid": 1000, "working_directory": "/workspace"}],
        },
    }


# The ways.


def split(text: str) -> list[str]:
    """The words, as a caller without a shell would have them."""
    try:
        return shlex.split(text) or [text]
    except ValueError:
        return text.split(" ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One tool, and how a text is put to it."""

    tool: str
    payload: Callable[[str], Any]
    words: bool = False
    """It takes words, and no shell reads them."""
    rules: bool = False
    """The contract has no list of its own, or one that is not meant here: the operator's rules are in force."""
    table: Mapping[str, Any] = field(default_factory=dict)
    """Over what `tables` has for the tool."""


def _words(text: str) -> dict[str, Any]:
    first, *rest = text.split(" ")  # quotes and line ends stay, as they do when a model cuts a text at its blanks
    return {"command": first, "parameters": rest}


def _script(text: str) -> dict[str, Any]:
    step = {"verb": "ProcRun", "args": split(text)}
    return {"sandboxId": BOX, "script": {"operations": [step]}}


def _item(text: str) -> dict[str, Any]:
    return {"call_id": "c", "action": {"type": "exec", "command": ["bash", "-lc", text]}}


RUN: Final = ""
WAYS: Final[Mapping[str, Way]] = {
    "rules": Way(tool=RUN, payload=lambda text: ["bash", "-c", text], rules=True),
    "rules, words": Way(tool=RUN, payload=split, words=True, rules=True),
    "shell_cmd": Way(tool="shell_cmd", payload=lambda text: {"command": text}, rules=True),
    "shell_cmd, words": Way(tool="shell_cmd", payload=_words, words=True, rules=True),
    "run_shell_command": Way(tool="run_shell_command", payload=lambda text: {"command": text}),
    "workspace_run": Way(tool="workspace_run", payload=lambda text: {"command": text}),
    "workspace_run, glob": Way(
        tool="workspace_run", payload=lambda text: {"command": text}, table={"workspace_run": {"glob": True}}
    ),
    "shell": Way(tool="shell", payload=lambda text: {"command": ["bash", "-lc", text]}),
    "shell, words": Way(tool="shell", payload=lambda text: {"command": split(text)}, words=True),
    "container.exec": Way(tool="container.exec", payload=lambda text: {"command": ["sh", "-c", text]}),
    "local_shell": Way(tool="local_shell", payload=_item),
    "shell_command": Way(tool="shell_command", payload=lambda text: {"command": text}),
    "execute_dangerous_shell": Way(
        tool="execute_dangerous_shell",
        payload=lambda text: {"resourceId": SYSTEM_USER, "shellType": "Bash", "command": text},
        rules=True,
    ),
    "execute_mk8_shell": Way(tool="execute_mk8_shell", payload=_script, words=True),
}


DENY_LIST: Final = Way(
    tool="run_shell_command",
    payload=lambda text: {"command": text},
    table={"run_shell_command": {"core_tools": []}},
)
"""Everything may run but what the operator never wants."""


def ways_of(trick: Trick) -> tuple[str, ...]:
    """Those it is put by; words, where no shell reads them, only where it is a trick for those too."""
    named = trick.only or tuple(WAYS)
    return tuple(name for name in named if trick.words or not WAYS[name].words or name == "shell_cmd, words")


# Putting it.


def put(way: str | Way, payloads: Mapping[str, Any]) -> dict[str, Came]:
    """Put each payload to a provider of its own kind, one after the other, and see what is asked and what is made."""
    return asyncio.run(_put(WAYS[way] if isinstance(way, str) else way, payloads))


async def _put(way: Way, payloads: Mapping[str, Any]) -> dict[str, Came]:
    with tempfile.TemporaryDirectory(prefix="tricks-") as folder:
        home = Path(folder, "home")
        workspace = Path(folder, "workspace")
        for made in (home, workspace):
            made.mkdir()
        Registry(home / "mk8").register(BOX, workspace, {})
        (workspace / "bin").mkdir()
        for name in ("x", "f", "ls", "git", "bin/ls"):
            (workspace / name).touch()
        chosen = tables(home)
        for name, more in way.table.items():
            chosen[name] = chosen[name] | more
        (home / "rules.toml").write_text(RULES)
        engine, questions = FakeEngine(), list[Question]()

        async def no(question: Question) -> Answer:
            questions.append(question)
            return Answer.DENY

        settings = Settings(spares=0, tools=chosen, rules=home / "rules.toml" if way.rules else None)
        found: dict[str, Came] = {}
        async with Provider(workspace, engine=engine, settings=settings, approver=no) as provider:
            for name, payload in payloads.items():
                made, asked = len(engine.sandboxes), len(questions)
                because = await _call(provider, way, payload)
                containers = len(engine.sandboxes) - made
                said: Said = "asked" if len(questions) > asked else "allowed" if containers else "refused"
                if said == "asked" and not because:
                    because = "; ".join(questions[-1].verdict.reasons)
                found[name] = Came(said, containers, because, **_given(engine.sandboxes[made:]))
        return found


def _given(sandboxes: Sequence[FakeSandbox]) -> dict[str, Any]:
    plans = [sandbox.released for sandbox in sandboxes if sandbox.released]
    return {
        "given": "".join(repr((sandbox.released, sandbox.stdin)) for sandbox in sandboxes),
        "box": "".join(repr(replace(sandbox.box, workspace=NOWHERE)) for sandbox in sandboxes),
        "timeout": max((plan.timeout or float("inf") for plan in plans), default=0.0),
    }


async def _call(provider: Provider, way: Way, payload: Any) -> str:
    """Call, and tell why it did not run; empty when it did."""
    if way.tool:
        reply = await provider.call(way.tool, payload, session="s")
        return "" if reply.success else str(reply.content)
    try:
        await provider.run(payload)
    except (CallError, Refused) as error:
        return str(error)
    return ""


def put_all(tricks: Iterable[Trick], names: Sequence[str] = tuple(WAYS)) -> dict[tuple[str, str], Came]:
    """By way and spelling."""
    listed = list(tricks)
    found: dict[tuple[str, str], Came] = {}
    for name in names:
        texts = dict.fromkeys(text for trick in listed if name in ways_of(trick) for text in trick.spellings)
        came = put(name, {text: WAYS[name].payload(text) for text in texts})
        found |= {(name, text): one for text, one in came.items()}
    return found
