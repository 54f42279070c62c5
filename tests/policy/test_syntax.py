"""
What `provider.policy.syntax` promises: every command that bash would run is in the list, or the text is unknown.

The tables are rows of text and what it comes to; how bash itself reads such texts is compared in test_reader.py.
"""

from __future__ import annotations

import time

import pytest

from provider.policy.grammar import MAX_BYTES, MAX_COMMANDS, MAX_DEPTH
from provider.policy.script import Command, Dynamic, Place, Word
from provider.policy.syntax import read

# A command is its words with a blank between; `_` is a blank in a word, <…> a word that only bash knows, and what has a
# colon is not run itself but belongs to a construct. An empty command has only assignments or redirections.
KNOWN = (
    ("ls", ["ls"]),
    ("ls -la", ["ls -la"]),
    ("  ls   -la  ", ["ls -la"]),
    ("ls;", ["ls"]),
    ("ls; pwd", ["ls", "pwd"]),
    ("ls;pwd", ["ls", "pwd"]),
    ("ls && pwd", ["ls", "pwd"]),
    ("ls&&pwd", ["ls", "pwd"]),
    ("ls || pwd", ["ls", "pwd"]),
    ("ls | wc -l", ["ls", "wc -l"]),
    ("ls|wc", ["ls", "wc"]),
    ("ls |& wc", ["ls", "wc"]),
    ("sleep 5 &", ["sleep 5"]),
    ("a & b", ["a", "b"]),
    ("a & b &", ["a", "b"]),
    ("a && b &", ["a", "b"]),
    ("(a; b) &", ["a", "b"]),
    ("a;b|c&&d||e&f", ["a", "b", "c", "d", "e", "f"]),
    ("ls\npwd", ["ls", "pwd"]),
    ("ls\n\n\npwd\n", ["ls", "pwd"]),
    ("ls ;\npwd", ["ls", "pwd"]),
    ("a |\nb", ["a", "b"]),
    ("a &&\nb", ["a", "b"]),
    ("a ||\n\nb", ["a", "b"]),
    ("/bin/rm x", ["/bin/rm x"]),
    ("./rm x", ["./rm x"]),
    ("../bin/rm x", ["../bin/rm x"]),
    ("\\rm x", ["rm x"]),
    ("r''m x", ["rm x"]),
    ('r"m" x', ["rm x"]),
    ("'rm' x", ["rm x"]),
    ('"rm" x', ["rm x"]),
    ("r\\m x", ["rm x"]),
    ("'a b' c", ["a_b c"]),
    ("echo 'a b' \"c d\" e\\ f", ["echo a_b c_d e_f"]),
    ("echo 'it'\\''s'", ["echo it's"]),
    ('echo "it\'s"', ["echo it's"]),
    ("echo 'say \"hi\"'", ['echo say_"hi"']),
    ('echo "a\\"b"', ['echo a"b']),
    ('echo "a\\\\b"', ["echo a\\b"]),
    ('echo "a\\b"', ["echo a\\b"]),
    ('echo "a\\$b"', ["echo a$b"]),
    ('echo "\\`id\\`"', ["echo `id`"]),
    ("echo \\$HOME", ["echo $HOME"]),
    ("echo \\`id\\`", ["echo `id`"]),
    ("echo \\;", ["echo ;"]),
    ("echo \\&\\&", ["echo &&"]),
    ("echo ''", ["echo ''"]),
    ('echo ""', ["echo ''"]),
    ('echo a""b', ["echo ab"]),
    ("echo '$(pwd)'", ["echo $(pwd)"]),
    ("echo '`pwd`'", ["echo `pwd`"]),
    ('echo "<(whoami)"', ["echo <(whoami)"]),
    ("echo $", ["echo $"]),
    ('echo "$"', ["echo $"]),
    ("echo a$", ["echo a$"]),
    ("echo 100%", ["echo 100%"]),
    ("echo a#b", ["echo a#b"]),
    ("echo '#' a", ["echo # a"]),
    ("ls # comment", ["ls"]),
    ("ls #comment; rm x", ["ls"]),
    ("# only\nls", ["ls"]),
    ("ls;#x", ["ls"]),
    ("ls # a 'quote\npwd", ["ls", "pwd"]),
    ("echo $HOME", ["echo <parameter>"]),
    ("echo ${HOME}", ["echo <parameter>"]),
    ('echo "$HOME"', ["echo <parameter>"]),
    ('echo "${HOME}/x"', ["echo <parameter>"]),
    ("echo $HOME/x", ["echo <parameter>"]),
    (
        "echo $1 $@ $* $# $? $$ $! $-",
        ["echo <parameter> <parameter> <parameter> <parameter> <parameter> <parameter> <parameter> <parameter>"],
    ),
    ("echo ${x:-y}", ["echo <parameter>"]),
    ("echo ${x:-a b}", ["echo <parameter>"]),
    ("echo ${x-}", ["echo <parameter>"]),
    ("echo ${x:=y} ${x:+y} ${x:?y}", ["echo <parameter> <parameter> <parameter>"]),
    ("echo ${x#a} ${x##*/} ${x%.*} ${x%%.*}", ["echo <parameter> <parameter> <parameter> <parameter>"]),
    ("echo ${#x}", ["echo <parameter>"]),
    ("echo ${x:-$y}", ["echo <parameter>"]),
    (
        "echo ${x:0:3} ${x^^} ${x,,} ${x/a/b} ${x//a/b}",
        ["echo <parameter> <parameter> <parameter> <parameter> <parameter>"],
    ),
    ("echo ${a[0]} ${a[@]} ${#a[*]}", ["echo <parameter> <parameter> <parameter>"]),
    ("echo ${10}", ["echo <parameter>"]),
    ("$x", ["<parameter>"]),
    ('"$x" y', ["<parameter> y"]),
    ("$x/bin/ls", ["<parameter>"]),
    ("a$x y", ["<parameter> y"]),
    ("~/bin/x", ["<tilde>"]),
    ("~user/bin/x", ["<tilde>"]),
    ("ls ~ ~/a ~user a~ HEAD~1", ["ls <tilde> <tilde> <tilde> a~ HEAD~1"]),
    ("ls *.py", ["ls <glob>"]),
    ("ls ?", ["ls <glob>"]),
    ("ls [ab]", ["ls <glob>"]),
    ("ls a[1-3]b", ["ls <glob>"]),
    ("ls [", ["ls ["]),
    ("ls ]", ["ls ]"]),
    ("[ -f x ]", ["[ -f x ]"]),
    ("[ -f x ] && ls", ["[ -f x ]", "ls"]),
    ("test -f x", ["test -f x"]),
    ("ls {a,b}", ["ls <brace>"]),
    ("ls {1..3}", ["ls <brace>"]),
    ("ls {}", ["ls {}"]),
    ("find . -name x -exec rm {} \\;", ["find . -name x -exec rm {} ;"]),
    ("find . -exec rm {} +", ["find . -exec rm {} +"]),
    ("echo { a", ["echo { a"]),
    ("echo a{b}c", ["echo a{b}c"]),
    ("echo a{b", ["echo a{b"]),
    ("echo }", ["echo }"]),
    ("git log HEAD@{1}", ["git log HEAD@{1}"]),
    ("git show stash@{0}", ["git show stash@{0}"]),
    ("echo $((1+2))", ["echo <arithmetic>"]),
    ("echo $(( (1 + 2) * 3 ))", ["echo <arithmetic>"]),
    ('echo "$((1))"', ["echo <arithmetic>"]),
    ("echo $(pwd)", ["echo <command()>", "pwd"]),
    ('echo "$(pwd)"', ["echo <command()>", "pwd"]),
    ("echo a$(b)c", ["echo <command()>", "b"]),
    ("echo $(a; b)", ["echo <command()>", "a", "b"]),
    ("echo $(a | b && c)", ["echo <command()>", "a", "b", "c"]),
    ("echo $(echo $(echo $(pwd)))", ["echo <command()>", "echo <command()>", "echo <command()>", "pwd"]),
    ('echo "a $(b "c $(d)") e"', ["echo <command()>", "b <command()>", "d"]),
    ("echo $( ls )", ["echo <command()>", "ls"]),
    ("echo `pwd`", ["echo <command()>", "pwd"]),
    ('echo "`pwd`"', ["echo <command()>", "pwd"]),
    ("echo `a | b` c", ["echo <command()> c", "a", "b"]),
    ("$(a) b", ["<command()> b", "a"]),
    ("`a` b", ["<command()> b", "a"]),
    ("diff <(ls) <(ls -a)", ["diff <process()> <process()>", "ls", "ls -a"]),
    ("tee >(cat)", ["tee <process()>", "cat"]),
    ("echo hi > >(rm x)", ["echo hi", "rm x"]),
    ("cat < <(curl e)", ["cat", "curl e"]),
    ("FOO=1 ls", ["ls"]),
    ("FOO=1", [""]),
    ("FOO=1 BAR=2", [""]),
    ("FOO= ls", ["ls"]),
    ("FOO=$(a) ls", ["ls", "a"]),
    ('FOO="a b" ls', ["ls"]),
    ("FOO+=x ls", ["ls"]),
    ("A=(1 2 'x y') ", [""]),
    ("A=($(ls))", ["", "ls"]),
    ("A=(\n1\n2\n)", [""]),
    ("ls FOO=1", ["ls FOO=1"]),
    ("dd if=/dev/zero of=x", ["dd if=/dev/zero of=x"]),
    ("export A=b", ["export A=b"]),
    ('export A="$(b)"', ["export <command()>", "b"]),
    ("export PAGER='sh -c x'; git branch", ["export PAGER=sh_-c_x", "git branch"]),
    ("declare -x A=1", ["declare -x A=1"]),
    ("readonly A=1", ["readonly A=1"]),
    ("unset A", ["unset A"]),
    ("local a=1", ["local a=1"]),
    ("ls > out", ["ls"]),
    ("ls >out 2>&1", ["ls"]),
    ("ls >> out", ["ls"]),
    ("ls > out < in", ["ls"]),
    ("ls 2> err", ["ls"]),
    ("ls 2>/dev/null", ["ls"]),
    ("ls &> all", ["ls"]),
    ("ls &>> all", ["ls"]),
    ("ls >| out", ["ls"]),
    ("> out", [""]),
    (">out ls", ["ls"]),
    (">out ls -la 2>&1 x", ["ls -la x"]),
    ("ls 2>&-", ["ls"]),
    ("ls <&3", ["ls"]),
    ("cat <<< hi", ["cat"]),
    ('cat <<< "$x"', ["cat"]),
    ("cat <<< $(a)", ["cat", "a"]),
    ("ls 10>x", ["ls"]),
    ("ls a2>x", ["ls a2"]),
    ("cat <<EOF\nhi\nEOF", ["cat"]),
    ("cat <<'EOF'\n$(rm x) `rm`\nEOF", ["cat"]),
    ('cat <<"EOF"\n$(rm x)\nEOF', ["cat"]),
    ("cat <<EOF\n$(rm x)\nEOF", ["cat", "rm x"]),
    ("cat <<EOF\n$HOME ${x:-y}\nEOF", ["cat"]),
    ("cat <<EOF\n`rm x`\nEOF", ["cat", "rm x"]),
    ("cat <<EOF | wc\nhi\nEOF", ["cat", "wc"]),
    ("cat <<EOF && rm x\nhi\nEOF", ["cat", "rm x"]),
    ("cat <<-EOF\n\thi\n\tEOF", ["cat"]),
    ("cat <<EOF > out\nhi\nEOF", ["cat"]),
    ("cat > out <<'EOF'\nhi\nEOF\nls", ["cat", "ls"]),
    ("cat <<EOF\nEOF", ["cat"]),
    ("cat <<A\nB\nA\ncat <<B\nA\nB", ["cat", "cat"]),
    ("(cat <<EOF\nhi\nEOF\n)", ["cat"]),
    ("git commit -m \"$(cat <<'EOF'\nhi (there)\nEOF\n)\"", ["git commit -m <command()>", "cat"]),
    ("(ls)", ["ls"]),
    ("( ls )", ["ls"]),
    ("(ls; pwd)", ["ls", "pwd"]),
    ("(ls && (pwd))", ["ls", "pwd"]),
    ("(ls) > out", ["ls", ""]),
    ("(ls) | wc", ["ls", "wc"]),
    ("{ ls; }", ["ls"]),
    ("{ ls; pwd; } > out", ["ls", "pwd", ""]),
    ("{ ls\n}", ["ls"]),
    ("! ls", ["ls"]),
    ("! ls | wc", ["ls", "wc"]),
    ("if a; then b; fi", ["a", "b"]),
    ("if a; then b; else c; fi", ["a", "b", "c"]),
    ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
    ("if a\nthen b\nfi", ["a", "b"]),
    ("if a && b; then c | d; fi", ["a", "b", "c", "d"]),
    ("if a; then b; fi > out", ["a", "b", ""]),
    ("while a; do b; done", ["a", "b"]),
    ("until a; do b; done", ["a", "b"]),
    ("while read x; do echo $x; done < f", ["read x", "echo <parameter>", ""]),
    ("for i in a b; do c $i; done", ["for: i a b", "c <parameter>"]),
    ("for i in *; do c; done", ["for: i <glob>", "c"]),
    ("for i in $(a); do c; done", ["for: i <command()>", "a", "c"]),
    ("for i; do c; done", ["for: i", "c"]),
    ("for i in a b\ndo\nc\ndone", ["for: i a b", "c"]),
    ("for i in a; do for j in b; do c; done; done", ["for: i a", "for: j b", "c"]),
    ("case x in a) b;; esac", ["case: x", "case: a", "b"]),
    ("case $x in a|b) c;; *) d;; esac", ["case: <parameter>", "case: a b", "c", "case: <glob>", "d"]),
    ("case x in (a) b;; (b) c; esac", ["case: x", "case: a", "b", "case: b", "c"]),
    ("case x in\na)\n  b\n  ;;\nesac", ["case: x", "case: a", "b"]),
    ("case x in esac", ["case: x"]),
    ("case x in a) ;; esac", ["case: x", "case: a"]),
    ("case x in a) b;& c) d;; esac", ["case: x", "case: a", "b", "case: c", "d"]),
    ("f() { a; }", ["function: f", "a"]),
    ("f() { a; }; f", ["function: f", "a", "f"]),
    ("f () { a; }", ["function: f", "a"]),
    ("f() ( a )", ["function: f", "a"]),
    ("f()\n{\na\n}", ["function: f", "a"]),
    ("[[ -f x ]]", ["[[: -f x"]),
    ("[[ a == b* ]]", ["[[: a == <glob>"]),
    ("[[ a == b ]] && c", ["[[: a == b", "c"]),
    ("[[ -f x && -d y ]] || c", ["[[: -f x -d y", "c"]),
    ("[[ ! -f x ]]", ["[[: ! -f x"]),
    ('[[ -n "$(a)" ]]', ["[[: -n <command()>", "a"]),
    ("time ls", ["time ls"]),
    ("time -p ls", ["time -p ls"]),
    ("docker run \\\n  -v x \\\n  y", ["docker run -v x y"]),
    ("ls \\\n| wc", ["ls", "wc"]),
    ('echo "a\\\nb"', ["echo ab"]),
    ("echo $'a\\nb'", ["echo <$''>"]),
    ("$'rm' x", ["<$''> x"]),
    ("IFS=$'\\n' read x", ["read x"]),
    ("eval ls", ["eval ls"]),
    ("command ls", ["command ls"]),
    ("exec ls", ["exec ls"]),
    ("sudo rm x", ["sudo rm x"]),
    ("set -e", ["set -e"]),
    ("set -euo pipefail", ["set -euo pipefail"]),
    ("set -euo pipefail; ls", ["set -euo pipefail", "ls"]),
    ("echo é", ["echo é"]),
    ("é", ["é"]),
    ("cd /tmp && ls", ["cd /tmp", "ls"]),
    ("a=b c=d e f=g", ["e f=g"]),
    ("echo -n x", ["echo -n x"]),
    ("echo --", ["echo --"]),
    ("echo =", ["echo ="]),
    ("echo a=~/b", ["echo <tilde>"]),
    ("echo x:~/b", ["echo <tilde>"]),
    ("echo a,b", ["echo a,b"]),
    ("echo !", ["echo !"]),
    ("echo !x", ["echo !x"]),
    ("! [ -f x ]", ["[ -f x ]"]),
    ("echo if then fi", ["echo if then fi"]),
    ("echo time", ["echo time"]),
    ('"if" x', ["if x"]),
    ("\\if x", ["if x"]),
    ("trap 'rm x' EXIT", ["trap rm_x EXIT"]),
    ("a | b | c | d", ["a", "b", "c", "d"]),
    ("a\n# c\nb", ["a", "b"]),
    ("python3 - <<'EOF'\nimport os\nEOF", ["python3 -"]),
)

