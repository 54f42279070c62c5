"""What counts as substitution, in texts that can be read and in those that cannot."""

from __future__ import annotations

import time

import pytest

from provider.dialects.run_shell_command.lists import Lists, judge
from provider.dialects.run_shell_command.substitution import find, with_quoted_delimiters
from provider.model import Decision
from provider.policy.rules import segments


def found(text: str):
    return find(text, segments(text))


@pytest.mark.parametrize(
    "text",
    [
        "x=$(id)",
        "a[0]=$(id)",
        "echo x > $(id)",
        "cat <<EOF\n$(id)\nEOF",
        "cat <<EOF\n$()\nEOF",
        "cat <<EOF\n'\n`id`\n'\nEOF",
        "for i in $(seq 3); do echo $i; done",
        "case $(id) in a) ls;; esac",
        "[[ $(id) == x ]]",
        "bash -c 'echo $(id)'",
        "eval 'echo `id`'",
        "sudo sh -c 'ls $(id)'",
        "echo ${x:-$(id)}",
        'echo "${x:-`id`}"',
        "echo $((1 + $(id)))",
        "echo $( (id) )",
        "echo $((id) )",
        "((i++)); echo $(id)",
        "echo $(",
        "echo `",
        "x=y; echo ${x@P}",
        "echo '\\'$(id)",
    ],
)
def test_what_a_shell_would_run_is_refused(text):
    """In words, assignments, redirections, here-documents, headers, inner scripts, and in what cannot be read."""
    assert found(text).live
    assert judge(text, Lists()).verdict.decision is Decision.REFUSE


@pytest.mark.parametrize(
    "text",
    [
        "awk '{print $(NF-1)}' f",
        "echo $((1+2)) $(( (3 + 4) * 2 ))",
        "echo $((x + 1))",
        "((i++))",
        "for ((i=0; i<3; i++)); do echo $i; done",
        "python3 - <<'EOF'\nprint(`1`, '$(x)')\nEOF",
        "cat <<-\\EOF\n\t$(x)\n\tEOF\n",
        "cat <<\\A\n$(x)\nA\ncat <<\\B\n`y`\nB\n",
        "git commit -m 'use `x` and $(y)'",
        "echo \\$\\(id\\)",
        'echo "a <(b) >(c)"',
        "node -e 'console.log(`a`)'",
    ],
)
def test_what_no_shell_would_run_is_let_be(text):
    """Arithmetic, single quotes, escapes, quoted here-documents and other languages."""
    assert found(with_quoted_delimiters(text)).live == ()
    assert judge(text, Lists()).verdict.decision is Decision.ALLOW


@pytest.mark.parametrize(
    "text",
    [
        "x='$(id)'; ((i++))",
        "x='a[$(id)]'; echo $((x))",
        "bash <<'EOF'\necho $(id)\nEOF",
        "x='$(id)'; eval \"echo $x\"",
        "eval $'echo \\x24(id)' \"$x\"",
        "((i++)); cat <<'EOF'\n$(id)\nEOF",
    ],
)
def test_what_may_wake_up_is_asked_about(text):
    """Quoted text that something reads once more, or that stands in a text which cannot be read, is not let through."""
    verdict = judge(text, Lists()).verdict
    assert verdict.decision is Decision.ASK
    assert any("may hide a command substitution" in reason for reason in verdict.reasons)


def test_an_unread_text_is_allowed_with_a_word_in_the_receipt():
    """Without lists there is nothing that it could evade; but that it was not read is said."""
    verdict = judge("((i++))", Lists()).verdict
    assert verdict.decision is Decision.ALLOW
    assert "could not be read" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cat <<\\EOF\n$(x)\nEOF", "cat <<'EOF'\n$(x)\nEOF"),
        ("cat <<- \\EOF\nEOF", "cat <<- 'EOF'\nEOF"),
        ("echo '<<\\EOF'", "echo '<<\\EOF'"),
        ("# <<\\EOF\nls", "# <<\\EOF\nls"),
        ("echo é <<\\EOF\nEOF", "echo é <<'EOF'\nEOF"),
        ("echo $((1<<\\EOF))", "echo $((1<<\\EOF))"),
        ("echo \udcff", "echo \udcff"),
    ],
)
def test_escaped_delimiters(text, wanted):
    """Only where the reader itself says that a here-document's delimiter stands."""
    assert with_quoted_delimiters(text) == wanted


@pytest.mark.parametrize("piece", ["$((", "$(", "`", "<<\\E\n", "'\"", "((", "${x@", "\\"])
def test_a_hostile_text_is_judged_quickly(piece):
    """A hundred thousand of anything costs a fraction of a second."""
    text = "echo " + piece * (100_000 // len(piece))
    began = time.perf_counter()
    judge(text, Lists())
    assert time.perf_counter() - began < 1.0
