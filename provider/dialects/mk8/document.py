"""
What is written about mk8.shell: the quick reference and the documentation that agents can ask for, and the table of
verbs for people. Names, arguments, commands and numbers come from the tables that enforce.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from provider.dialects.mk8 import limits
from provider.inside.mk8.allowlist import ALLOWED
from provider.inside.mk8.guards import PREDICATES
from provider.inside.mk8.paths import WRITE_BLOCKED_EXTENSIONS, WRITE_BLOCKED_NAMES
from provider.inside.mk8.slots import MOST_WORDS
from provider.inside.mk8.templates import BLOCKED, PROTECTED_BRANCHES, TEMPLATES
from provider.inside.mk8.verbs import VERBS

EXAMPLE: Final = """\
{
  "operations": [
    {"verb": "DirCreate", "args": ["out"]},
    {"verb": "FileRead", "args": ["version.txt"], "captureAs": "VERSION"},
    {"verb": "FileWrite", "args": ["out/notes.md", "Version $VERSION"], "maxRetries": 1, "onFailure": "goto:end"},
    {"verb": "ForEach", "forEach": {
      "items": ["a", "b"], "body": {"verb": "FileCopy", "args": ["$ITEM.txt", "out/$ITEM.txt"]}}},
    {"verb": "If", "if": {
      "predicate": {"kind": "FileExists", "args": ["out/a.txt"]}, "then": {"verb": "FileHash", "args": ["out/a.txt"]}}},
    {"verb": "ProcRun", "args": ["git", "status", "--short"]},
    {"verb": "Echo", "args": ["done"], "label": "end"}
  ],
  "options": {"stepTimeout": "00:01:00", "failureMode": "StopAndCleanup", "pipeStepOutput": true},
  "cleanup": [{"verb": "DirDelete", "args": ["out"]}]
}"""

_QUICK: Final = """\
mk8.shell in one page

A script is one JSON object: a list of operations, each a verb with text arguments. There is no shell: no pipes, no
redirection, no globbing. Everything is checked before anything runs; one mistake and nothing runs.

{example}

Paths      below the workspace, relative or as $WORKSPACE/...; never with ".." in them.
Variables  $WORKSPACE $CWD $USER, the sandbox's own settings, captures of earlier steps, $ITEM and $INDEX in a loop, and
           $PREV (the output of the step before) when pipeStepOutput is true.
Commands   ProcRun takes only commands that fit a template, word by word: ask Mk8Templates, or Mk8Docs for their forms.
           Messages and names come from word lists: Mk8VocabList, then Mk8Vocab with a list's name.
Failure    StopOnFirstError (as it is), ContinueOnError, StopAndCleanup; or onFailure "goto:label" of a later step.
Refused    some terms anywhere (Mk8Blacklist), writing what tools execute, .git, protected branches, private addresses.

Ask        Mk8Verbs  Mk8Templates  Mk8VocabList  Mk8Vocab  Mk8FreeText  Mk8Blacklist  Mk8Env  Mk8Info  Mk8Docs
"""

_DOCUMENTATION: Final = """\
# mk8.shell

## Scripts

{example}

Names are taken in any case, unknown ones are ignored. `operations` is needed, `options` and `cleanup` are not.

| of an operation | |
|---|---|
| verb, args | what to do; args are always strings |
| maxRetries, stepTimeout | instead of those in options |
| label, onFailure | a name for the step; "goto:label" jumps forward to it when the step fails |
| captureAs | keeps the output, as $NAME, for later steps |
| template | FileTemplate only: {{"source": path, "values": {{KEY: text}}}} |
| patches | FilePatch only: [{{"find": text, "replace": text}}] |
| forEach | ForEach only: {{"items": [text], "body": operation}} |
| if | If only: {{"predicate": {{"kind": name, "args": [text]}}, "then": operation}} |
| workingDirectory | ProcRun only: where the program starts |