# With a piece of the reason.
UNKNOWN = (
    ("echo \\$(whoami", "( inside a word or after one"),
    ("echo $.", "tree-sitter finds an error in it"),
    ("echo $()", "tree-sitter finds an error in it"),
    ("cat <<EOF\n\\$(rm x) \\`rm\\`\nEOF", "tree-sitter finds an error in it"),
    ("cat <<EOF; rm x\nhi\nEOF\nls", "tree-sitter finds an error in it"),
    ("! ! ls", "two readings of it differ"),
    ("ls &&", "it ends where more must follow"),
    ("ls |", "it ends where more must follow"),
    ("&& ls", "&& where a word is expected"),
    ("ls ;; pwd", ";; outside case"),
    ("; ls", "; where a word is expected"),
    ("| ls", "| where a word is expected"),
    ("ls | | wc", "| where a word is expected"),
    ("ls & & pwd", "& where a word is expected"),
    ("ls &;", "; where a word is expected"),
    ("(", "it ends inside a compound command or substitution"),
    (")", ") without ("),
    ("(ls", "it ends inside a compound command or substitution"),
    ("ls)", ") without ("),
    ("()", "a list of commands that ends too early"),
    ("{ ls", "it ends inside a compound command or substitution"),
    ("{ ls; ", "it ends inside a compound command or substitution"),
    ("{ }", "a list of commands that ends too early"),
    ("}", "} out of place"),
    ("fi", "fi out of place"),
    ("if a; then b", "it ends inside a compound command or substitution"),
    ("if a; b; fi", "fi out of place"),
    ("if; then b; fi", "; where a word is expected"),
    ("then ls", "then out of place"),
    ("do ls", "do out of place"),
    ("done", "done out of place"),
    ("else", "else out of place"),
    ("esac", "esac out of place"),
    ("'ls", "a quote that is not closed"),
    ('"ls', "a quote that is not closed"),
    ("echo `ls", "backticks with quotes, a backslash or no end"),
    ("echo $(ls", "it ends inside a compound command or substitution"),
    ("echo ${x", "an unusual ${ } expansion"),
    ("echo $((1", "arithmetic over names, or a nested subshell"),
    ("ls \\", "a backslash at the end"),
    ("\\", "a backslash at the end"),
    ("a\\\nb", "a line continued inside a word"),
    ("l\\\ns", "a line continued inside a word"),
    ("ls\\\n-la", "a line continued inside a word"),
    ("ls\r", "control character '\\r'"),
    ("ls\rpwd", "control character '\\r'"),
    ("ls\r\npwd", "control character '\\r'"),
    ("echo \x01", "control character '\\x01'"),
    ("echo \x7f", "control character '\\x7f'"),
    ("echo \x1b[0m", "control character '\\x1b'"),
    ("echo \x0b", "control character '\\x0b'"),
    ("echo \x00", "control character '\\x00'"),
    ("((1))", "((, arithmetic or two subshells"),
    ("((i++))", "((, arithmetic or two subshells"),
    ("( (a) )x", "text right after a compound command"),
    ("((a); b)", "((, arithmetic or two subshells"),
    ("echo $((x))", "arithmetic over names, or a nested subshell"),
    ("echo $((x+1))", "arithmetic over names, or a nested subshell"),
    ("echo $(($(a)))", "arithmetic over names, or a nested subshell"),
    ("echo $((a) )", "arithmetic over names, or a nested subshell"),
    ("echo $(((1)))x$((y))", "arithmetic over names, or a nested subshell"),
    ("echo $[1]", "$["),
    ("echo $[ x='a[$(touch F)]', x ]", "$["),
    ("echo ${x@P}", "an unusual ${ } expansion"),
    ("echo ${!x}", "an unusual ${ } expansion"),
    ("echo ${x:-$(a)}", "an unusual ${ } expansion"),
    ("echo ${x:-`a`}", "an unusual ${ } expansion"),
    ('echo ${x:-"a"}', "an unusual ${ } expansion"),
    ("echo ${x:-'}'}", "an unusual ${ } expansion"),
    ("echo ${x:y}", "an unusual ${ } expansion"),
    ("echo ${a[$(b)]}", "an unusual ${ } expansion"),
    ("echo ${a[x]}", "an unusual ${ } expansion"),
    ('echo $"hi"', '$"'),
    ("a[0]=1", "a subscript where a program or assignment is expected"),
    ("a[$(b)]=1", "a subscript where a program or assignment is expected"),
    ("a[x y]=1", "a subscript where a program or assignment is expected"),
    ("A=([x]=1)", "a subscript in an array"),
    ("declare -i x", "declare with options that change what an assignment does"),
    ("declare -n x=y", "declare with options that change what an assignment does"),
    ("declare -a x=(1)", "( inside a word or after one"),
    ("export x=(1)", "( inside a word or after one"),
    ("echo a(b)", "( inside a word or after one"),
    ("echo @(a|b)", "( inside a word or after one"),
    ("echo !(a)", "( inside a word or after one"),
    ("ls +(a)", "( inside a word or after one"),
    ("shopt -s extglob", "shopt changes how bash reads what follows"),
    ("shopt -s expand_aliases", "shopt changes how bash reads what follows"),
    ("alias ls=rm", "alias changes how bash reads what follows"),
    ("unalias ls", "unalias changes how bash reads what follows"),
    ("command alias ls=rm", "alias changes how bash reads what follows"),
    ("builtin shopt -s x", "shopt changes how bash reads what follows"),
    ("hash -p /x ls", "hash changes how bash reads what follows"),
    ("enable -n ls", "enable changes how bash reads what follows"),
    ("set -o posix", "set with options that change how bash reads what follows"),
    ("set -k", "set with options that change how bash reads what follows"),
    ("set -- a", "set with options that change how bash reads what follows"),
    ("POSIXLY_CORRECT=1 ls", "a name that changes how bash reads what follows"),
    ("declare BASH_ALIASES[x]=y", "a name that changes how bash reads what follows"),
    ("x=BASH_ALIASES", "a name that changes how bash reads what follows"),
    ("coproc ls", "coproc as the first word of a command"),
    ("function f { a; }", "function as the first word of a command"),
    ("function f() { a; }", "function as the first word of a command"),
    ("select x in a; do b; done", "select as the first word of a command"),
    ("f() a", "a out of place"),
    ("f() if a; then b; fi", "if out of place"),
    ("a b() { c; }", "( inside a word or after one"),
    ("in x", "in as the first word of a command"),
    ("]] x", "]] as the first word of a command"),
    ("time", "time before something other than a plain command"),
    ("time { ls; }", "time before something other than a plain command"),
    ("time (ls)", "( inside a word or after one"),
    ("time ! ls", "time before something other than a plain command"),
    ("time FOO=1 ls", "time before something other than a plain command"),
    ("time if a; then b; fi", "time before something other than a plain command"),
    ("time -p -p ls", "time before something other than a plain command"),
    ("time time ls", "time before something other than a plain command"),
    ("FOO=1 if a", "if as a program"),
    ("FOO=1 [[ a ]]", "[[ as a program"),
    (">x while a", "while as a program"),
    ("[[ a =~ b ]]", "=~ inside [[ ]]"),
    ("[[ a =~ (b|c) ]]", "=~ inside [[ ]]"),
    ("[[ a -eq b ]]", "-eq inside [[ ]]"),
    ("[[ -v x ]]", "-v inside [[ ]]"),
    ("[[ a < b ]]", "a redirection out of place"),
    ("[[ (a) ]]", "( inside a word or after one"),
    ("[[ a", "it ends where more must follow"),
    ("[[ ]]", "[[ ]] without anything in it"),
    ("for ((i=0;i<3;i++)); do a; done", "((, arithmetic or two subshells"),
    ("for i do a; done", "do out of place"),
    ("for i\nin a; do b; done", "a newline where a word is expected"),
    ("for 1 in a; do b; done", "1 out of place"),
    ("for i in a; b; done", "b out of place"),
    ("while a; b; done", "done out of place"),
    ("case x in a b) c;; esac", "b out of place"),
    ("case x in a) b", "it ends inside a compound command or substitution"),
    ("case x a) b;; esac", "a out of place"),
    ("echo $(case x in a) b;; esac)", "case inside a substitution"),
    ("echo $(ls # )\n)", "a comment inside a substitution or an array"),
    ("echo `ls # x`", "backticks with quotes, a backslash or no end"),
    ("echo `echo \\`ls\\``", "backticks with quotes, a backslash or no end"),
    ('echo `echo "a"`', "backticks with quotes, a backslash or no end"),
    ("echo `echo 'a'`", "backticks with quotes, a backslash or no end"),
    ('echo "`echo \\"a\\"`"', "backticks with quotes, a backslash or no end"),
    ("echo $(echo `ls`)", "backticks inside a substitution"),
    ("echo a<(b)", "a process substitution inside a word"),
    ("echo 2<(b)", "a process substitution inside a word"),
    ("ls {fd}>x", "a descriptor in braces"),
    ("ls {a,$(b)}", "an expansion inside braces"),
    ("ls {$x,b}", "an expansion inside braces"),
    ("ls >", "a redirection without a target"),
    ("ls > ;", "a redirection without a target"),
    ("ls > #x", "a redirection without a target"),
    ("ls 2>&1&>x y(", "( inside a word or after one"),
    ("ls <&-c", "<&- with a word attached, which bash reads as two"),
    ("ls >&-c", ">&- with a word attached, which bash reads as two"),
    ("cat <<", "a here-document with an unusual delimiter"),
    ("cat <<EOF", "a here-document without its end"),
    ("cat <<EOF\nhi", "a here-document without its end"),
    ("cat <<EOF\nhi\n EOF", "a here-document without its end"),
    ("cat <<\\EOF\nhi\nEOF", "a here-document with an unusual delimiter"),
    ('cat <<E"O"F\nhi\nEOF', "a here-document with an unusual delimiter"),
    ("cat <<$x\nhi\n$x", "a here-document with an unusual delimiter"),
    ("cat <<EOF\na\\\nEOF\nEOF", "a line continued inside a here-document"),
    ('cat <<EOF "a\nb"\nEOF', "a newline in quotes before a here-document's body"),
    ("cat <<EOF $(a\nb)\nEOF", "a here-document whose body is outside its substitution"),
    ("echo $(cat <<EOF)\nhi\nEOF", "a here-document whose body is outside its substitution"),
    ("echo `cat <<EOF\nhi\nEOF\n`", "a here-document inside backticks or another one"),
    ('echo "$(cat <<EOF\nEOFx\nEOF\n)"', "a here-document with two possible ends"),
    ("cat <<A <<B\na\nA\nb\nB", "tree-sitter finds an error in it"),
    ("if a; then b; fi c", "c out of place"),
    ("(a) b", "b out of place"),
    ("(a)b", "text right after a compound command"),
    ("{ a; } b", "b out of place"),
    ("(a)(b)", "text right after a compound command"),
    ("a (b)", "( inside a word or after one"),
    ("a=(b)c", "text right after an array"),
    ("a=( (b) )", "( inside a word or after one"),
    ("# x \\", "a comment that ends in a backslash"),
    ("! ", "it ends where more must follow"),
    ("!", "it ends where more must follow"),
    ("ls <> x", "tree-sitter finds an error in it"),
    ("HEAD@{1}", "tree-sitter finds an error in it"),
)


