"""
Tool calls in a model's text, and their results in the text that it gets back.

A call is `[TOOL_CALL:<id>]` at the start of a line, or right behind another call, followed by a JSON object. What is in
a code fence is an example, what is in the middle of a line is talk; both stay what they are. A call that cannot be read
is found all the same, so that it has an answer.

Everything takes time in proportion to the text. A call's JSON can hold no line that begins with a marker or a fence
(JSON has no such token, and no raw line break in a string), so the next such line is as far as any search goes.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from provider.dialects.mk8.call import MAX_DEPTH, MAX_ID, UNKNOWN_ID, Call, Malformed, Result, read_call

MAX_CALLS: Final = 64
"""In one message. The contract has no number; without one, a message full of markers is answered by a longer one."""
UNRECOGNISED: Final = "Error: unrecognized tool or malformed arguments."
"""Native mode's answer to what is no call; the words are the contract's."""

_MARKER: Final = "[TOOL_CALL:"
# Fences at any indentation, since lists indent them; markers at up to three spaces, since four make a code block.
_START: Final = r"(?:[ \t]*(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)| {0,3}(?P<marker>\[TOOL_CALL:))"
_FIRST_LINE = re.compile(_START)
# Not `^`, which is tried at every letter: a line break is searched for at once.
_LATER_LINE = re.compile(rf"\n{_START}")
_HEAD = re.compile(r"\[TOOL_CALL:([^\]\n]{0,1024}+)\]")
_SPACE = re.compile(r"[ \t\r\n]*")
_GAP = re.compile(r"[ \t]*")
_REST_OF_LINE = re.compile(r"[ \t]*\r?(?:\n|\Z)")
_FENCE_BEHIND = re.compile(r"[ \t]*(?:```|~~~)[^\n]*")
_BLANK_LINE = re.compile(r"\n[ \t]*\r?\n")
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}"]', re.DOTALL)
_EMBEDDED = re.compile(r"\[(?=\\*+TOOL_(?:CALL|RESULT):)", re.IGNORECASE)
_DECODER = json.JSONDecoder()


def find_calls(text: str) -> tuple[Call | Malformed, ...]:
    """Every call in a message, in order."""
    found: list[Call | Malformed] = []
    seen: set[str] = set()
    for block in _blocks(text):
        if len(found) == MAX_CALLS:
            error = f"a message has room for {MAX_CALLS} calls; this one and those behind it were not run"
            found.append(Malformed(id=_shown(block.id), error=error))
            break
        found.append(_call(block, seen))
        seen.add(block.id)
    return tuple(found)


def strip_calls(text: str) -> str:
    """The text without its calls, trimmed: what a person reads. It ends at the first call that is one too many."""
    kept: list[str] = []
    at = 0
    for number, block in enumerate(_blocks(text)):
        kept.append(text[at : block.start])
        at = _past(_REST_OF_LINE, text, block.end, len(text))
        if number == MAX_CALLS:
            at = len(text)
            break
    kept.append(text[at:])
    rest = "".join(kept)
    trimmed = rest.strip()
    # Trimming must not make a call of what was indented as code.
    return rest.rstrip() if trimmed.startswith(_MARKER) else trimmed


def native_call(call_id: str, tool: str, arguments: object) -> Call | Malformed:
    """A call of native mode: the tool's name is the action; arguments may come as JSON text."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return Malformed(id=call_id, error=UNRECOGNISED)
    call = read_call(call_id, arguments, action=tool)
    return call if isinstance(call, Call) else Malformed(id=call_id, error=f"{UNRECOGNISED} {call.error}")


def render_result(result: Result) -> str:
    """One answer, as the text protocol has it. What it quotes can have more lines, and no marker."""
    return f"[TOOL_RESULT:{neutralised(result.id)}] {render_status(result)}"


def render_results(results: Iterable[Result]) -> str:
    """All answers of a round: the one message that the model gets for them."""
    return "\n".join(map(render_result, results))


def render_status(result: Result) -> str:
    """An answer as native mode has it, without a marker."""
    text = f"status={result.status.word}"
    if result.result is not None:
        text += f" result={neutralised(result.result)}"
    if result.error is not None:
        text += f" error={neutralised(result.error)}"
    return text


def neutralised(text: str) -> str:
    r"""
    The text with `[\TOOL_CALL:` where it had `[TOOL_CALL:`, and so for results, in any case.

    Whoever reads it sees what stood there, and no program takes it for a marker. One backslash more than there was, so
    nothing is lost.
    """
    return _EMBEDDED.sub(r"[\\", text)


