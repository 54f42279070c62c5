"""How many processors a command finds: as many as its limit is worth, whatever the machine has."""

import asyncio
import os

import pytest

from provider import Limits, Provider

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one processor is all there is"),
]
DEFAULT = "sandbox-provider/default"
HERE = os.cpu_count()
ASK = """
nproc
python3 -c 'import os; print(len(os.sched_getaffinity(0)), getattr(os, "process_cpu_count", lambda: "")())'
node -p 'os.availableParallelism()'
"""
AFFINITY = "grep Cpus_allowed_list: /proc/self/status"


@pytest.mark.parametrize(("cpus", "found"), [(None, 1), (0.5, 1), (1, 1), (HERE, HERE)])
async def test_programs_count_as_many_processors_as_the_limit_is_worth(workspace, cpus, found):
    """`nproc`, Python and Node agree with the limit, rounded up; by default that is one."""
    limits = Limits() if cpus is None else Limits(cpus=cpus)
    async with Provider(workspace, image=DEFAULT, limits=limits) as provider:
        outcome = await provider.run(ASK, timeout=60)
    assert {int(word) for word in outcome.stdout.split()} == {found}, outcome


async def test_under_gvisor_as_well(workspace, gvisor):
    """Its kernel keeps an affinity of its own, and that is narrowed too."""
    async with Provider(workspace, image=DEFAULT, runtime=gvisor) as provider:
        outcome = await provider.run(ASK, timeout=60)
    assert {int(word) for word in outcome.stdout.split()} == {1}, outcome


async def test_commands_at_the_same_time_are_on_different_processors(provider):
    """What one has, no later one is offered as long as there are others; what a lease keeps has one too."""
    leased = await provider.run(f"{AFFINITY}; sleep 300 &", background="keep", session="s")
    async with asyncio.timeout(30):
        others = [await provider.run(AFFINITY) for _ in range(3)]
    assert leased.lease
    assert leased.stdout not in {other.stdout for other in others}
    await provider.stop(session="s")


async def test_a_recycled_sandbox_is_clean_though_its_command_was_narrowed(provider):
    """Pid 1 stays on all processors, so the next command gets the same container, and one processor again."""
    outcomes = [await provider.run("nproc", reuse="scrub", session="s") for _ in range(4)]
    assert [(outcome.container.served, outcome.stdout) for outcome in outcomes] == [(n, b"1\n") for n in range(4)]