def told(word: Word) -> str:
    if word.literal is None:
        kinds = ",".join(sorted(word.dynamic))
        return f"<{kinds.replace(' substitution', '()').removesuffix(' quoting')}>"
    return word.literal.replace(" ", "_") or "''"


def shown(command: Command) -> str:
    return " ".join([f"{command.keyword}:"] * bool(command.keyword) + [told(word) for word in command.words])


@pytest.mark.parametrize(("text", "commands"), KNOWN)
def test_what_is_known_is_known_in_full(text: str, commands: list[str]):
    """Words are as the program will see them, and commands inside substitutions stand in the list as well."""
    script = read(text)
    assert script.unknown is None
    assert [shown(command) for command in script.commands] == commands


@pytest.mark.parametrize(("text", "reason"), UNKNOWN)
def test_what_bash_may_read_otherwise_is_unknown(text: str, reason: str):
    """Neither an error nor a guess: a reason."""
    assert reason in (read(text).unknown or "")


def test_unknown_text_still_tells_what_was_found():
    """Up to the place where the reader gave up, so that a no can name it."""
    script = read("rm -rf x; echo $((y))")
    assert script.unknown
    assert script.offset == 15
    assert shown(script.commands[0]) == "rm -rf x"


@pytest.mark.parametrize(
    ("text", "joints"),
    [
        ("a; b && c || d | e |& f & g\nh", [";", "&&", "||", "|", "|&", "&", "\n", ""]),
        ("a", [""]),
        ("a;", [";"]),
        ("(a; b); c", [";", "", ""]),
        ("a\n\nb", ["\n", ""]),
        ("if a; then b; fi", [";", ";"]),
    ],
)
def test_operators_join_commands(text: str, joints: list[str]):
    """Each command knows what stands after it in its own list."""
    assert [command.joined_by for command in read(text).commands] == joints