| option | without it | |
|---|---|---|
| maxRetries | 0 | further attempts, at most {retries} |
| retryDelay | 00:00:02 | before the first of them; doubles each time |
| stepTimeout | 00:00:30 | of one attempt |
| scriptTimeout | 00:05:00 | of everything |
| failureMode | StopOnFirstError | or ContinueOnError, StopAndCleanup |
| maxOutputBytes, maxErrorBytes | 1048576, 262144 | of a step; the end is kept |
| pipeStepOutput | false | whether $PREV is filled |

A duration is [d.]hh:mm:ss[.fffffff].

## Limits

{operations} operations with everything written out, {chars} characters of text in all; {items} items of a ForEach,
{entries} entries of a batch verb, {depth} levels of ForEach, If and Include; {captures} captures, {label} characters of
a label, {keys} keys of a template, {patches} patches.

## Variables

`$NAME`: a letter or _, then letters, digits and _, in any case. Filled in once; an unknown name stays as it is. Not in
template values and patches. A command of ProcRun takes neither $PREV nor a capture of a ProcRun.

## Predicates

{predicates}. Texts are compared in any case. A guard is looked at right before its step; when it does not hold,
the step is skipped.

## Paths

Relative to the workspace, or absolute below it. `..` is refused, and so is a link that leads out. Writing, moving and
deleting are also refused for anything in .git, for the names {names}, and for the extensions {extensions}.

## Environment

EnvGet and EnvList know {allowed}.

## Network

http and https to public hosts on ports 80 and 443, without a user's name. Private addresses are refused wherever a name
leads. Whether there is a network at all is decided for the sandbox.

## Verbs

{verbs}

## Commands of ProcRun

A program's bare name, then the words of one of these forms; capitals count. Flags may stand between the values.
`<path>` is a path below the workspace, `<path (written)>` one under the rules for writing, `<1-10>` a number, and
`<Name>` an entry of that word list (Mk8Vocab). A text of CommitWords has up to {words} words of the list, unless
FreeText is on for the command (Mk8FreeText).

{templates}

which and where know: {programs}.
Never run: {blocked}.
Branches that no command touches: {branches}, release/*.
"""


def quick_reference() -> str:
    return _QUICK.format(example=EXAMPLE)


def documentation() -> str:
    return _DOCUMENTATION.format(
        example=EXAMPLE,
        retries=limits.MOST_RETRIES,
        operations=limits.MOST_OPERATIONS,
        chars=limits.MOST_CHARS,
        items=limits.MOST_ITEMS,
        entries=limits.MOST_ENTRIES,
        depth=limits.DEEPEST,
        captures=limits.MOST_CAPTURES,
        label=limits.LONGEST_LABEL,
        keys=limits.MOST_KEYS,
        patches=limits.MOST_PATCHES,
        predicates=", ".join(PREDICATES),
        names=" ".join(sorted(WRITE_BLOCKED_NAMES)),
        extensions=" ".join(sorted(WRITE_BLOCKED_EXTENSIONS)),
        allowed=" ".join(ALLOWED),
        verbs="\n".join(f"- {name}: {verb.describe or 'no arguments'}" for name, verb in sorted(VERBS.items())),
        words=MOST_WORDS,
        templates="\n".join(f"- {template.description}: `{template.usage}`" for template in TEMPLATES),
        programs=" ".join(TEMPLATES[-1].slots[0].choices),
        blocked=" ".join(sorted(BLOCKED)),
        branches=", ".join(PROTECTED_BRANCHES),
    )


def verb_table(tests: Mapping[str, int], examples: Mapping[str, str] | None = None) -> str:
    """
    Every verb as a row of a Markdown table: its arguments, an example where there is one, and how many test rows it
    has.
    """
    known = examples or {}
    rows = ["| verb | arguments | example | tests |", "|---|---|---|---|"]
    for name, verb in sorted(VERBS.items()):
        cells = (f"`{name}`", _cell(verb.describe) or "none", _cell(known.get(name, "")), str(tests.get(name, 0)))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
