"""
Shell text -> the simple commands that bash would run for it, or *unknown* with a reason.

Two readers must agree. The first is ours (`reader.py`) and knows a strict part of bash. The second is tree-sitter-bash,
which knows nearly all of it but accepts texts that bash does not, overlooks backticks in here-documents, and takes time
quadratic in the length of a pipe. Alone it may not be believed; as a witness it costs a tenth of a millisecond: a
program that only one of the two has found is unknown.
"""

from __future__ import annotations

import functools

import tree_sitter_bash
from tree_sitter import Language, Parser, Query, QueryCursor

from provider.policy.grammar import NOT_ASCII, UnknownSyntax, as_bytes
from provider.policy.reader import Reader
from provider.policy.script import Script


def read(text: str) -> Script:
    """Read shell text. Never raises; takes time linear in a text whose length is capped."""
    reader = Reader()
    try:
        source = as_bytes(text)
        reader.read(source)
        _witness(source, reader)
    except UnknownSyntax as reason:
        unknown, offset = str(reason), reason.offset
        return Script(reader.commands(), unknown, offset, commented=reader.commented, portable=reader.portable)
    return Script(reader.commands(), commented=reader.commented, portable=reader.portable)


@functools.cache
def _second_reader() -> tuple[Parser, Query]:
    language = Language(tree_sitter_bash.language())
    found = "(command_name) @program (declaration_command) @program (unset_command) @program (test_command) @program"
    return Parser(language), Query(language, found)


def _witness(source: str, reader: Reader) -> None:
    """Ask tree-sitter which programs it sees, and where."""
    parser, query = _second_reader()
    # Its scanner looks letters up in a table of 256, and the process dies of U+EEC9E. To bash, a byte past ASCII is one
    # more character of a word and never of a name; so is a percent sign.
    text = (source if source.isascii() else NOT_ASCII.sub("%", source)).encode()
    tree = parser.parse(text)
    if tree.root_node.has_error:
        reason = "tree-sitter finds an error in it"
        raise UnknownSyntax(reason)
    programs = QueryCursor(query).captures(tree.root_node).get("program", [])
    theirs = {node.start_byte for node in programs}
    if b"[[" in text:
        theirs = {start for start in theirs if not text.startswith(b"[[", start)}
    for start in reader.programs ^ theirs:
        if not any(begin <= start < end for begin, end in reader.unwitnessed):
            reason = "two readings of it differ"
            raise UnknownSyntax(reason, start)