@pytest.mark.parametrize(
    ("text", "background"),
    [
        ("a & b", "a"),
        ("a && b & c", "ab"),
        ("a; b & c", "b"),
        ("(a; b) & c", "ab"),
        ("{ a | b; } & c", "ab"),
        ("a $(b) & c", "ab"),
        ("if a; then b; fi & c", "ab"),
        ("a; b; c", ""),
        ("a $(b & c)", "b"),
        ("a `b & c` d", "b"),
    ],
)
def test_background_covers_the_whole_list(text: str, background: str):
    """What an `&` sends away is all of its and-or list, with what is inside."""
    marked = [command.program.literal for command in read(text).commands if command.background and command.program]
    assert marked == list(background)


@pytest.mark.parametrize(
    ("text", "program", "places"),
    [
        ("x", "x", ()),
        ("(x)", "x", (Place.SUBSHELL,)),
        ("{ x; }", "x", (Place.GROUP,)),
        ("a $(x)", "x", (Place.SUBSTITUTION,)),
        ("a `x`", "x", (Place.SUBSTITUTION,)),
        ("a <(x)", "x", (Place.PROCESS,)),
        ("f() { x; }", "x", (Place.FUNCTION,)),
        ("for i in a; do x; done", "x", (Place.LOOP,)),
        ("while x; do a; done", "x", (Place.LOOP,)),
        ("if x; then a; fi", "x", (Place.CONDITION,)),
        ("if a; then x; fi", "x", (Place.CONDITION,)),
        ("case a in b) x;; esac", "x", (Place.CASE,)),
        ("(a $(f; { x; }))", "x", (Place.SUBSHELL, Place.SUBSTITUTION, Place.GROUP)),
        ("cat <<E\n$(x)\nE", "x", (Place.SUBSTITUTION,)),
    ],
)
def test_a_command_knows_where_it_stands(text: str, program: str, places: tuple[Place, ...]):
    """From the outermost construct inwards."""
    found = [command for command in read(text).commands if command.program and command.program.literal == program]
    assert [command.places for command in found] == [places]


