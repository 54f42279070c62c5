"""What `provider.engine.owner` promises: the living are never taken for dead."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from provider.engine import owner as owner_module
from provider.engine.owner import is_dead, this_owner


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until its stdin is closed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process


def test_this_process_is_named_by_four_parts():
    """Boot, pid namespace, pid and start time together are never re-used."""
    boot, namespace, pid, start = this_owner().split("/")
    assert len(boot) == 36
    assert namespace.isdecimal()
    assert int(pid) == os.getpid()
    assert int(start) > 0
    assert this_owner() == this_owner()


def test_this_process_is_alive():
    """Nothing of ours is swept by ourselves."""
    assert not is_dead(this_owner())


def test_another_process_is_dead_only_when_it_has_ended(child: subprocess.Popen[bytes]):
    """A provider beside us keeps its containers until it is gone."""
    name = owner_module._owner(child.pid)
    assert name is not None
    assert not is_dead(name)
    child.kill()
    child.wait()
    assert is_dead(name)


def test_a_number_that_was_given_out_again_does_not_revive_its_owner():
    """The same pid with another start time is another process."""
    boot, namespace, pid, start = this_owner().split("/")
    assert is_dead(f"{boot}/{namespace}/{pid}/{int(start) - 1}")


@pytest.mark.parametrize(
    "changed", [("00000000-0000-0000-0000-000000000000", None), (None, "1"), ("unknown", "unknown")]
)
def test_owners_elsewhere_cannot_be_judged(changed: tuple[str | None, str | None]):
    """Of another boot, another machine or another container's processes nothing is known from here."""
    boot, namespace, _, _ = this_owner().split("/")
    assert not is_dead(f"{changed[0] or boot}/{changed[1] or namespace}/999999999/1")


@pytest.mark.parametrize("name", ["", "x", "a/b/c", "a/b/c/d/e", "{boot}/{namespace}/x/1", "{boot}/{namespace}//1"])
def test_labels_that_are_not_ours_are_left_alone(name: str):
    """A label that somebody else wrote names nobody that we could call dead."""
    boot, namespace, _, _ = this_owner().split("/")
    assert not is_dead(name.format(boot=boot, namespace=namespace))


def test_a_name_with_parentheses_does_not_confuse_the_start_time(child: subprocess.Popen[bytes]):
    """A process may call itself anything; its start time is found all the same."""
    with subprocess.Popen(
        ["sh", "-c", "printf ') R 1 (x)' > /proc/$$/comm; echo; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        name = owner_module._owner(process.pid)
        assert name is not None
        assert abs(int(name.split("/")[3]) - int(owner_module._owner(child.pid).split("/")[3])) < 6000
        assert not is_dead(name)
