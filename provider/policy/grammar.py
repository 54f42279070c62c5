"""
The part of bash's grammar that the first reader knows, as patterns and tables.

What is left out is left out on purpose: a text with anything else in it is unknown.
"""

from __future__ import annotations

import re
from typing import Final

# What is past any of these is unknown. Together they keep the worst text, for either reader, within a few milliseconds.
MAX_BYTES: Final = 65_536
MAX_COMMANDS: Final = 256
MAX_PIECES: Final = 2048  # words, quotes and expansions
MAX_HEREDOCS: Final = 16
MAX_DEPTH: Final = 32


class UnknownSyntax(Exception):
    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason)
        self.offset = offset


NOT_ASCII = re.compile(r"[\x80-\xff]")
# Tab and newline are the only controls that every shell reads alike; \x01 and \x7f are bash's own internal marks.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def as_bytes(text: str) -> str:
    """One character a byte, so that indices are byte offsets. Raises UnknownSyntax."""
    reason = f"longer than {MAX_BYTES} bytes"
    if len(text) > MAX_BYTES:
        raise UnknownSyntax(reason)
    if not text.isascii():
        try:
            text = text.encode().decode("latin-1")
        except UnicodeEncodeError:
            reason = "not valid UTF-8"
            raise UnknownSyntax(reason) from None
        if len(text) > MAX_BYTES:
            raise UnknownSyntax(reason)
    printable = text.replace("\n", " ").replace("\t", " ").isprintable()  # in a third of the time of the search
    if not printable and (odd := _CONTROL.search(text)):
        reason = f"control character {odd[0]!r}"
        raise UnknownSyntax(reason, odd.start())
    return text


def as_text(text: str) -> str:
    """Take it back to text."""
    return text if text.isascii() else text.encode("latin-1").decode()


BLANKS = re.compile(r"(?:[ \t]|(?<=[ \t])\\\n)*")  # a continued line, only where a word has ended anyway
COMMENT = re.compile(r"#[^\n]*")
# Words without anything special in them; `=`, `~` and `:` are looked at again where they can mean something.
_PLAIN = r"[A-Za-z0-9_./:,=+@%^\x80-\xff-]++"
PLAIN = re.compile(_PLAIN)
IN_QUOTES = re.compile(r'[^"\\$`]+')
IN_HEREDOC = re.compile(r"[^\\$`]+")
ANSI_C = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_PARAMETER = r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])"
PARAMETER = re.compile(_PARAMETER)
PARAMETERS = re.compile(f"({_PARAMETER})")
_BRACED_PLAIN = r"(?:[A-Za-z0-9_./:,=+@%^*? -]|\$[A-Za-z_][A-Za-z0-9_]*)*"
# Without nested quotes and substitutions, with digits where bash would do arithmetic, and without `@` and `!`, which
# evaluate the value itself.
BRACED = re.compile(
    r"\$\{(?:"
    r"[0-9]+|[@*#?$!-]"
    r"|#?[A-Za-z_][A-Za-z0-9_]*(?:\[(?:[@*]|[0-9]+)\])?"
    rf"|[A-Za-z_][A-Za-z0-9_]*(?::?[-+=?]|##?|%%?){_BRACED_PLAIN}"
    rf"|[A-Za-z_][A-Za-z0-9_]*(?P<bash>:[0-9]+(?::[0-9]+)?|//?[A-Za-z0-9_.,:@ -]+/{_BRACED_PLAIN}|\^\^?|,,?)"
    r")\}"
)
# A name in arithmetic is evaluated as arithmetic in turn: x='a[$(rm y)]'; echo $((x)) runs rm. So, numbers only.
ARITHMETIC = re.compile(
    r"\$\(\([0-9 \t+*/%<>=!&|^~?:,-]*(?:\([0-9 \t+*/%<>=!&|^~?:,-]*\)[0-9 \t+*/%<>=!&|^~?:,-]*)*\)\)"
)
ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
SUBSCRIPT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CLOSING = re.compile(r"[ \t]*\)")
REDIRECT = re.compile(r"([0-9]*)(&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<|>)")
CLOSED_AND_MORE = re.compile(r"-[^\s;&|<>()]")  # `>&-x`
DELIMITER = re.compile(r"""[A-Za-z0-9_.-]+|'[A-Za-z0-9_.-]+'|"[A-Za-z0-9_.-]+\"""")
OPERATOR = re.compile(r"&&|\|\||\|&|;;&|;;|;&|[;&|()\n]")

JOINTS = frozenset({";", "&", "&&", "||", "|", "|&"})
BASH_REDIRECTS = {"&>", "&>>", "<<<"}
CLOSERS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
LEFT_OUT = frozenset({"function", "select", "coproc", "in", "]]"})
RESERVED: Final = CLOSERS | LEFT_OUT | {"if", "while", "until", "for", "case", "{", "!", "[[", "time"}