@pytest.mark.parametrize(
    ("text", "redirections"),
    [
        ("a > f", [("", ">", "f")]),
        ("a 2>&1 >>f", [("2", ">&", "1"), ("", ">>", "f")]),
        ("a <f >|g", [("", "<", "f"), ("", ">|", "g")]),
        ("a &>f", [("", "&>", "f")]),
        ("a &>>f", [("", "&>>", "f")]),
        ("a <<<f", [("", "<<<", "f")]),
        ("a 3<&-", [("3", "<&", "-")]),
        ("a >'f g'", [("", ">", "f g")]),
        ("a >$f", [("", ">", None)]),
        ("a > >(b)", [("", ">", None)]),
        ("(a) 2>f", [("2", ">", "f")]),
        ("while a; do b; done <f", [("", "<", "f")]),
        ("a <<E\nE", [("", "<<", "E")]),
    ],
)
def test_redirections_are_kept(text: str, redirections: list[tuple[str, str, str | None]]):
    """Operator, descriptor and target; those of a compound command stand in a command of their own."""
    found = [one for command in read(text).commands for one in command.redirections]
    assert [(one.descriptor, one.operator, one.target.literal) for one in found] == redirections


@pytest.mark.parametrize(
    ("text", "quoted", "body"),
    [
        ("a <<E\nhi\nE", False, "hi\n"),
        ("a <<'E'\n$(b)\nE", True, "$(b)\n"),
        ('a <<"E"\n`b`\nE', True, "`b`\n"),
        ("a <<E\n$(b)\nE", False, None),
        ("a <<-E\n\thi\n\tE", False, "\thi\n"),
        ("a <<E\nE", False, ""),
        ("a <<E\n\\$x \\\\ \\a\nE", False, "$x \\ \\a\n"),
    ],
)
def test_heredocs_are_kept(text: str, quoted: bool, body: str | None):
    """A quoted delimiter makes the body literal; otherwise it is read like a word in double quotes."""
    (redirection,) = read(text).commands[0].redirections
    assert redirection.heredoc
    assert (redirection.heredoc.quoted, redirection.heredoc.body.literal) == (quoted, body)
    assert redirection.heredoc.strips_tabs is (redirection.operator == "<<-")


