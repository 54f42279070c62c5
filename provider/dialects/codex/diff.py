"""
Files before and after -> a unified diff in git's form. Pure.

The files come out of a sandbox and may be made to be hard to compare, so the work has a budget: the shortest script
(Myers) where that can be found within it, else lines that both sides have only once as anchors (patience) and the
shortest between them, and what is still open when the budget is spent is replaced as a whole. Whatever is left out,
the diff is right; it only gets longer than it would have to be.
"""

from __future__ import annotations

import hashlib
import stat
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

BUDGET: Final = 400_000
"""Steps for one pair of files; a tenth of a second."""
BUDGET_OF_ALL: Final = 10 * BUDGET
"""For all the files of a diff together; those after it is spent are replaced from their first to their last change."""
MAX_LINES: Final = 200_000
"""Of one side. What has more is not compared, but replaced."""
CONTEXT: Final = 3
NO_NEWLINE: Final = "\\ No newline at end of file\n"
BINARY: Final = "Binary files differ\n"
NOTHING: Final = "/dev/null"
ABSENT: Final = "0" * 40
_NAMED: Final = {"\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v", "\f": "\\f", "\r": "\\r"}
_NAMED_TOO: Final = {'"': '\\"', "\\": "\\\\"}


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    mode: int = 0o644
    """Permissions; with the bits for a link, it is one, and its content is where it leads."""

    @property
    def git_mode(self) -> str:
        if stat.S_ISLNK(self.mode):
            return "120000"
        return "100755" if self.mode & 0o111 else "100644"

    @property
    def blob(self) -> str:
        """Its name as git has it."""
        named = hashlib.sha1(b"blob %d\0" % len(self.content), usedforsecurity=False)
        named.update(self.content)
        return named.hexdigest()


def turn_diff(
    before: Mapping[str, File | None], after: Mapping[str, File | None], moves: Mapping[str, str] | None = None
) -> str:
    """
    Tell all differences, by path; None, like a path that is not there, is no file.

    A file that went from one path to another and is otherwise the same is no difference. With `moves`, from old path to
    new, one that was changed on the way is one difference instead of two.
    """
    came_from = _renamed(before, after, moves or {})
    gone = set(came_from.values())
    purse = _Purse(BUDGET_OF_ALL)
    pieces: list[str] = []
    for path in sorted({*before, *after} - gone):
        source = came_from.get(path, path)
        pieces.append(_file_diff(source, before.get(source), path, after.get(path), purse))
    return "".join(pieces)


def unified(before: str, after: str, context: int = 1) -> str:
    """Tell the difference of two texts as hunks, without a header; nothing where there is none."""
    return _unified(before, after, context, _Purse(BUDGET))


class _Purse:
    """Steps that may still be made."""

    def __init__(self, left: int) -> None:
        self.left = left


def _unified(before: str, after: str, context: int, purse: _Purse) -> str:
    if before == after:
        return ""
    if max(before.count("\n"), after.count("\n")) >= MAX_LINES:
        old, new = before.count("\n") + _is_open(before), after.count("\n") + _is_open(after)
        return f"@@ -{_span(0, old)} +{_span(0, new)} @@\n{_all('-', before)}{_all('+', after)}"
    old_lines, new_lines = _lines(before), _lines(after)
    edits = _edits(old_lines, new_lines, purse)
    return "".join(_hunk(old_lines, new_lines, group, context) for group in _grouped(edits, context))


def _renamed(
    before: Mapping[str, File | None], after: Mapping[str, File | None], moves: Mapping[str, str]
) -> dict[str, str]:
    """Find what went from one path to another: new path to old."""
    went = {path for path, file in before.items() if file and not after.get(path)}
    came = {path for path, file in after.items() if file and not before.get(path)}
    renamed = {to: path for path, to in moves.items() if path in went and to in came}
    left: defaultdict[File, list[str]] = defaultdict(list)
    for path in sorted(went - set(renamed.values()), reverse=True):
        file = before[path]
        if file and file.content:  # all empty files are the same
            left[file].append(path)
    for path in sorted(came - set(renamed)):
        file = after[path]
        if file and left.get(file):
            renamed[path] = left[file].pop()
    return renamed


