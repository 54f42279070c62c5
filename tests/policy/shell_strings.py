"""
Shell texts from a grammar, then damaged: what the readers of `provider.policy` are held against bash with.

The programs are called c1 to c4 and do not exist; nothing here names a real file. `shell_string` is deterministic in
the random source it is given, so that a failure can be had again by its seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

PROGRAMS = ("c1", "c2", "c3", "c4")
PLAIN = (*PROGRAMS, "1", "2", "-c", "c=1", "--c=1", "v")
ODD = (
    "'", '"', "`", "\\", "$", "(", ")", "{", "}", "[", "]", "<", ">", "|", "&", ";", "#", "!", "*", "?", "~", "=",
    ",", ":",
    "\n", "\t", " ", "\\\n", "$(", "${", "$((", "))", "$'", '$"', "$[", "<<", "<<<", "<(", ">(", "&&", "||", ";;",
    "|&", "&>",
    "((", "[[ ", " ]]", "@(", "!(", "{c1,c2}", "..", "\r", "\x01", "\x7f", "\x0b", "\u00a0", "\u00e9", "\udcff",
    "2>", "$v",
    "<<E\n", "\nE\n", "$c1", "c1", " c2 ", "time ", "! ", "{ ", "; }", "coproc ", "function ", "do ", "done",
    "then ", "fi",
    "in ", "esac", "case ", "if ", "for ", "while ", "else ", "select ", "until ", "v=", "v+=", "c1()", "\\'",
    '\\"', "\\`", "\\$",
)  # fmt: skip
BUILTINS = (
    "cd", ".", ":", "echo", "eval", "exec", "exit", "export", "kill", "printf", "pwd", "read", "set", "shift", "source",
    "test", "trap", "true", "type", "ulimit", "unset", "wait",
)  # fmt: skip
ROUGH = 0.3
"""How much of `any_string` is no grammar at all."""
# Values that something may evaluate once more, and names whose value bash does.
ASSIGNED = (
    "v=", "v=1", "v='c1 c2'", 'v="$v"', "v+=1", "v=(1 c1)", "v=$(c1)", "v=~:c1", "v='$(c1)'", "v='`c1`'",
    "v='v[$(c1)]'", "v='($(c1))'", "v=()", "RANDOM=v", "RANDOM=1", "OPTIND=$v", "SECONDS='v[$(c1)]'", "PS4='$(c1)'",
    "IFS=c", "w=v", "w=$v",
)  # fmt: skip
SETTING = (
    "declare", "declare -a", "declare -A", "typeset", "export", "readonly", "local", "read", "read -a", "printf -v",
    "mapfile", "getopts v", "unset", "test", "[", "let", "declare v=$v", "declare -a v=$w", "read RANDOM <<<$v",
    "printf -v RANDOM $v", "export v", "eval", "trap", "shift", "set --", "cd", "wait", "hash", "type", "alias",
)  # fmt: skip
LIKELY_KNOWN = 0.5
"""How often a construct that both readers know is preferred to any."""

Random = random.Random
Make = Callable[[Random, int], str]


def shell_string(source: Random, depth: int = 4) -> str:
    """One text: from the grammar, and half of the time damaged in one to four places."""
    text = _script(source, source.randint(0, depth))
    if source.random() < 0.5:
        for _ in range(source.randint(1, 4)):
            text = _damaged(source, text)
    return text


def any_string(source: Random) -> str:
    """Such a text, or a heap of its pieces, real builtins and any characters. Only for bash in a sandbox."""
    if source.random() > ROUGH:
        return shell_string(source)
    pieces = [*_HEAP, *(chr(source.randrange(1, 0xD800)) for _ in range(8))]
    return "".join(source.choice(pieces) for _ in range(source.randrange(1, 25)))


_HEAP = (*ODD, *BUILTINS, *map(chr, range(32, 127)), " ", " c1 ")


def _damaged(source: Random, text: str) -> str:
    at = source.randint(0, len(text))
    to = min(len(text), at + source.randint(0, 3))
    match source.randrange(5):
        case 0:
            return text[:at] + text[to:]
        case 1:
            return text[:at] + text[at:to] * 2 + text[to:]
        case 2:
            other = source.randint(0, len(text))
            return text[:at] + text[other : other + source.randint(1, 8)] + text[at:]
        case _:
            return text[:at] + source.choice(ODD) + text[at:]


def _script(source: Random, depth: int) -> str:
    joints = ("; ", " && ", " || ", " | ", " & ", "\n", ";", "&&", "|", " |& ", "\n\n", " ;\n")
    parts = [_command(source, depth)]
    for _ in range(source.choice((0, 0, 1, 1, 2, 3))):
        parts += [source.choice(joints), _command(source, depth)]
    tail = source.choice(("", "", "", ";", " &", "\n", " # c3", " #c3\n"))
    return "".join(parts) + tail


def _command(source: Random, depth: int) -> str:
    if depth <= 0 or source.random() < 0.6:
        return _simple(source, depth)
    return source.choice(COMPOUND)(source, depth - 1)


def _simple(source: Random, depth: int) -> str:
    words = []
    if source.random() < 0.15:
        words.append(source.choice(ASSIGNED))
    words.append(source.choice(PROGRAMS) if source.random() < 0.8 else _word(source, depth))
    words += [_word(source, depth) for _ in range(source.choice((0, 0, 1, 1, 2, 3)))]
    if source.random() < 0.2:
        words.append(_redirection(source, depth))
    if source.random() < 0.05:
        words.insert(0, source.choice(("!", "time", "time -p", "command", "exec", "builtin", "coproc", "eval", "! !")))
    if source.random() < 0.03:
        words = [source.choice(SETTING), *words[1:]]
    return source.choice((" ", " ", " ", "  ", "\t", " \\\n")).join(words)


def _redirection(source: Random, depth: int) -> str:
    body = source.choice(
        ("c1", "$v", "$(c1)", "`c2`", "\\$(c1)", "'c1'", '"$(c2)"', "${v:-c1}", "c1 \\\nc2", "$((1))", "E c1", "")
    )
    delimiter = source.choice(("E", "'E'", '"E"', "\\E", "E$v", "-E"))
    return source.choice(
        (
            ">f1", "> f2", ">>f1", "2>&1", "2> f1", "<f1", "&>f2", ">|f1", "<>f1", ">&2", "<&-", "<<<c1", "<<< $v",
            '<<<"$(c1)"',
            f"< <({_simple(source, 0)})", f"> >({_simple(source, 0)})",
            f"<<{delimiter}\n{body}\nE\n", f"<<{delimiter}\n{body}\nE\n", f"<<{delimiter} | c3\n{body}\nE\n",
            f"<<-{delimiter}\n\t{body}\n\tE\n", f"<<E <<E\n{body}\nE\nc4\nE\n", ">$v", ">{f1,f2}", "{v}>f1",
            ">'f1 f2'", ">&$v", '>&"$v"', ">&'$(c1)'", ">&\\$v", ">&f1", "<&$v", "&>'$(c1)'", ">'$(c1)'",
            "<<<'$(c1)'", "<<<$v",
        )
    )  # fmt: skip


def _word(source: Random, depth: int) -> str:
    if source.random() < LIKELY_KNOWN:
        return source.choice(PLAIN)
    pieces = [source.choice(PIECES)(source, depth - 1) for _ in range(source.choice((1, 1, 1, 2, 3)))]
    return "".join(pieces)


def _fixed(*choices: str) -> Make:
    return lambda source, _: source.choice(choices)


def _inner(before: str, after: str) -> Make:
    """A list of commands inside something."""
    return lambda source, depth: before + (_script(source, depth) if depth > 0 else source.choice(PROGRAMS)) + after


PIECES: tuple[Make, ...] = (
    _fixed(*PLAIN),
    _fixed("'c1'", "'c1 ; c2'", "''", "'$(c1)'", "'`c1`'", "'\\'", "'#'", "'\n'"),
    _fixed('"c1"', '""', '"c1 ; c2"', '"$v"', '"\\$(c1)"', '"\\`c1\\`"', '"\'"', '"#"', '"\\\\"', '"c1\nc2"',
        '"c1\\\nc2"', '"!c1"'),
    _fixed("\\c", "\\ ", "\\;", "\\|", "\\&", "\\(", "\\$", "\\`", '\\"', "\\'", "\\\\", "\\#", "\\\n", "\\!", "\\{"),
    _fixed("$v", "${v}", "$1", "$@", "$#", "$?", "$$", "$!", "$-", "$", "$%", "${v:-c1}", "${v-$(c1)}", "${#v}",
        "${v%c}", "${!v}"),
    _fixed("${v:-'}'}", '${v:-"}"}', "${v@P}", "${v:1}", "${v:c1}", "${v/c/1}", "${v[0]}", "${v[$(c1)]}",
        "${v:=c1 c2}", "${v:-`c1`}"),
    _fixed("$((1))", "$((1+2))", "$(( (1) ))", "$((v))", "$(($(c1)))", "$(((1)))", "$((c1) )", "$((c1); (c2))",
        "$[1]", "$[$(c1)]"),
    _fixed("*", "?", "[c1]", "c*", "[!c]", "[", "]", "~", "~c1", "{c1,c2}", "{1..2}", "{c1}", "{}", "{", "}",
        "{c1,$(c2)}", "{c1,'c2'}"),
    _fixed("#", "#c1", "c1#c2", "!", "!c1", "!!", "=", "c1=", "^c1^c2", "%1", "@c1", "+", "-", "--", "..", ":", ","),
    _fixed("$'c1'", "$'c\\'1'", "$'\\x63'", "$'\n'", '$"c1"', '$"$(c1)"', "@(c1|c2)", "!(c1)", "?(c1)", "*(c1)",
        "+(c1)"),
    _fixed("\u00e9", "\u00a0", "\u2028", "\udcff", "\x01", "\x7f", "\r", "\x0b", "\x0c", "\ufeff"),
    _inner("$(", ")"),
    _inner("$( ", " )"),
    _inner("`", "`"),
    _inner('"$(', ')"'),
    _inner('"`', '`"'),
    _inner("<(", ")"),
    _inner(">(", ")"),
    _inner('"c1 $(c2 "', '")"'),
    _inner("`c1 \\`", "\\``"),
    _inner("$(c1 <<E\n", "\nE\n)"),
    _inner("$(case c1 in c1) ", ";; esac)"),
    _inner("$(c1 # )\n", ")"),
)  # fmt: skip

COMPOUND: tuple[Make, ...] = (
    _inner("( ", " )"),
    _inner("(", ")"),
    _inner("{ ", "; }"),
    _inner("{ ", "\n}"),
    _inner("if c1; then ", "; fi"),
    _inner("if ", "; then c1; else c2; fi"),
    _inner("if c1\nthen c2\nelif c3; then ", "\nelse c4; fi"),
    _inner("while c1; do ", "; done"),
    _inner("until c1\ndo ", "\ndone"),
    _inner("for v in c1 c2; do ", "; done"),
    _inner("for v in $(c1) c*\ndo ", "\ndone"),
    _inner("for v; do ", "; done"),
    _inner("for ((1;0;1)); do ", "; done"),
    _inner("case c1 in c1) ", ";; c2|c3) c4;; esac"),
    _inner("case $v in\n(c1) c2 ;;\n*) ", "\nesac"),
    _inner("case c1 in *) ", ";& c2) c3;;& esac"),
    _inner("f() { ", "; }; f"),
    _inner("f () (", "); f"),
    _inner("function f { ", "; }\nf"),
    _inner("c2() { ", "; }; c2"),
    _inner("! ", ""),
    _inner("time ", ""),
    _inner("time { ", "; }"),
    _inner("coproc ", ""),
    _inner("[[ c1 == c* ]] && ", ""),
    _inner("[[ -n $(", ") && c1 =~ c(1) ]]"),
    _inner("((1)) && ", ""),
    _inner("((v[$(", ")]))"),
    _inner("[ -n c1 ] || ", ""),
    _inner("( ", " ) >f1 2>&1"),
    _inner("{ ", "; } | c2"),
    _inner("select v in c1; do ", "; done"),
    _inner("v=($(", ") c1)"),
    _inner("v[$(", ")]=1"),
    _inner("c1 && {\n", "\n} || c2"),
)  # fmt: skip