def test_assignments_are_kept():
    """Names, values, arrays and appending, before a program or without one."""
    command = read("A=1 B+='x y' C=$(z) D=(1 2) ls").commands[0]
    found = [(one.name, [told(value) for value in one.values], one.appends, one.array) for one in command.assignments]
    assert found == [
        ("A", ["1"], False, False),
        ("B", ["x_y"], True, False),
        ("C", ["<command()>"], False, False),
        ("D", ["1", "2"], False, True),
    ]
    assert shown(command) == "ls"


def test_parts_of_a_word_are_told_apart():
    """Literal text and what is dynamic, in order, with what double quotes hold together."""
    word = read('x a"b$c"$d*').commands[0].arguments[0]
    assert [(part.text, part.dynamic, part.quoted) for part in word.parts] == [
        ("ab", None, False),
        ("$c", Dynamic.PARAMETER, True),
        ("$d", Dynamic.PARAMETER, False),
        ("*", Dynamic.GLOB, False),
    ]


@pytest.mark.parametrize("text", ["a b; c d", "é è && ü", "x 'é' | y $(ö)", "  a  ;  b  "])
def test_spans_are_in_bytes(text: str):
    """A span cuts the command out of the UTF-8 text."""
    data = text.encode()
    for command in read(text).commands:
        piece = data[command.start : command.end].decode()
        assert piece == piece.strip()
        assert command.program
        assert piece.startswith(command.program.source)
        assert piece.endswith(command.words[-1].source)