@dataclass(frozen=True, slots=True)
class _Block:
    """A marker with what follows it, from `start` to `end` of the text."""

    start: int
    end: int
    id: str
    payload: Any = None
    fault: str = ""


def _call(block: _Block, seen: set[str]) -> Call | Malformed:
    if block.fault:
        fault = block.fault
    elif not block.id:
        fault = "the marker has no id; write [TOOL_CALL:<unique_id>] and a JSON object behind it"
    elif len(block.id) > MAX_ID or not block.id.isprintable() or "[" in block.id:
        fault = f"the id has more than {MAX_ID} characters, or one that is not printable, or ["
    elif block.id in seen:
        fault = f"the id {block.id!r} stands for an earlier call of this message; this one was not run"
    else:
        return read_call(block.id, block.payload)
    return Malformed(id=_shown(block.id), error=fault)


def _shown(call_id: str) -> str:
    """An id for the answer, whatever was found in its place."""
    return "".join(letter if letter.isprintable() else "?" for letter in call_id[:MAX_ID]) or UNKNOWN_ID


def _blocks(text: str) -> Iterator[_Block]:
    """Every marker outside code fences."""
    if _MARKER not in text:
        return
    lines = itertools.chain(filter(None, [_FIRST_LINE.match(text)]), _LATER_LINE.finditer(text))
    line = next(lines, None)
    fence = ""
    while line:
        following = next(lines, None)
        if line["marker"]:
            if not fence:
                start = line.start() + line[0].startswith("\n")
                end = following.start() + 1 if following else len(text)
                yield from _blocks_between(text, start, line.start("marker"), end)
        elif not fence:
            # Behind backticks that open a fence there are no more of them: `` ```a``` `` is inline.
            fence = "" if line["fence"][0] == "`" and "`" in line["info"] else line["fence"]
        elif line["fence"].startswith(fence) and not line["info"].strip():
            fence = ""
        line = following


def _blocks_between(text: str, start: int, marker: int, end: int) -> Iterator[_Block]:
    """The marker of a line, and those that follow right behind its call."""
    while text.startswith(_MARKER, marker, end):
        block = _read_block(text, start, marker, end)
        yield block
        start = block.end
        marker = _past(_GAP, text, start, end)


def _read_block(text: str, start: int, marker: int, end: int) -> _Block:
    head = _HEAD.match(text, marker, end)
    if head is None:
        newline = text.find("\n", marker, end)
        return _Block(
            start, end if newline < 0 else newline, "", fault="the marker has no ] on its line, or far behind"
        )
    call_id = head[1].strip()
    at = _past(_SPACE, text, head.end(), end)
    if not text.startswith("{", at, end):
        fault = "no JSON object follows the marker; write [TOOL_CALL:<unique_id>] {...}"
        return _Block(start, _without_fence(text, head.end(), end), call_id, fault=fault)
    stop = _closing(text, at, end)
    if stop is None:
        blank = _BLANK_LINE.search(text, at, end)
        fault = f"the JSON object behind the marker has no end, or is nested deeper than {MAX_DEPTH} levels"
        return _Block(start, blank.start() if blank else end, call_id, fault=fault)
    behind = _without_fence(text, stop, end)
    try:
        payload, length = _DECODER.raw_decode(text[at:stop])
    except RecursionError:
        return _Block(start, behind, call_id, fault=f"the payload is nested deeper than {MAX_DEPTH} levels")
    except ValueError as error:
        return _Block(start, behind, call_id, fault=f"the JSON behind the marker is not valid: {error}")
    assert length == stop - at, "an object ends at the brace that closes it"
    return _Block(start, behind, call_id, payload=payload)


def _closing(text: str, at: int, end: int) -> int | None:
    """Where the object that begins here is closed, by counting braces outside strings."""
    depth = 0
    for token in _TOKEN.finditer(text, at, end):
        match text[token.start()]:
            case "{":
                depth += 1
                if depth > MAX_DEPTH:
                    return None
            case "}":
                depth -= 1
                if depth == 0:
                    return token.end()
            case _ if len(token[0]) == 1:
                return None  # a string without its end
    return None


def _without_fence(text: str, at: int, end: int) -> int:
    """Behind a call on its line no fence can begin; left alone there, it would become one once the call is gone."""
    return _past(_FENCE_BEHIND, text, at, end)


def _past(pattern: re.Pattern[str], text: str, at: int, end: int) -> int:
    found = pattern.match(text, at, end)
    return found.end() if found else at
