"""
The first of two readers of shell text: strict, linear, and without recursion.

It knows a part of bash's grammar and goes over the text once with a stack of its own. At the first thing outside that
part it gives up, which is always right: what bash reads differently from one version, option or locale to the next is
left out on purpose.

A text is read as a stack of frames, one for each list of commands that is open: the whole text, `( )`, `$( )`, `{ }`,
the branches of `if`. A frame knows what the next word of it would be. A word is read in one go unless a substitution
inside it opens a frame of its own; then it waits in its frame until that is closed. What bash itself reads later and
separately, the inside of backticks and the bodies of here-documents, waits as a job.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from provider.policy.grammar import (
    ALTERS,
    ANSI_C,
    ARITHMETIC,
    ASSIGNED,
    BASH_REDIRECTS,
    BLANKS,
    BRACED,
    CLOSED_AND_MORE,
    CLOSERS,
    CLOSING,
    COMMENT,
    COMMON_COMMAND,
    COMMON_JOINT,
    COMMON_REDIRECTION,
    COMMON_REST,
    COMMON_WORD,
    DECLARES,
    DECLARES_HARMLESS,
    DELIMITER,
    IN_HEREDOC,
    IN_QUOTES,
    INTEGERS,
    JOINTS,
    LIST_VALUE,
    MAKES_ARRAYS,
    MAX_COMMANDS,
    MAX_DEPTH,
    MAX_HEREDOCS,
    MAX_PIECES,
    MAY_ALTER,
    NAME,
    OPERATOR,
    PARAMETER,
    PARAMETERS,
    PHASES,
    PLAIN,
    REDIRECT,
    RESERVED,
    SET_HARMLESS,
    SETS,
    SUBSCRIPT,
    TEST_OPERATORS,
    TWICE,
    UnknownSyntax,
    as_text,
    names_altering,
)
from provider.policy.script import (
    Assignment,
    Command,
    Dynamic,
    Heredoc,
    Part,
    Place,
    Redirection,
    Word,
    as_word,
    make_word,
)


@dataclass(slots=True)
class _Draft:
    """A command that is being read."""

    start: int
    places: tuple[Place, ...]
    negated: bool = False
    keyword: str = ""
    end: int = 0
    program: Word | None = None
    arguments: list[Word] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    redirections: list[Redirection | _Heredoc] = field(default_factory=list)
    joined_by: str = ""
    background: bool = False

    def finished(self) -> Command:
        redirections = [item.finished() if isinstance(item, _Heredoc) else item for item in self.redirections]
        fields = (
            self.start,
            self.end,
            self.program,
            tuple(self.arguments),
            tuple(self.assignments),
            tuple(redirections),
            self.keyword,
            self.joined_by,
            self.background,
            self.negated,
            self.places,
        )
        return tuple.__new__(Command, fields)


@dataclass(slots=True)
class _Heredoc:
    """A here-document whose body comes at the next newline."""

    operator: str
    descriptor: str
    target: Word
    quoted: bool
    body: Word | None = None

    def finished(self) -> Redirection:
        body = self.body or make_word("", None)
        delimiter = self.target.literal or ""
        heredoc = Heredoc(delimiter, self.quoted, body, strips_tabs=self.operator == "<<-")
        return Redirection(self.operator, self.descriptor, self.target, heredoc)


@dataclass(slots=True)
class _Text:
    """A word that is being read, possibly held up by a substitution inside it."""

    start: int
    parts: list[Part] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    quoted: bool = False
    """Inside double quotes, or a here-document."""
    has_quotes: bool = False
    brace: bool = False
    bracket: bool = False

    def add(self, text: str, dynamic: Dynamic) -> None:
        self.flush()
        self.parts.append(Part(as_text(text), dynamic, self.quoted))

    def flush(self) -> None:
        text = "".join(self.plain)
        self.plain.clear()
        if text:
            self.parts.append(Part(as_text(text)))


# What the next word of a frame is. Texts and not an enum: Python 3.11 takes 0.1 us to look a member up, and that was a
# tenth of all the reading.
_Wants = Literal[
    "command",
    "argument",
    "nothing",  # after a compound command: redirections and operators only
    "target",
    "element",
    "test",
    "for name",
    "for in",
    "for word",
    "for do",
    "case word",
    "case in",
    "case pattern",
    "case more",
    "body",  # of a function
]

_OPENERS: dict[str, tuple[str, Place, _Wants]] = {
    "{": ("{", Place.GROUP, "command"),
    "if": ("if", Place.CONDITION, "command"),
    "while": ("while", Place.LOOP, "command"),
    "until": ("while", Place.LOOP, "command"),
    "for": ("do", Place.LOOP, "for name"),
    "case": ("case", Place.CASE, "case word"),
}


@dataclass(slots=True)
class _Frame:
    """A list of commands, and what closes it."""

    phase: str
    """A key of PHASES, or `(`, `$(`, `<(`, or empty for a whole text."""
    places: tuple[Place, ...]
    start: int
    level: int
    """How many substitutions deep."""
    wants: _Wants = "command"
    open_end: bool = False
    """An operator or keyword stands before, so a command must follow."""
    negated: bool = False
    filled: bool = False
    """There is a command since the last keyword."""
    item: int = 0
    """Index of the first command of the current and-or list."""
    draft: _Draft | None = None
    text: _Text | None = None
    redirect: tuple[str, str] = ("", "")
    resume: _Wants = "argument"
    elements: list[Word] = field(default_factory=list)
    heredoc_end: int = 0

    def takes_arguments(self) -> _Draft | None:
        """Return the command that the next word is an argument of."""
        draft = self.draft
        return draft if self.wants == "argument" and draft and draft.program else None


@dataclass(slots=True)
class _Job:
    """A stretch of the text that bash reads by itself, later: backticks, a here-document's body."""

    start: int
    end: int
    places: tuple[Place, ...]
    depth: int
    heredoc: _Heredoc | None = None

    @property
    def backticks(self) -> bool:
        return self.depth > 0 and self.heredoc is None