@pytest.mark.parametrize(
    ("text", "portable"),
    [
        ("a && b | c", True),
        ("a 'b' \"$c\" `d` $(e) 2>&1", True),
        ("a &> b", False),
        ("a |& b", False),
        ("a <(b)", False),
        ("a <<<b", False),
        ("a $'b'", False),
        ("a {b,c}", False),
        ("[[ a == b ]]", False),
        ("a=(b)", False),
        ("a+=b", False),
        ("echo ${a/b/c}", False),
        ("case a in b) c;& d) e;; esac", False),
    ],
)
def test_what_dash_reads_otherwise_is_marked(text: str, portable: bool):
    """`a &> b` is one command to bash and two to a POSIX shell."""
    assert read(text).portable is portable


@pytest.mark.parametrize("text", ["ls \udcff", "echo '\udc80'", "x\ud800"])
def test_what_is_not_utf8_is_unknown(text: str):
    """Bytes that came through surrogate escapes have no agreed reading."""
    assert read(text).unknown == "not valid UTF-8"


@pytest.mark.parametrize(
    "text", ["Ҟ\U000eec9e{\U000d311c", "\U000eec9e", "a \U0010ffff {\U00060502}", "$\U000eec9e", "é{è,à}"]
)
def test_no_letter_kills_the_process(text: str):
    """tree-sitter-bash 0.25.1 dies of letters past the first 256 in some places; it is never shown any."""
    assert read(text).commands


