"""
What `provider.policy.reader` promises: bash runs nothing that was not judged.

The texts are harmless: programs that do not exist, no real path. Arbitrary ones are tests/sandbox/test_policy_bash.py.
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

sys.path.insert(0, str(Path(__file__).parent))
from bash_truth import truth
from judged import silently_allowable, unjudged
from shell_strings import shell_string

from provider.policy import grammar
from provider.policy.grammar import MAX_PIECES, UnknownSyntax, as_bytes
from provider.policy.reader import Reader
from provider.policy.syntax import read

SEEDED = 1200

# Each of these once got past a version of the reader, or past tree-sitter-bash.
ONCE_MISREAD = (
    'c1 eval}\\"c2',  # by Python before 3.11.5
    "c1 a'b'a \"it's\" 'a\"b'c",
    "c1 BASH_A''LIASES=1",
    "time -p v=1 c4",
    "time -p -p c2",
    "time -p ! c1",
    "c3 <&-c4 <&-",
    "v=1 c1 c2",
    "cat <<E\n`c1`\nE",
    "time { c1; }",
    "declare -i v; v='x[$(c1)]'",
    "v='x[$(c1)]'; c2 $((v))",
    "v='x[$(c1)]'; let v",
    "test -v 'x[$(c1)]'",
    "[ -v 'x[$(c1)]' ]",
    "printf -v 'x[$(c1)]' c2",
    "unset 'x[$(c1)]'",
    "PS4='$(c1)'; set -x; :",
    "v='$(c1)'; : ${v@P}",
    "eval 'c1'",
    "trap c1 EXIT",
    "alias c2='c1'\nc2",
    "shopt -s expand_aliases\nalias c2='c1 x'\nc2",
    "$v c1",
    "{c1,c2}",
    "c1 &>(c2)",
    "c1 <<E $(c2\nE\nc3)\nE",
    'c1 "`c2 \\"c3\\"`"',
    "c1 `c2 \\`c3\\``",
    "coproc c1",
    "coproc v { c1; }",
    "f() if c1; then c2; fi; f",
    "c1 # \\\nc2",
    "[[ x -eq 'v[$(c1)]' ]]",
    "command eval c1",
    "builtin eval c1",
    "command -p c1",
    "exec -a v c1",
    "! ! c1",
    ". <(printf c1)",
    "source /dev/stdin <<< c1",
    "mapfile -C 'c1 x' -c 1 v <<< 1",
    "export v=$(c1)",
    "readonly v=`c1`",
    "v=([$(c1)]=1)",
    "for v in `c1`; do :; done",
    "case $(c1) in *) c2;; esac",
    "while c1; do break; done < <(c2)",
    "{ c1; } >f1",
    "c1 $(<f1)",
    "c1 ${v:-$(c2)}",
    "c1 \\\n&& c2",
    "c1 \\\n\\\n c2",
    "c1\\\nc2",
    "$(c1\n)",
    "`c1\nc2`",
    "c1 $(c2;)",
    "c1 $(c2 &)",
    "(c1)&(c2)",
    "if c1;then c2;fi",
    "c1&&{ c2;}",
    "c1;}",
    "c1 {c2;}",
    "~/c1",
    "c?",
    "[c1]",
    "c1=c2 c3=c4 c1",
    "v=~ c1",
    "c1 -- $(c2) # $(c3)",
    "time c1[ # ]; c2",
    "c1 >&'$(c2)'",
    "c1 >& \\$\\(c2\\)",
    "c1 1>&$'\\x24(c2)'",
    "v='`c2`'; c1 >&$v",
    "v='$(c2)'; c1 >&\"$v\"",
    "{ c1; } >&'<(c2)'",
    'c1 >&\\"2',
    "RANDOM='v[$(c1)]'",
    "v='v[$(c1)]'; RANDOM=v",
    "for SECONDS in 'v[$(c1)]'; do c2; done",
    "read OPTIND <<< 'v[$(c1)]'",
    "printf -v HISTCMD %s 'v[$(c1)]'",
    "printf -vSRANDOM %s 'v[$(c1)]'",
    "export RANDOM='v[$(c1)]'",
    "n=RANDOM; read $n <<< 'v[$(c1)]'",
    "declare -a 'v=($(c1))'",
    "declare -A 'v=([$(c1)]=1)'",
    "v=(); declare v='($(c1))'",
    "v=(1); declare v+='($(c1))'",
    "n='($(c1))'; declare -a v=\"$n\"",
    "v=(); n='($(c1))'; typeset v=$n",
    "declare DIRSTACK='($(c1))'",
    "declare ''",
    "v='$(c1)'; declare \"a[$v]=1\"",
    "v='$(c1)'; a=(1); unset \"a[$v]\"",
    "v='$(c1)'; test -v \"a[$v]\"",
    "v='$(c1)'; [ -v \"a[$v]\" ]",
    "compgen -W '$(c1)'",
    "jobs -x c1 c2",
    ". /proc/self/fd/0 <<< c1",
    ". /x/../dev/stdin <<< c1",
    "export '' v=$v",
    "f() { local -a v='(`c1`)'; }; f",
    "time -p c1[[ {== c* ]] && c2",
    "time -- c1[ ' ]; c2 # '",
)


def test_bash_tells_what_it_runs():
    """The oracle itself: both sides of an operator, substitutions, arguments, files."""
    told = truth("c1 'a b' && c2 $(c3) || c4 >f1", runs=12)
    assert ["c1", "a b"] in told.commands
    assert {"c1", "c3", "c4"} <= {argv[0] for argv in told.commands}
    assert told.files == ["f1"]


def test_an_overlooked_command_would_be_seen():
    """Were the reader to miss one, this is how it would show."""
    assert unjudged("c1", [["c1"], ["c2"]], ["f1"]) == ["runs ['c2']", "writes f1"]
    assert unjudged("c1 x", [["c1", "y"]], []) == ["runs ['c1', 'y']"]
    assert unjudged("$v x", [["c1", "x"]], []) == []


@pytest.mark.parametrize("text", ONCE_MISREAD)
def test_what_was_once_misread_is_not_now(text: str):
    """Known in full, or asked about."""
    if silently_allowable(text):
        told = truth(text)
        assert unjudged(text, told.commands, told.files) == []


@hypothesis.given(strategies.integers(min_value=0))
@hypothesis.settings(max_examples=150)
def test_bash_runs_nothing_unjudged(seed: int):
    """Whatever the text: it is asked about, or every command that bash starts was judged, with its words."""
    text = shell_string(random.Random(seed))
    if silently_allowable(text):
        told = truth(text, runs=2)
        assert unjudged(text, told.commands, told.files) == [], text


def test_bash_runs_nothing_unjudged_in_a_larger_run():
    """The same over a fixed stretch of seeds, of which enough must be texts that the reader knows."""
    texts = [shell_string(random.Random(seed)) for seed in range(SEEDED)]
    known = [text for text in texts if silently_allowable(text)]
    assert len(known) > SEEDED / 6
    for text in known[: SEEDED // 5]:
        told = truth(text, runs=1)
        assert unjudged(text, told.commands, told.files) == [], text


@hypothesis.given(strategies.text(alphabet=strategies.characters(codec="utf-8"), max_size=60))
@hypothesis.settings(max_examples=300)
def test_no_text_is_an_error(text: str):
    """Any text is read to an end, with spans that lie in it, the same each time."""
    script = read(text)
    assert script == read(text)
    size = len(text.encode())
    for command in script.commands:
        assert 0 <= command.start <= size
        assert command.end <= size


@hypothesis.given(strategies.integers(min_value=0))
@hypothesis.settings(max_examples=300)
def test_a_longer_text_hides_nothing(seed: int):
    """What is found in a known text is found again behind another command."""
    text = shell_string(random.Random(seed))
    script = read(text)
    longer = read("c1\n" + text)
    if script.unknown is None and longer.unknown is None:
        assert len(longer.commands) == len(script.commands) + 1


def test_the_reader_alone_gives_up_with_a_place():
    """Its reason says where."""
    with pytest.raises(UnknownSyntax) as caught:
        Reader().read(as_bytes("a; b; coproc c"))
    assert caught.value.offset == 6


def test_pieces_are_counted():
    """Words and expansions have a limit of their own, since they are what takes time."""
    assert read("a " + "b " * (MAX_PIECES - 10)).unknown is None
    assert "words and expansions" in (read("a " + "b " * (MAX_PIECES + 1)).unknown or "")


def groups_repeated_possessively(pattern: str) -> list[str]:
    return re.findall(r"\)(?:[*+?]|\{[^}]*\})\+", pattern)


def test_no_group_is_repeated_possessively():
    """Python before 3.11.5 goes on from the middle of the repetition that failed: `(?:ab)*+` takes `aba` whole."""
    patterns = {name: form.pattern for name, form in vars(grammar).items() if isinstance(form, re.Pattern)}
    assert "COMMON_COMMAND" in patterns
    assert groups_repeated_possessively("(?:ab)*+")
    assert {name for name, pattern in patterns.items() if groups_repeated_possessively(pattern)} == set()