def _file_diff(old_path: str, old: File | None, new_path: str, new: File | None, purse: _Purse) -> str:
    if old is None and new is None:
        return ""
    same = old is not None and new is not None and old.content == new.content
    if same and (old_path != new_path or (old and new and old.git_mode == new.git_mode)):
        return ""
    head = [f"diff --git {_quoted(f'a/{old_path}')} {_quoted(f'b/{new_path}')}\n"]
    if old is None and new is not None:
        head.append(f"new file mode {new.git_mode}\n")
    elif new is None and old is not None:
        head.append(f"deleted file mode {old.git_mode}\n")
    elif old and new and old.git_mode != new.git_mode:
        head.append(f"old mode {old.git_mode}\nnew mode {new.git_mode}\n")
    if same:
        return "".join(head)
    head.append(f"index {old.blob if old else ABSENT}..{new.blob if new else ABSENT}\n")
    names = f"--- {_quoted(f'a/{old_path}') if old else NOTHING}\n+++ {_quoted(f'b/{new_path}') if new else NOTHING}\n"
    try:
        texts = (old.content.decode() if old else "", new.content.decode() if new else "")
        hunks = _unified(*texts, CONTEXT, purse)
    except UnicodeDecodeError:
        hunks = BINARY
    # An empty file that comes or goes has no lines to show.
    return "".join([*head, names, hunks]) if hunks else "".join(head)


def _quoted(path: str) -> str:
    """Give a path as git writes it: one that could be taken for something else in quotes."""
    if path.isprintable() and not _NAMED_TOO.keys() & set(path):
        return path
    return '"' + "".join(map(_escaped, path)) + '"'


def _escaped(letter: str) -> str:
    known = _NAMED.get(letter) or _NAMED_TOO.get(letter)
    if known or letter.isprintable():
        return known or letter
    return "".join(f"\\{byte:03o}" for byte in letter.encode(errors="surrogateescape"))


def _lines(text: str) -> list[str]:
    """Split after each LF and nowhere else, as git does; the last line may be without one."""
    *ended, last = text.split("\n")
    return [f"{line}\n" for line in ended] + ([last] if last else [])


def _is_open(text: str) -> bool:
    return bool(text) and not text.endswith("\n")


def _all(sign: str, text: str) -> str:
    if not text:
        return ""
    body = sign + text.removesuffix("\n").replace("\n", f"\n{sign}") + "\n"
    return body + NO_NEWLINE if _is_open(text) else body


Edit = tuple[int, int, int, int]
"""Lines `a` to `b` of the old are replaced by `c` to `d` of the new."""


def _grouped(edits: Sequence[Edit], context: int) -> Iterator[list[Edit]]:
    group: list[Edit] = []
    for edit in edits:
        if group and edit[0] - group[-1][1] > 2 * context:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


def _hunk(old: Sequence[str], new: Sequence[str], group: Sequence[Edit], context: int) -> str:
    first, last = group[0], group[-1]
    start, end = max(first[0] - context, 0), min(last[1] + context, len(old))
    new_start, new_end = first[2] - (first[0] - start), last[3] + (end - last[1])
    out = [f"@@ -{_span(start, end)} +{_span(new_start, new_end)} @@\n"]
    at = start
    for old_from, old_to, new_from, new_to in group:
        out += [f" {line}" for line in old[at:old_from]]
        out += [f"-{line}" for line in old[old_from:old_to]]
        out += [f"+{line}" for line in new[new_from:new_to]]
        at = old_to
    out += [f" {line}" for line in old[at:end]]
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in out)


def _span(start: int, end: int) -> str:
    length = end - start
    return str(end) if length == 1 else f"{start + 1 if length else start},{length}"


def _edits(old: Sequence[str], new: Sequence[str], purse: _Purse) -> list[Edit]:
    numbers: dict[str, int] = {}
    budget = min(BUDGET, purse.left)
    comparison = _Comparison(
        [numbers.setdefault(line, len(numbers)) for line in old],
        [numbers.setdefault(line, len(numbers)) for line in new],
        budget,
    )
    comparison.match(0, len(old), 0, len(new))
    purse.left -= budget - comparison.left
    edits: list[Edit] = []
    at, new_at = 0, 0
    for start, new_start, length in sorted([*comparison.blocks, (len(old), len(new), 0)]):
        if start > at or new_start > new_at:
            edits.append((at, start, new_at, new_start))
        at, new_at = start + length, new_start + length
    return edits


