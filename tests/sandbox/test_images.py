"""What is in the images, seen from inside a sandbox."""

import json
import subprocess
import sys

import pytest

from provider import run_sync

pytestmark = pytest.mark.docker
DEFAULT = "sandbox-provider/default"
MINIMAL = "sandbox-provider/minimal"
TOOLS = (
    "bash cat git python3 python pip3 pytest node npm gcc make gdb strace curl jq rg patch sqlite3 "
    "zip unzip bzip2 xz ps"
)


def test_the_default_image_has_what_an_agent_expects(workspace):
    """Every promised program is there and says its version."""
    said = run_sync(f"for t in {TOOLS}; do command -v $t >/dev/null || echo missing $t; done", workspace, image=DEFAULT)
    assert said.stdout == b""
    script = "python3 -m venv v && v/bin/python -c 'import ssl, sqlite3; print(1)' && ls /etc/ssl/certs/*.crt >&2"
    outcome = run_sync(script, workspace, image=DEFAULT, timeout=60)
    assert (outcome.exit_code, outcome.stdout) == (0, b"1\n")


def test_the_default_image_builds_commits_and_tests(workspace):
    """A compiler, git, node and Python do an agent's daily work under the default plan."""
    (workspace / "a.c").write_text('#include <stdio.h>\nint main(void) { puts("compiled"); }\n')
    script = """set -e
    gcc -o a a.c && ./a
    git init -q . && git -c user.name=a -c user.email=a@b.c add a.c
    git -c user.name=a -c user.email=a@b.c commit -qm one && git log --format=%s
    node -e 'console.log(require("child_process").execSync("echo node").toString().trim())'
    python3 -c 'import multiprocessing as m; print(sum(m.Pool(2).map(abs, [-1, -2])))'
    """
    outcome = run_sync(["bash", "-c", script], workspace, image=DEFAULT, timeout=60)
    assert outcome.stdout.decode().split() == ["compiled", "one", "node", "3"], outcome.stderr


@pytest.mark.parametrize("image", [DEFAULT, MINIMAL])
def test_no_image_has_set_id_programs_or_a_root_password(workspace, image):
    """No file gives rights to whoever runs it, and nobody logs in as root."""
    script = "find / -xdev -type f -perm -4000 -o -xdev -type f -perm -2000; cut -d: -f1,2 /etc/shadow | grep ^root"
    outcome = run_sync(script, workspace, image=image, user="0:0", timeout=60)
    assert outcome.stdout == b"root:*\n"


def test_the_locale_is_utf_8(workspace):
    """Text beyond ASCII is text."""
    outcome = run_sync(["python3", "-c", "print('ü'); open('ß', 'w')"], workspace, image=DEFAULT)
    assert outcome.stdout.decode() == "ü\n"
    assert (workspace / "ß").exists()


def test_doctor_proves_every_protection():
    """On a sound engine every probe passes, and the facts are told."""
    result = subprocess.run([sys.executable, "-m", "provider", "doctor", "--json"], capture_output=True, check=False)
    findings = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert {name: finding for name, finding in findings.items() if finding["verdict"] == "fail"} == {}
    assert result.returncode == 0
    assert {"engine", "runtimes", "kernel", "cgroups", "storage", "security modules"} <= set(findings)
    proved = {"uid mapping", "network none", "seccomp", "pids limit", "memory limit", "deadline", "attestation"}
    assert {name for name, finding in findings.items() if finding["verdict"] == "pass"} >= proved