# Nearly all of most texts. Where a command may begin: the head of a `for`, a keyword, or a program and the rest of its
# command, which is words, redirections to plain words, and the operator after them. A word is plain, with quotes of one
# kind, or all in double quotes with no more in it than parameters. A keyword stands alone, for of `if if if ...` each
# would take all the others for words. Only single characters are repeated possessively: for groups Python has it wrong
# before 3.11.5. So no text may fit in two ways, or the time to find that it does not would double with every word.
_KEYWORDS = "|".join(sorted(filter(str.isalpha, RESERVED), reverse=True))
_TILDE = r"(?:(?<=[A-Za-z0-9_])~[A-Za-z0-9]*+)?"  # HEAD~1, which is no home directory
_ENDS = r"(?![^ \t\n;|)])"
_GAP = r"[ \t]++(?:\\\n[ \t]*+)*"
_IN_QUOTES = r'[^"\\$`]*+'
_WORD = (
    rf"""(?:(?:{_PLAIN}{_TILDE}|'[^']*+')+|(?:{_PLAIN})?(?:"{_IN_QUOTES}"(?:{_PLAIN})?)+"""
    rf"""|"{_IN_QUOTES}(?:{_PARAMETER}{_IN_QUOTES})+"){_ENDS}"""
)
_WORDS = rf"((?:{_GAP}{_WORD})*)"
_JOINT = rf"(?:{_GAP})?(&&|\|\||\n|;(?![;&])|\|(?![|&]))"
_REST = rf"{_WORDS}((?:{_GAP}[0-9]*+(?:>>|>&|>|<)[ \t]*+(?!-){_PLAIN}{_ENDS})*)(?:{_JOINT})?"
COMMON_JOINT = re.compile(_JOINT)
COMMON_REST = re.compile(_REST)
COMMON_COMMAND = re.compile(
    rf"[ \t\n]*+(?:(?<=[ \t])\\\n[ \t\n]*+)*"
    rf"(?:for[ \t]++({NAME.pattern})[ \t]++in{_WORDS}[ \t]*+[;\n][ \t\n]*+do{_ENDS}"
    rf"|({_KEYWORDS}){_ENDS}"
    rf"|([A-Za-z0-9_./+-]++){_ENDS}{_REST})"
)
COMMON_WORD = re.compile(_WORD)
COMMON_REDIRECTION = re.compile(rf"([0-9]*+)(>>|>&|>|<)[ \t]*+({_PLAIN})")

# After these, bash reads the rest of the text by other rules.
ALTERS = frozenset({"alias", "unalias", "shopt", "enable", "hash"})
DECLARES = frozenset({"declare", "typeset", "local", "export", "readonly"})
SETS = frozenset({"read", "printf", "mapfile", "readarray", "getopts"})
MAY_ALTER: Final = ALTERS | DECLARES | SETS | {"set", "time", "command", "builtin"}
# What these are set to, in whichever way, bash evaluates as arithmetic: RANDOM='x[$(rm y)]' runs rm.
_INTEGERS = "RANDOM SRANDOM SECONDS OPTIND HISTCMD LINENO BASHPID PPID UID EUID EPOCHSECONDS BASH_SUBSHELL"
INTEGERS: Final = frozenset(_INTEGERS.split())
# The value of an array is evaluated by declare and its kind, also out of quotes: declare -a 'x=($(rm y))' runs rm.
LIST_VALUE = re.compile(r"[^=]*=\s*\(", re.DOTALL)
MAKES_ARRAYS = re.compile(r"=\(|[-+]\w*[aA]|mapfile|readarray|coproc|DIRSTACK|PIPESTATUS|GROUPS|FUNCNAME|BASH_")
# Bash expands the target of these a second time: x >&'$(rm y)' runs rm. So it must be what it looks like.
TWICE = frozenset({">&", "<&"})
DECLARES_HARMLESS = re.compile(
    r"[-+][aAfFglprtux]*"
)  # -i makes every later assignment arithmetic, -n a name of another
SET_HARMLESS = re.compile(r"--|[-+][euxfCE]*o?|errexit|nounset|pipefail|xtrace|noglob|noclobber")
_ALTERING = re.compile(r"BASH_ALIASES|BASH_CMDS|POSIXLY_CORRECT|SHELLOPTS|BASHOPTS|BASH_COMPAT")


def names_altering(text: str) -> bool:
    """Whether a variable's name is in it that changes how bash reads what follows."""
    # `in` finds a text in a tenth of the time that an expression takes to find one of six.
    return ("BASH" in text or "SHELLOPTS" in text or "POSIXLY" in text) and _ALTERING.search(text) is not None


# Inside [[ ]] only what compares texts and looks at files: -eq and its kind do arithmetic, -v evaluates subscripts.
TEST_OPERATORS = frozenset({*(f"-{letter}" for letter in "abcdefghknoprstuwxzGLNOS"), "-nt", "-ot", "-ef"})

# Keyword -> the phase it leads to, by the phase a frame is in; None closes the frame.
PHASES: dict[str, dict[str, str | None]] = {
    "{": {"}": None},
    "if": {"then": "then"},
    "then": {"elif": "if", "else": "else", "fi": None},
    "else": {"fi": None},
    "while": {"do": "do"},
    "do": {"done": None},
    "case": {"esac": None},
}
