"""Runs one command in a sandbox and shows what it saw from inside, and what came back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SANDBOX = Path(__file__).resolve().parent.parent / ".venv/bin/sandbox"
COMMAND = r"""
show() { printf '%-20s%s\n' "$1" "$2"; }
show 'uid:gid' "$(id -u):$(id -g)"
show 'network interfaces' "$(sed -n 's/^ *\(.*\):.*/\1/p' /proc/net/dev | xargs)"
for field in Seccomp NoNewPrivs CapEff CapBnd; do
    show "$field" "$(awk -v name="$field:" '$1 == name { print $2 }' /proc/self/status)"
done
show 'touch /file' "$(touch /file 2>&1)"
echo 'made in a sandbox' >report.txt
"""
USER = 1000  # where this runs as root: the workspace's owner is who the command runs as


def main() -> int:
    with tempfile.TemporaryDirectory() as workspace:
        if os.geteuid() == 0:
            os.chown(workspace, USER, USER)
        print(f"$ sandbox run -w {workspace} --artifact report.txt -c '...'\n\nfrom inside", flush=True)
        command = [str(SANDBOX), "run", "--json", "-w", workspace, "--artifact", "report.txt", "-c", COMMAND]
        reply = subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout
    outcome = json.loads(reply)
    if "provider_error" in outcome:
        print(f"error: {outcome['provider_error']['message']}", file=sys.stderr)
        return 1
    for line in (outcome["stdout"] + outcome["stderr"]).splitlines():
        print(f"    {line}")
    container = outcome["container"]
    print(f"\noutcome\n    {outcome['status']}, exit code {outcome['exit_code']}, {outcome['duration_ms']:.0f} ms")
    print(f"    image {container['image']}, network {container['network']}")
    for artifact in outcome["artifacts"]:
        print(f"    {artifact['path']}: {artifact['bytes']} bytes, sha256 {artifact['sha256']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