def test_limits_are_exact():
    """At a limit the text is known, past it unknown, and never an error."""
    assert read("a;" * MAX_COMMANDS).unknown is None
    assert read("a;" * (MAX_COMMANDS + 1)).unknown
    assert read("(" + "a $(" * (MAX_DEPTH - 3) + "b" + ")" * (MAX_DEPTH - 3) + ")").unknown is None
    assert "nested" in (read("(" + "a $(" * MAX_DEPTH + "b" + ")" * MAX_DEPTH + ")").unknown or "")
    assert read("a '" + "x" * (MAX_BYTES - 4) + "'").unknown is None
    assert "longer" in (read("a '" + "x" * MAX_BYTES + "'").unknown or "")


PIECES = (
    "$((",
    "(",
    "{ ",
    "$(",
    '"$(',
    "`",
    "${",
    "((",
    "[[ ",
    "<(",
    "if ",
    "{",
    "a=(",
    "case x in (",
    "'",
    '"',
    "<<a\n",
    "$[",
)
MORE_PIECES = (
    "\\\n",
    "a|",
    "!",
    "for ",
    "a ",
    "a;",
    "x=$(",
    "''",
    "a{b,",
    "\\a",
    'a "b" ',
    "cat <<'E'\n",
    "é",
    "a\n",
    "$x",
    "{ a;",
    "a <<E\nE\n",
    "$x ",
)


@pytest.mark.parametrize("piece", PIECES + MORE_PIECES)
@pytest.mark.parametrize("size", [2**12, MAX_BYTES, 2**20])
def test_no_text_takes_long(piece: str, size: int):
    """1 MB of `$((` and its kind is answered at once; the clock is the processor's, for a machine may be busy."""
    text = piece * (size // len(piece))
    best = min(_seconds(text) for _ in range(3))
    assert best < 0.05


@pytest.mark.parametrize("start", ["for x in ", "a "])
@pytest.mark.parametrize("word", ["a ", "a'b'c ", 'a"b"c ', '"a$b" ', "a~b ", "a \\\n", ">a ", "''", '""a'])
@pytest.mark.parametrize("end", ["$x", "&", ">$x", "'", ""])
def test_no_text_that_nearly_fits_takes_long(start: str, word: str, end: str):
    """A word that can be read in two ways would double the time until what does not fit is found."""
    best = min(_seconds(start + word * 1000 + end) for _ in range(3))
    assert best < 0.05


def _seconds(text: str) -> float:
    began = time.process_time()
    read(text)
    return time.process_time() - began
