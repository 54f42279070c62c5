"""`sandbox mk8`: what people do with sandboxes and jobs, without an engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from provider.dialects.mk8.call import Call
from provider.dialects.mk8.jobs import JobStore
from provider.dialects.mk8.kinds import DANGEROUS_SHELL, Shell
from provider.dialects.mk8.status import Status
from provider.mk8_cli import app

NOBODY = "6d6b3800-0000-4000-8000-0000000000aa"


class Machine:
    def __init__(self, folder: Path) -> None:
        self.registry = folder / "registry"
        self.root = folder / "root"
        self.config = folder / "config.toml"
        self.config.write_text(f'[tools.mk8]\nhome = "{self.registry}"\n')

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--config", str(self.config)])

    def said(self, *arguments: str) -> list[dict[str, object]]:
        done = self.run(*arguments)
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    def refusal(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert (done.exit_code, done.stdout) == (1, "")
        return done.stderr


@pytest.fixture
def machine(tmp_path: Path, home: Path, installed: None) -> Machine:
    return Machine(tmp_path)


def test_a_sandbox_from_registering_to_forgetting(machine: Machine):
    """Each command does its part, and says which resource a sandbox is."""
    (made,) = machine.said("register", "Web", str(machine.root), "-e", "A=1", "-e", "B=x=y")
    assert (made["id"], made["root"]) == ("Web", str(machine.root))
    assert machine.said("list") == [made]
    (got,) = machine.said("get", "web")
    assert got == {**made, "env": {"A": "1", "B": "x=y", "MK8_SANDBOX_ID": "Web"}}
    machine.said("update", "web", "-e", "A=2")
    (got,) = machine.said("get", "WEB")
    assert got["env"] == {"A": "2", "MK8_SANDBOX_ID": "Web"}
    path = Path(machine.run("env", "web").stdout.strip())
    path.write_text(path.read_text().replace("A=2", "A=3"))
    machine.said("resign", "web")
    (got,) = machine.said("get", "web")
    assert got["env"] == {"A": "3", "MK8_SANDBOX_ID": "Web"}
    machine.said("unregister", "web", "--delete-files")
    assert (machine.said("list"), machine.root.exists()) == ([], False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("get", "nobody"), "mk8.shell sandbox 'nobody' is not registered"),
        (("register", "a/b", "x"), "is no sandbox id"),
        (("register", "a", "x", "-e", "novalue"), "-e novalue: must be NAME=value"),
        (("env", "nobody"), "mk8.shell sandbox 'nobody' is not registered"),
        (("job", "nobody"), "there is no job 'nobody'"),
        (("approve", "nobody"), "there is no job 'nobody'"),
        (("cancel", "nobody"), "there is no job 'nobody'"),
    ],
)
def test_a_mistake_is_one_line_and_status_1(machine: Machine, arguments: tuple[str, ...], says: str):
    """Without a traceback, and nothing on stdout."""
    said = machine.refusal(*arguments)
    assert says in said
    assert said.startswith("sandbox: ")
    assert said.count("\n") == 1


def test_settings_that_do_not_fit_are_named(machine: Machine):
    """The key, as everywhere."""
    machine.config.write_text('[tools.mk8]\nhome = "relative"\n')
    assert "[tools.mk8] home: " in machine.refusal("list")


def test_jobs_can_be_looked_at_and_cancelled_without_an_engine(machine: Machine):
    """The newest first, all or those that wait; one with its log; and the line that the model would get."""
    call = Call(id="1", action=DANGEROUS_SHELL, resource=NOBODY, command="true", shell=Shell.BASH)
    with JobStore(machine.registry / "jobs.sqlite") as store:
        jobs = [store.create(call, channel="c", agent="a") for _ in range(2)]
        store.move(jobs[0].id, Status.QUEUED, Status.AWAITING_APPROVAL, message="wait")
        store.move(jobs[1].id, Status.QUEUED, Status.DENIED, message="no", error="no")
    listed = machine.run("jobs").stdout.splitlines()
    assert [line.split()[:3] for line in listed] == [
        [jobs[1].id, "Denied", DANGEROUS_SHELL],
        [jobs[0].id, "AwaitingApproval", DANGEROUS_SHELL],
    ]
    assert machine.run("jobs", "--waiting").stdout.splitlines() == [listed[1]]
    assert json.loads(machine.run("job", jobs[1].id).stdout)["errorLog"] == "no"
    assert machine.run("job", jobs[1].id, "--result").stdout == "[TOOL_RESULT:1] status=Denied error=no\n"
    assert json.loads(machine.run("cancel", jobs[0].id).stdout)["status"] == Status.CANCELLED
    assert machine.run("jobs", "--waiting").stdout == ""
    assert sorted(path.name for path in machine.registry.glob("jobs*")) == ["jobs.sqlite"]