class _Comparison:
    """Two lists of numbered lines, and the blocks found so far that both have."""

    def __init__(self, old: list[int], new: list[int], budget: int) -> None:
        self.old, self.new, self.left = old, new, budget
        self.blocks: list[tuple[int, int, int]] = []

    def match(self, a: int, b: int, c: int, d: int) -> None:
        """Find blocks in lines `a` to `b` of the old and `c` to `d` of the new; what is not found is different."""
        open_ = [(a, b, c, d)]
        while open_:
            a, b, c, d = self._trimmed(*open_.pop())
            if a == b or c == d or set(self.old[a:b]).isdisjoint(self.new[c:d]):
                continue
            found = self._shortest(a, b, c, d)
            if found is not None:
                self.blocks += found
                continue
            open_ += self._between_anchors(a, b, c, d)

    def _trimmed(self, a: int, b: int, c: int, d: int) -> Edit:
        """Take off what both begin and end with."""
        old, new, start, end = self.old, self.new, a, b
        while a < b and c < d and old[a] == new[c]:
            a, c = a + 1, c + 1
        while a < b and c < d and old[b - 1] == new[d - 1]:
            b, d = b - 1, d - 1
        if a > start:
            self.blocks.append((start, c - (a - start), a - start))
        if b < end:
            self.blocks.append((b, d, end - b))
        return a, b, c, d

    def _shortest(self, a: int, b: int, c: int, d: int) -> list[tuple[int, int, int]] | None:
        """Myers' greedy algorithm; None when half of what is left of the budget was not enough."""
        old, new = self.old[a:b], self.new[c:d]
        height, width = len(old), len(new)
        stop = self.left // 2
        reach = {1: 0}
        """How far one gets in the old on each diagonal."""
        trace: list[dict[int, int]] = []
        for cost in range(height + width + 1):
            trace.append(dict(reach))
            for diagonal in range(-cost, cost + 1, 2):
                down = diagonal == -cost or (
                    diagonal != cost and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1)
                )
                x = reach.get(diagonal + 1, 0) if down else reach[diagonal - 1] + 1
                y = x - diagonal
                begun = x
                while x < height and y < width and old[x] == new[y]:
                    x, y = x + 1, y + 1
                reach[diagonal] = x
                self.left -= 2 + x - begun
                if x >= height and y >= width:
                    return [(a + i, c + j, length) for i, j, length in _walked(trace, height, width)]
                if self.left < stop:
                    return None
            self.left -= cost
        return None

    def _between_anchors(self, a: int, b: int, c: int, d: int) -> list[Edit]:
        """Match the lines that each side has once, as many as are in the same order; gives what lies between."""
        self.left -= b - a + d - c
        if self.left < 0:
            return []
        once = {line for line, count in Counter(self.old[a:b]).items() if count == 1}
        once &= {line for line, count in Counter(self.new[c:d]).items() if count == 1}
        places = {line: at for at, line in enumerate(self.new[c:d], c) if line in once}
        pairs = [(at, places[line]) for at, line in enumerate(self.old[a:b], a) if line in once]
        between: list[Edit] = []
        for at, new_at in _ascending(pairs):
            self.blocks.append((at, new_at, 1))
            between.append((a, at, c, new_at))
            a, c = at + 1, new_at + 1
        return [*between, (a, b, c, d)] if between else []


def _walked(trace: Sequence[Mapping[int, int]], x: int, y: int) -> list[tuple[int, int, int]]:
    """Follow the trace back from the end; gives the diagonals that were walked."""
    blocks: list[tuple[int, int, int]] = []
    for cost in range(len(trace) - 1, -1, -1):
        reach, diagonal = trace[cost], x - y
        down = diagonal == -cost or (diagonal != cost and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1))
        above = diagonal + 1 if down else diagonal - 1
        from_x = reach.get(above, 0)
        begun = from_x if down else from_x + 1
        if x > begun:
            blocks.append((begun, begun - diagonal, x - begun))
        x, y = from_x, from_x - above
    return blocks[::-1]


def _ascending(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Give the longest run of pairs, in order, whose second parts ascend."""
    ends: list[int] = []
    at_end: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        at_end[length : length + 1] = [number]
        before.append(at_end[length - 1] if length else -1)
    run: list[tuple[int, int]] = []
    number = at_end[-1] if at_end else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]