class Reader:
    """Goes over a text once, with a stack of its own."""

    def __init__(self) -> None:
        self.drafts: list[_Draft | Command] = []
        self.portable = True
        self.commented = False
        self.programs: set[int] = set()
        """Where each begins."""
        self.unwitnessed: list[tuple[int, int]] = []
        """Here-document bodies: tree-sitter does not see into all of them."""
        self._pieces = 0
        self._heredocs = 0
        self._altering = False
        self._jobs: list[_Job] = []
        self._source = ""
        self._ascii = True
        self._end = 0
        self._at = 0
        self._word_at = 0
        """Where the word began that has been read last."""
        self._job = _Job(0, 0, (), 0)
        self._stack: list[_Frame] = []
        self._pending: list[tuple[int, _Heredoc]] = []

    def commands(self) -> tuple[Command, ...]:
        self.drafts.sort(key=operator.attrgetter("start"))
        return tuple([draft.finished() if isinstance(draft, _Draft) else draft for draft in self.drafts])

    def read(self, source: str) -> None:
        self._source = source
        self._ascii = source.isascii()
        self._altering = names_altering(source)
        self._jobs.append(_Job(0, len(source), (), 0))
        while self._jobs:
            self._read_job(self._jobs.pop())

    def _read_job(self, job: _Job) -> None:
        self._job, self._at, self._end = job, job.start, job.end
        frame = _Frame("", job.places, job.start, 0, item=len(self.drafts))
        self._stack = [frame]
        if job.heredoc:
            frame.text = _Text(job.start, quoted=True)
            frame.heredoc_end = job.end
        while self._stack:
            frame = self._stack[-1]
            if frame.text is None:
                self._step(frame)
            elif self._read_text(frame, frame.text):
                text, frame.text = frame.text, None
                self._word_at = text.start
                word = self._word(text)
                if job.heredoc and frame is self._stack[0]:
                    job.heredoc.body = word
                    return
                self._take(frame, word, bare=not text.has_quotes)

    def _give_up(self, reason: str, at: int | None = None) -> NoReturn:
        raise UnknownSyntax(reason, self._at if at is None else at)

    # Between words.

    def _step(self, frame: _Frame) -> None:
        source, end = self._source, self._end
        if self._at < end and source[self._at] in " \t":
            blanks = BLANKS.match(source, self._at, end)
            self._at = blanks.end() if blanks else self._at
        if not (self._pending or self._altering):
            self._common(frame)
            frame = self._stack[-1]
        if self._at >= end:
            self._finish(frame)
        elif source[self._at] not in " \t":
            self._count()
            self._other(frame, source[self._at])

    def _common(self, frame: _Frame) -> None:
        """Read on as long as there is nothing special, which is nearly all of most texts."""
        while True:
            if frame.wants == "command":
                frame = self._common_commands(frame)
            if frame.wants == "nothing" and (joint := COMMON_JOINT.match(self._source, self._at, self._end)):
                self._count()
                self._end_command(frame, joint.start(1), joint[1])
                self._at = joint.end()
                continue
            draft = frame.takes_arguments()
            rest = COMMON_REST.match(self._source, self._at, self._end) if draft else None
            if draft is None or rest is None or rest.end() == self._at:
                return
            written, redirected, operator = rest.groups()
            draft.arguments += map(as_word, self._common_words(written))
            draft.redirections += self._common_redirections(redirected)
            if operator:
                self._end_command(frame, rest.start(3), operator)
            self._at = rest.end()

    def _common_commands(self, frame: _Frame) -> _Frame:
        """Read keywords and whole commands, each in one match; return the frame that is open then."""
        source, found, at = self._source, self.drafts, self._at
        while frame.wants == "command" and (whole := COMMON_COMMAND.match(source, at, self._end)):
            _, _, keyword, program, written, redirected, operator = whole.groups()
            if program is None:
                frame = self._common_keyword(frame, whole, keyword) if keyword else self._common_loop(whole)
                at = self._at = whole.end()
                continue
            start = self._at = whole.start(4)
            at = whole.end(6)
            name = make_word(program, program)
            arguments = self._common_words(written)
            redirections = self._common_redirections(redirected) if redirected else []
            self.programs.add(start)
            if operator is None or program in MAY_ALTER or len(found) >= MAX_COMMANDS:
                draft = self._begin(frame, start)
                draft.program, draft.redirections = name, redirections
                draft.arguments += map(as_word, arguments)
                frame.wants = "argument"
                break
            read = (start, at, name, tuple(arguments), (), tuple(redirections))
            # As in script.py.
            found.append(tuple.__new__(Command, (*read, "", operator, False, frame.negated, frame.places)))
            frame.negated, frame.filled = False, True
            frame.open_end = operator not in {";", "\n"}
            if not frame.open_end:
                frame.item = len(found)
            at = whole.end()
        self._at = at
        return frame

    def _common_keyword(self, frame: _Frame, whole: re.Match[str], keyword: str) -> _Frame:
        self._word_at, self._at = whole.span(3)
        self._count()
        self._first_word(frame, make_word(keyword, keyword), bare=True)
        return self._stack[-1]

    def _common_loop(self, whole: re.Match[str]) -> _Frame:
        """Read `for x in a b; do`."""
        variable, items = whole.group(1, 2)
        start = self._at = whole.start(1)
        if variable in INTEGERS:
            self._give_up(f"what {variable} is set to is evaluated")
        frame = self._push("do", Place.LOOP)
        frame.open_end = True
        draft = self._begin(frame, start, "for")
        draft.arguments += map(as_word, [variable, *self._common_words(items)])
        self._end_draft(frame, whole.end(2))
        return frame

    def _common_words(self, written: str) -> Sequence[Word | str]:
        if self._ascii and not ("'" in written or '"' in written or "\\" in written):
            plain = written.split()  # at blanks, for there is nothing else to split at
            self._count(len(plain))
            return plain
        words = COMMON_WORD.findall(written)
        self._count(len(words))
        return [self._common_word(text) for text in words]

    def _common_word(self, text: str) -> Word | str:
        single, double = text.find("'"), text.find('"')
        if single == double:  # there is neither
            return as_text(text)
        if single < 0 or 0 <= double < single:  # the first is a quote, and one of the other kind is text
            if "$" in text:
                return self._with_parameters(text)
            literal = text.replace('"', "")
        else:
            literal = text.replace("'", "")
        if names_altering(literal):
            self._give_up("a name that changes how bash reads what follows")
        return make_word(as_text(text), as_text(literal))

    def _with_parameters(self, text: str) -> Word:
        """Make the word of "src/$name"."""
        pieces = PARAMETERS.split(text[1:-1])  # every other one is a parameter
        self._count(len(pieces))
        parts = [
            tuple.__new__(Part, (as_text(piece), Dynamic.PARAMETER, True) if at % 2 else (as_text(piece), None, False))
            for at, piece in enumerate(pieces)
            if piece
        ]
        return make_word(as_text(text), None, tuple(parts))

    def _common_redirections(self, written: str) -> list[Redirection | _Heredoc]:
        found = COMMON_REDIRECTION.findall(written)
        self._count(len(found))
        return [
            Redirection(operator, descriptor, make_word(as_text(target), as_text(target)))
            for descriptor, operator, target in found
        ]

    def _other(self, frame: _Frame, character: str) -> None:
        at, source = self._at, self._source
        if character == "#":
            self._comment(frame)
        elif character in "<>" or character.isdigit() or source.startswith("&>", at, self._end):
            if not self._redirection(frame):
                frame.text = _Text(at)
        elif character in ";&|()\n" and (operator := OPERATOR.match(source, at, self._end)):
            self._operator(frame, operator[0])
        elif source.startswith("\\\n", at):
            self._give_up("a line continued inside a word")
        else:
            frame.text = _Text(at)

    def _comment(self, frame: _Frame) -> None:
        comment = COMMENT.match(self._source, self._at, self._end)
        assert comment
        if frame.level or self._job.backticks or frame.wants == "element":
            self._give_up("a comment inside a substitution or an array")
        if comment[0].endswith("\\"):
            self._give_up("a comment that ends in a backslash")
        self._at = comment.end()
        self.commented = True

    def _operator(self, frame: _Frame, operator: str) -> None:
        at = self._at
        self._at += len(operator)
        if operator in JOINTS and frame.wants in {"argument", "nothing"}:
            self._end_command(frame, at, operator)
            if operator == "|&":
                self.portable = False
        elif operator == "\n":
            self._newline(frame, at)
        elif operator == "(":
            self._open_parenthesis(frame, at)
        elif operator == ")":
            self._close_parenthesis(frame, at)
        elif operator in {";;", ";&", ";;&"}:
            self._end_case(frame, at, operator)
        else:
            self._operator_of_header(frame, at, operator)

    def _end_case(self, frame: _Frame, at: int, operator: str) -> None:
        if frame.wants in {"argument", "nothing"}:
            self._end_command(frame, at, "")
        if frame.phase != "case" or frame.wants != "command" or frame.open_end:
            self._give_up(f"{operator} outside case", at)
        frame.wants = "case pattern"
        self.portable = self.portable and operator == ";;"

    def _operator_of_header(self, frame: _Frame, at: int, operator: str) -> None:
        """One that joins no commands: in [[ ]], between the patterns of `case`, after the words of `for`."""
        wants = frame.wants
        if wants == "test" and operator in {"&&", "||"}:
            return
        if wants == "case more" and operator == "|":
            frame.wants = "case pattern"
            frame.open_end = True
        elif wants == "for in" and operator == ";":
            frame.wants = "for do"
        elif wants == "for word" and operator == ";":
            self._end_command(frame, at, "")
            frame.wants = "for do"
        else:
            self._give_up(f"{operator} where a word is expected", at)

    def _newline(self, frame: _Frame, at: int) -> None:
        wants = frame.wants
        if wants in {"argument", "nothing"}:
            self._end_command(frame, at, "\n")
        elif wants == "for word":
            self._end_command(frame, at, "")
            frame.wants = "for do"
        elif wants in {"command", "for do", "body", "element"} or (wants == "case pattern" and not frame.open_end):
            pass
        else:
            self._give_up("a newline where a word is expected", at)
        if self._pending:
            if wants == "element":
                self._give_up("a here-document before the end of an array", at)
            self._read_heredocs(frame)

    def _open_parenthesis(self, frame: _Frame, at: int) -> None:
        if self._source.startswith("((", at):
            self._give_up("((, arithmetic or two subshells", at)
        draft = frame.draft
        if frame.wants == "command":
            self._push("(", Place.SUBSHELL)
        elif frame.wants == "body":
            self._push("(", Place.FUNCTION)
        elif frame.wants == "case pattern" and not frame.open_end:
            frame.open_end = True
        elif (
            frame.wants == "argument"
            and draft
            and draft.program
            and not (draft.arguments or draft.assignments or draft.redirections)
            and NAME.fullmatch(draft.program.source)
            and draft.program.source not in RESERVED
            and (closing := CLOSING.match(self._source, self._at, self._end))
        ):
            self._at = closing.end()
            draft.keyword, draft.arguments, draft.program = "function", [draft.program], None
            self.programs.remove(draft.start)
            frame.wants = "body"
        else:
            self._give_up("( inside a word or after one", at)

    def _close_parenthesis(self, frame: _Frame, at: int) -> None:
        if frame.wants == "element":
            draft = frame.draft
            assert draft
            last = draft.assignments[-1]
            draft.assignments[-1] = Assignment(last.name, tuple(frame.elements), last.appends, array=True)
            frame.elements = []
            frame.wants = "argument"
            if self._at < self._end and self._source[self._at] not in " \t\n;|&)":
                self._give_up("text right after an array")
            return
        if frame.wants == "case more":
            frame.wants = "command"
            frame.open_end = frame.filled = False
            self._end_draft(frame, at)
            return
        if frame.phase not in {"(", "$(", "<("}:
            self._give_up(") without (", at)
        empty = frame.phase == "$(" and frame.wants == "command" and not frame.filled
        if not empty:
            self._close_list(frame, at)
        self._pop(frame, at)

    # Commands.

    def _end_command(self, frame: _Frame, at: int, operator: str) -> None:
        self._end_draft(frame, at, operator)
        if operator == "&":
            for index, draft in enumerate(self.drafts[frame.item :], frame.item):
                if isinstance(draft, _Draft):
                    draft.background = True
                else:
                    self.drafts[index] = draft._replace(background=True)
        if operator in {";", "&", "\n", ""}:
            frame.item = len(self.drafts)
        frame.wants = "command"
        frame.open_end = operator in {"&&", "||", "|", "|&"}
        frame.filled = True

    def _end_draft(self, frame: _Frame, at: int, operator: str = "") -> None:
        draft, frame.draft = frame.draft, None
        if draft is None:
            return
        draft.end = at
        while draft.end > draft.start and self._source[draft.end - 1] in " \t":
            draft.end -= 1
        draft.joined_by = operator
        program = draft.program
        if program is not None and program.literal in MAY_ALTER:
            self._check_program(draft, program)

    def _check_program(self, draft: _Draft, program: Word) -> None:
        name = program.literal
        if name in {"command", "builtin"} and draft.arguments:
            name = next((word.literal for word in draft.arguments if not (word.literal or "").startswith("-")), name)
        if name in ALTERS:
            self._give_up(f"{name} changes how bash reads what follows", draft.start)
        if name == "set" and not all(SET_HARMLESS.fullmatch(word.literal or "?") for word in draft.arguments):
            self._give_up("set with options that change how bash reads what follows", draft.start)
        if name in DECLARES and any(_changes_assignment(word) for word in draft.arguments):
            self._give_up(f"{name} with options that change what an assignment does", draft.start)
        if (name in DECLARES and self._evaluates(draft)) or (name in SETS and _sets_integer(name, draft.arguments)):
            self._give_up(f"{name} evaluates a value", draft.start)
        if name == "time" and program.source == "time":
            self._check_time(draft)

    def _evaluates(self, draft: _Draft) -> bool:
        """Whether `declare` and its kind may take a value for arithmetic, or for the list of an array."""
        for word in draft.arguments:
            known = word.parts[0].text if word.literal is None else word.literal
            name, equals, _ = known.partition("=")
            if equals and (name.removesuffix("+") in INTEGERS or LIST_VALUE.match(word.literal or word.source)):
                return True
            if word.literal is None and "[" in name:  # a subscript that only the shell knows
                return True
            begins = word.literal is None and word.parts[0].text.endswith("=")  # with what only the shell knows
            if begins and MAKES_ARRAYS.search(self._source):
                return True
        return False

    def _check_time(self, draft: _Draft) -> None:
        """Bash's own `time` takes one -p, and then a whole pipeline, with keywords and assignments."""
        words = [word.source for word in draft.arguments]
        for option in ("-p", "--"):
            words = words[1:] if words[:1] == [option] else words
        first = words[0] if words else ""
        # After it an assignment may stand, so bash reads `a[ # ]` as one word, and what follows is no comment.
        assigns = ASSIGNED.match(first) or SUBSCRIPT.match(first)
        if first in {"", *RESERVED} or first.startswith("-") or assigns or draft.redirections:
            self._give_up("time before something other than a plain command", draft.start)

    def _close_list(self, frame: _Frame, at: int) -> None:
        """Before a closing keyword or parenthesis."""
        if frame.wants in {"argument", "nothing"}:
            self._end_command(frame, at, "")
        if frame.wants != "command" or frame.open_end or not frame.filled:
            self._give_up("a list of commands that ends too early", at)

    def _finish(self, frame: _Frame) -> None:
        """At the end of the text."""
        if len(self._stack) > 1:
            self._give_up("it ends inside a compound command or substitution", frame.start)
        if frame.wants in {"argument", "nothing"}:
            self._end_command(frame, self._at, "")
        if frame.wants != "command" or frame.open_end:
            self._give_up("it ends where more must follow")
        if self._pending:
            self._give_up("a here-document without its end")
        self._stack.pop()

    def _push(self, phase: str, place: Place, wants: _Wants = "command", *, deeper: bool = False) -> _Frame:
        outer = self._stack[-1]
        if len(self._stack) + self._job.depth >= MAX_DEPTH:
            self._give_up(f"nested deeper than {MAX_DEPTH}")
        frame = _Frame(phase, (*outer.places, place), self._at, outer.level + deeper, wants)
        frame.item = len(self.drafts)
        self._stack.append(frame)
        return frame

    def _pop(self, frame: _Frame, at: int) -> None:
        """The frame is closed: whoever opened it goes on."""
        self._stack.pop()
        outer = self._stack[-1]
        if frame.level > outer.level:
            if any(level >= frame.level for level, _ in self._pending):
                self._give_up("a here-document whose body is outside its substitution", at)
            text = outer.text
            assert text
            kind = Dynamic.COMMAND if frame.phase == "$(" else Dynamic.PROCESS
            text.add(self._source[frame.start - 2 : self._at], kind)
            return
        self._end_draft(outer, at)
        outer.wants = "nothing"
        outer.filled = True
        outer.open_end = False
        if self._at < self._end and self._source[self._at] not in " \t\n;|&<>)":
            self._give_up("text right after a compound command")

    def _begin(self, frame: _Frame, at: int, keyword: str = "") -> _Draft:
        if len(self.drafts) >= MAX_COMMANDS:
            self._give_up(f"more than {MAX_COMMANDS} commands")
        draft = _Draft(at, frame.places, frame.negated, keyword)
        frame.negated = False
        frame.draft = draft
        self.drafts.append(draft)
        return draft

    # What becomes of a word.

    def _count(self, pieces: int = 1) -> None:
        self._pieces += pieces
        if self._pieces > MAX_PIECES:
            self._give_up(f"more than {MAX_PIECES} words and expansions")

    def _take(self, frame: _Frame, word: Word, *, bare: bool) -> None:
        # A bare word stands in the text as it is, and the text as a whole has been searched.
        if (self._altering or not bare) and names_altering(word.literal or word.source):
            self._give_up("a name that changes how bash reads what follows", self._word_at)
        draft = frame.draft
        if frame.wants == "command":
            self._first_word(frame, word, bare=bare)
        elif frame.wants == "target" and draft:
            descriptor, operator = frame.redirect
            if operator in TWICE and not PLAIN.fullmatch(word.source):
                self._give_up(f"bash expands the target of {operator} twice", self._word_at)
            draft.redirections.append(Redirection(operator, descriptor, word))
            draft.end = self._at
            frame.wants = frame.resume
        elif frame.wants != "argument" or draft is None:
            self._word_of_header(frame, word)
        elif draft.program is None:
            self._program_or_assignment(frame, draft, word)
        else:
            draft.arguments.append(word)

    def _first_word(self, frame: _Frame, word: Word, *, bare: bool) -> None:
        name = word.source
        if not bare or name not in RESERVED or name == "time":
            draft = self._begin(frame, self._word_at)
            frame.wants = "argument"
            self._program_or_assignment(frame, draft, word)
        elif name in _OPENERS:
            if name == "case" and (frame.level or self._job.backticks):
                self._give_up("case inside a substitution", self._word_at)
            phase, place, wants = _OPENERS[name]
            self._push(phase, place, wants).open_end = wants == "command"
        elif name in CLOSERS:
            self._closing_keyword(frame, word)
        elif name == "!":
            frame.negated = True
            frame.open_end = True
        elif name == "[[":
            self.portable = False
            self._begin(frame, self._word_at, "[[")
            frame.wants = "test"
        else:
            self._give_up(f"{name} as the first word of a command", self._word_at)

    def _closing_keyword(self, frame: _Frame, word: Word) -> None:
        phases = PHASES.get(frame.phase, {})
        if word.source not in phases or frame.negated:
            self._give_up(f"{word.source} out of place", self._word_at)
        if frame.phase == "case":  # `a) esac` is a list of nothing
            if frame.open_end:
                self._give_up("a list of commands that ends too early", self._word_at)
        else:
            self._close_list(frame, self._word_at)
        following = phases[word.source]
        if following is None:
            self._pop(frame, self._word_at)
        else:
            frame.phase = following
            frame.filled = False
            frame.open_end = True
            frame.wants = "command"

    def _program_or_assignment(self, frame: _Frame, draft: _Draft, word: Word) -> None:
        draft.end = self._at
        assigned = ASSIGNED.match(word.source)
        if assigned:
            name, plus = assigned.groups()
            if names_altering(name):
                self._give_up(f"{name} changes how bash reads what follows", self._word_at)
            value = _without_prefix(word, len(assigned[0]))
            if name in INTEGERS and not (value.literal or "x").isdecimal():
                self._give_up(f"what {name} is set to is evaluated", self._word_at)
            draft.assignments.append(Assignment(name, (value,), bool(plus)))
            self.portable = self.portable and not plus
            if word.source == assigned[0] and self._source.startswith("(", self._at, self._end):
                self._at += 1
                frame.wants = "element"
                self.portable = False
        elif SUBSCRIPT.match(word.source):
            self._give_up("a subscript where a program or assignment is expected", self._word_at)
        elif draft.start != self._word_at and word.source in RESERVED and word.source != "time":
            self._give_up(f"{word.source} as a program", self._word_at)
        else:
            draft.program = word
            self.programs.add(self._word_at)

    def _test_word(self, frame: _Frame, word: Word) -> None:
        draft = frame.draft
        assert draft
        if word.source == "]]":
            if not draft.arguments:
                self._give_up("[[ ]] without anything in it", self._word_at)
            draft.end = self._at
            frame.draft = None
            frame.wants = "nothing"
            frame.filled = True
            frame.open_end = False
            return
        source = word.source
        if source == "=~" or (source.startswith("-") and source not in TEST_OPERATORS):
            self._give_up(f"{source} inside [[ ]]", self._word_at)
        draft.arguments.append(word)

    def _word_of_header(self, frame: _Frame, word: Word) -> None:
        """One that belongs to no simple command."""
        if frame.wants == "test":
            self._test_word(frame, word)
        elif frame.wants == "element":
            if word.source.startswith("["):
                self._give_up("a subscript in an array", self._word_at)
            frame.elements.append(word)
        elif frame.wants == "body" and word.source == "{":
            self._push("{", Place.FUNCTION).open_end = True
        elif not (self._for_word(frame, word) or self._case_word(frame, word)):
            self._give_up(f"{word.source} out of place", self._word_at)

    def _for_word(self, frame: _Frame, word: Word) -> bool:
        wants = frame.wants
        if wants == "for name" and NAME.fullmatch(word.source):
            if word.source in INTEGERS:
                self._give_up(f"what {word.source} is set to is evaluated", self._word_at)
            self._begin(frame, self._word_at, "for").arguments.append(word)
            frame.wants = "for in"
        elif wants == "for in" and word.source == "in":
            frame.wants = "for word"
        elif wants == "for word" and frame.draft:
            frame.draft.arguments.append(word)
        elif wants == "for do" and word.source == "do":
            self._end_draft(frame, self._word_at)
            frame.wants = "command"
            frame.open_end = True
            frame.filled = False
        else:
            return False
        return True

    def _case_word(self, frame: _Frame, word: Word) -> bool:
        wants = frame.wants
        if wants == "case word":
            self._begin(frame, self._word_at, "case").arguments.append(word)
            frame.wants = "case in"
        elif wants == "case in" and word.source == "in":
            self._end_draft(frame, self._word_at)
            frame.wants = "case pattern"
            frame.open_end = False
        elif wants == "case pattern" and word.source == "esac" and not frame.open_end:
            self._pop(frame, self._word_at)
        elif wants == "case pattern" and word.source not in RESERVED:
            frame.draft = frame.draft or self._begin(frame, self._word_at, "case")
            frame.draft.arguments.append(word)
            frame.wants = "case more"
        else:
            return False
        return True

    # Redirections and here-documents.

    def _redirection(self, frame: _Frame) -> bool:
        """Read one up to its target; False when this is no redirection but a word."""
        at = self._at
        match = REDIRECT.match(self._source, at, self._end)
        if match is None:
            return False
        descriptor, operator = match.groups()
        if operator in {"<", ">"} and self._source.startswith("(", match.end(), self._end):
            if descriptor:
                self._give_up("a process substitution inside a word", at)
            return False
        if operator.startswith("&") and descriptor:
            self._give_up("&> after a number", at)
        self._at = match.end()
        if operator in {">&", "<&"} and CLOSED_AND_MORE.match(self._source, self._at, self._end):
            self._give_up(f"{operator}- with a word attached, which bash reads as two", at)
        while self._at < self._end and self._source[self._at] in " \t":
            self._at += 1
        self._begin_redirected(frame, at)
        if operator in BASH_REDIRECTS:
            self.portable = False
        if operator in {"<<", "<<-"}:
            self._heredoc(frame, descriptor, operator)
        else:
            frame.resume, frame.wants = frame.wants, "target"
            frame.redirect = (descriptor, operator)
            if self._at >= self._end or (self._source[self._at] in "\n;&|()<>#" and not self._process_ahead()):
                self._give_up("a redirection without a target", at)
            frame.text = _Text(self._at)
        return True

    def _begin_redirected(self, frame: _Frame, at: int) -> None:
        """Find the command that a redirection is of; one after a compound command counts as a command of its own."""
        if frame.wants == "command":
            self._begin(frame, at)
            frame.wants = "argument"
        elif frame.wants == "nothing":
            frame.draft = frame.draft or self._begin(frame, at)
        elif frame.wants != "argument":
            self._give_up("a redirection out of place", at)

    def _process_ahead(self) -> bool:
        return self._source.startswith(("<(", ">("), self._at, self._end)

    def _heredoc(self, frame: _Frame, descriptor: str, operator: str) -> None:
        match = DELIMITER.match(self._source, self._at, self._end)
        if match is None or (match.end() < self._end and self._source[match.end()] not in " \t\n;&|)<>"):
            self._give_up("a here-document with an unusual delimiter")
        if self._job.depth:
            self._give_up("a here-document inside backticks or another one")
        written = match[0]
        target = make_word(written, written.strip("'\""))
        heredoc = _Heredoc(operator, descriptor, target, quoted=written[0] in "'\"")
        draft = frame.draft
        assert draft
        draft.redirections.append(heredoc)
        self._pending.append((frame.level, heredoc))
        self._heredocs += 1
        if self._heredocs > MAX_HEREDOCS:
            self._give_up(f"more than {MAX_HEREDOCS} here-documents")
        self._at = match.end()

    def _read_heredocs(self, frame: _Frame) -> None:
        pending, self._pending = self._pending, []
        for level, heredoc in pending:
            if level != frame.level:
                self._give_up("a here-document whose body is outside its substitution")
            self._read_body(heredoc, frame)

    def _read_body(self, heredoc: _Heredoc, frame: _Frame) -> None:
        delimiter = heredoc.target.literal or ""
        tabs = "\t*" if heredoc.operator == "<<-" else ""
        closing = re.compile(rf"^{tabs}{re.escape(delimiter)}$", re.MULTILINE).search(self._source, self._at, self._end)
        if closing is None:
            self._give_up("a here-document without its end")
        start, end = self._at, closing.start()
        body = self._source[start:end]
        if frame.level and re.search(rf"^{tabs}{re.escape(delimiter)}", body, re.MULTILINE):
            self._give_up("a here-document with two possible ends", start)
        self.unwitnessed.append((start, end))
        self._at = closing.end()
        if heredoc.quoted or not any(mark in body for mark in "\\$`"):
            text = as_text(body)
            heredoc.body = make_word(text, text)
        elif "\\\n" in body:
            self._give_up("a line continued inside a here-document", start)
        else:
            self._jobs.append(_Job(start, end, frame.places, len(self._stack), heredoc))

    # Inside a word.

    def _read_text(self, frame: _Frame, text: _Text) -> bool:
        """Go on until the word ends (True) or something inside it has to be read first (False)."""
        source, end = self._source, self._end
        while self._at < end:
            run = (IN_HEREDOC if frame.heredoc_end else IN_QUOTES if text.quoted else PLAIN).match(
                source, self._at, end
            )
            if run:
                if self._pending and "\n" in run[0]:
                    self._give_up("a newline in quotes before a here-document's body")
                text.plain.append(run[0])
                self._at = run.end()
                continue
            self._count()
            character = source[self._at]
            if character in " \t\n;&|()<>":
                if character in "<>" and self._process_ahead():
                    return self._process(text)
                return self._word_ends(text, character)
            if character == "$":
                if not self._dollar(text):
                    return False
            elif character in "\\`'\"":
                self._quote(frame, text, character)
            else:
                self._special(text, character)
        if text.quoted and not frame.heredoc_end:
            self._give_up("a quote that is not closed", text.start)
        return True

    def _quote(self, frame: _Frame, text: _Text, character: str) -> None:
        if character == "`":
            self._backticks(frame, text)
            return
        text.has_quotes = True
        if character == "\\":
            self._escape(frame, text)
        elif character == "'":
            self._single_quotes(text)
        else:
            text.quoted = not text.quoted
            self._at += 1

    def _word_ends(self, text: _Text, character: str) -> bool:
        if character == "(" and text.start == self._at:
            self._give_up("( where a word is expected")
        if character in "<>" and text.brace:
            self._give_up("a descriptor in braces")
        return True

    def _special(self, text: _Text, character: str) -> None:
        """Read one unquoted character that is neither plain nor ends the word: one of # ! * ? [ ] { } ~."""
        at = self._at
        self._at += 1
        if character in "*?":
            text.add(character, Dynamic.GLOB)
            return
        if character == "~" and (at == text.start or self._source[at - 1] in "=:"):
            text.add(character, Dynamic.TILDE)
            return
        text.brace = text.brace or character == "{"
        text.bracket = text.bracket or character == "["
        text.plain.append(character)

    def _single_quotes(self, text: _Text) -> None:
        closing = self._source.find("'", self._at + 1, self._end)
        if closing < 0:
            self._give_up("a quote that is not closed")
        content = self._source[self._at + 1 : closing]
        if self._pending and "\n" in content:
            self._give_up("a newline in quotes before a here-document's body")
        text.plain.append(content)
        self._at = closing + 1

    def _escape(self, frame: _Frame, text: _Text) -> None:
        following = self._source[self._at + 1 : self._at + 2] if self._at + 1 < self._end else ""
        if not following:
            self._give_up("a backslash at the end")
        if following == "\n":
            if not text.quoted or self._pending or self._source[self._at - 1] == "$":
                self._give_up("a line continued inside a word")
        elif text.quoted and following not in ("$`\\" if frame.heredoc_end else '$`"\\'):
            text.plain.append("\\" + following)
        else:
            text.plain.append(following)
        self._at += 2

    def _dollar(self, text: _Text) -> bool:
        """Read what a dollar begins; False when a substitution has to be read first."""
        source, at, end = self._source, self._at, self._end
        following = source[at + 1] if at + 1 < end else ""
        if following == "(":
            if source.startswith("$((", at):
                self._expansion(text, ARITHMETIC, Dynamic.ARITHMETIC, "arithmetic over names, or a nested subshell")
                return True
            self._at += 2
            self._push("$(", Place.SUBSTITUTION, deeper=True)
            return False
        if following == "{":
            match = self._expansion(text, BRACED, Dynamic.PARAMETER, "an unusual ${ } expansion")
            self.portable = self.portable and not match["bash"] and "[" not in match[0]
        elif parameter := PARAMETER.match(source, at, end):
            text.add(parameter[0], Dynamic.PARAMETER)
            self._at = parameter.end()
        elif following == "'" and not text.quoted:
            self._expansion(text, ANSI_C, Dynamic.ANSI_C, "a quote that is not closed")
            self.portable = False
        elif following == "[" or (following == '"' and not text.quoted) or following == "\\":
            self._give_up(f"${following}")
        else:
            text.plain.append("$")
            self._at += 1
        return True

    def _expansion(self, text: _Text, form: re.Pattern[str], kind: Dynamic, otherwise: str) -> re.Match[str]:
        match = form.match(self._source, self._at, self._end)
        if match is None:
            self._give_up(otherwise)
        if self._pending and "\n" in match[0]:
            self._give_up("a newline in quotes before a here-document's body")
        text.add(match[0], kind)
        self._at = match.end()
        return match

    def _backticks(self, frame: _Frame, text: _Text) -> None:
        """Queue what is between them, which bash reads when it runs the command, after taking backslashes away."""
        if self._job.backticks or frame.level:
            self._give_up("backticks inside a substitution")
        at = self._at
        closing = self._source.find("`", at + 1, self._end)
        content = self._source[at + 1 : closing] if closing > 0 else "\\"
        if any(mark in content for mark in "\\'\"#") or (self._pending and "\n" in content):
            self._give_up("backticks with quotes, a backslash or no end", at)
        if len(self._stack) + self._job.depth >= MAX_DEPTH:
            self._give_up(f"nested deeper than {MAX_DEPTH}")
        self._at = closing + 1
        text.add(self._source[at : self._at], Dynamic.COMMAND)
        self._jobs.append(_Job(at + 1, closing, (*frame.places, Place.SUBSTITUTION), len(self._stack)))

    def _process(self, text: _Text) -> bool:
        if text.start != self._at:
            self._give_up("a process substitution inside a word")
        self.portable = False
        self._at += 2
        self._push("<(", Place.PROCESS, deeper=True)
        return False

    def _word(self, text: _Text) -> Word:
        raw = self._source[text.start : self._at]
        source = as_text(raw)
        if not text.parts and not text.brace and not text.bracket:
            return make_word(source, as_text("".join(text.plain)))
        text.flush()
        parts = tuple(text.parts)
        if text.bracket and raw not in {"[", "[["} and "]" in raw:
            parts = (*parts, Part("", Dynamic.GLOB))
        if text.brace and raw not in {"{", "{}"} and ("," in raw or ".." in raw):
            if any(part.dynamic not in {None, Dynamic.GLOB, Dynamic.TILDE} for part in parts):
                self._give_up("an expansion inside braces", text.start)
            self.portable = False
            parts = (*parts, Part("", Dynamic.BRACE))
        if any(part.dynamic for part in parts):
            return make_word(source, None, parts)
        return make_word(source, "".join(part.text for part in parts))


def _sets_integer(name: str, arguments: Sequence[Word]) -> bool:
    """Whether a builtin that sets variables by name sets, or may set, one whose value is evaluated."""
    names = [word.literal if word.literal is not None else "?" for word in arguments]
    if name == "printf":
        after = [at + (word == "-v") for at, word in enumerate(names) if word.startswith("-v")]
        names = [names[at] for at in after if at < len(names)]
    return any(word == "?" or word.removeprefix("-v") in INTEGERS for word in names)


def _changes_assignment(word: Word) -> bool:
    """Whether an argument of `declare` and its kind is, or may become, an option such as -i."""
    if word.literal is None:
        return word.parts[0].dynamic is not None
    return word.literal[:1] in ("-", "+") and not DECLARES_HARMLESS.fullmatch(word.literal)


def _without_prefix(word: Word, length: int) -> Word:
    """Return the value in `NAME=value`; the prefix is unquoted by construction."""
    if word.literal is not None:
        return make_word(word.source[length:], word.literal[length:])
    first, *others = word.parts
    rest = (Part(first.text[length:]),) if len(first.text) > length else ()
    return make_word(word.source[length:], None, (*rest, *others))
