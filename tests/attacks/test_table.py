"""What the table promises about itself, and that its judges can be trusted. No engine is needed for any of it."""

from __future__ import annotations

import ast
import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from attacks.canaries import Canaries
from attacks.case import HERE, Attack, Seen
from attacks.names import OWNER
from attacks.range import Range, attempt
from attacks.report import markdown
from attacks.table import ATTACKS, CVES, ELSEWHERE, NOT_TRIED, NUMBERS, PROVED, TRICKS

from provider import Provider, Settings
from provider.events import OutputArrived, StateChanged
from provider.model import State
from provider.testing import FakeEngine

IDS = [attack.id for attack in (*ATTACKS, *TRICKS)]
ROOT = HERE.parent.parent


def number(name: str) -> str:
    return re.sub(r"(?<=\d)[a-z]$", "", name) if re.match(r"[A-J]\d", name) else name


def test_every_number_is_tried_or_says_why_not() -> None:
    """No attack of the list is left out in silence, and none is both tried and not."""
    tried = {number(name) for name in (*IDS, *ELSEWHERE, *PROVED)} & NUMBERS
    assert tried | NOT_TRIED.keys() == NUMBERS
    assert tried & NOT_TRIED.keys() == set()


def test_every_id_is_there_once_and_every_promise_is_a_sentence() -> None:
    """An id names one attack, and its title can be read by itself."""
    assert sorted(IDS) == sorted(set(IDS))
    assert set(IDS) & ELSEWHERE.keys() == set(IDS) & PROVED.keys() == ELSEWHERE.keys() & PROVED.keys() == set()
    titles = [attack.title for attack in (*ATTACKS, *TRICKS)]
    titles += [title for title, _ in (*ELSEWHERE.values(), *PROVED.values())]
    assert [title for title in titles if not re.fullmatch(r"[A-Z/].*\.", title)] == []
    assert [name for name in IDS if number(name) not in NUMBERS | CVES.keys()] == []


def test_what_is_tried_elsewhere_is_tried_there() -> None:
    """Each file that the table names has a test that carries the id."""
    marks = {path.name: path.read_text() for path in HERE.glob("test_*.py")}
    for name, (_, file) in ELSEWHERE.items():
        carried = re.findall(r"mark\.attack\(([^)]*)\)", marks[file])
        # Where the mark is made of a table's key, the key stands in the file.
        assert any(f'"{name}"' in ids or (ids == "number" and f'"{name}":' in marks[file]) for ids in carried), name


def test_what_is_proved_by_another_suite_is_proved_there() -> None:
    """Each test that the table names is there, and says what it promises."""
    for name, (_, proof) in PROVED.items():
        file, _, test = proof.partition("::")
        module = ast.parse((ROOT / file).read_text())
        found = [node for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        (function,) = (node for node in found if node.name == test)
        assert ast.get_docstring(function), name


def test_attach_comes_first() -> None:
    """Attaching to a container that has ended gives no end: the engine attaches between making and starting one."""
    module = ast.parse((ROOT / "provider" / "engine" / "docker.py").read_text())
    opens = next(node for node in ast.walk(module) if isinstance(node, ast.AsyncFunctionDef) and node.name == "open")
    source = ast.unparse(opens)
    places = [source.index(step) for step in ("_create(", "attach(", "_start(", "_attest(")]
    assert places == sorted(places)


def test_every_published_attack_is_tried_or_says_why_not() -> None:
    """Each leads to attacks of the table, or has its reason."""
    known = {*IDS, *ELSEWHERE, *PROVED}
    assert {name: ids for name, ids in CVES.items() if not isinstance(ids, str) and not set(ids) <= known} == {}
    assert [attack.id for attack in ATTACKS if attack.group == "CVE" and attack.id not in CVES] == []
    assert all(reason.strip() for reason in (*NOT_TRIED.values(), *(v for v in CVES.values() if isinstance(v, str))))


def test_no_input_knows_the_engine() -> None:
    """A case asks for an image by what it has, and the cases import nothing of any engine."""
    source = "".join(path.read_text() for path in (HERE / "cases").glob("*.py")) + (HERE / "case.py").read_text()
    assert not re.search(r"(?m)^\s*(import docker|from docker|from provider\.engine)", source)


# The judges.


@pytest.fixture
def canaries(tmp_path: Path) -> Iterator[Canaries]:
    with Canaries(tmp_path, gateway=None, owner=OWNER) as planted:
        yield planted


def all_of(attack: Attack, seen: Seen) -> None:
    for judge in attack.judge:
        judge(seen)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
async def test_silence_is_never_called_contained(
    attack: Attack, canaries: Canaries, tmp_path: Path, installed: None
) -> None:
    """A provider that says nothing and reports success passes no judge: each needs evidence of the attempt."""
    (tmp_path / "range").mkdir()
    engine = FakeEngine()
    async with Provider(tmp_path / "range", engine=engine, settings=Settings(spares=0)) as mute:
        place = Range(
            provider=mute,
            neighbour=mute,
            canaries=canaries,
            watched=(),
            compiled=lambda source: source,
            folder=tmp_path / "range",
        )
        seen = await attempt(place, replace(attack, beside=False), attack.users[0])
    if not engine.sandboxes:
        assert seen.error is not None  # it was refused before there was a sandbox, which is evidence
        return
    with pytest.raises((AssertionError, KeyError, ValueError)):
        all_of(attack, seen)


@pytest.mark.parametrize(
    "form",
    [
        lambda token: token,
        lambda token: token[::-1],
        lambda token: token.hex().encode(),
        lambda token: token.hex().upper().encode(),
        base64.b64encode,
        lambda token: base64.b64encode(b"x" + token),
        lambda token: base64.b64encode(b"xy" + token),
        lambda token: token.decode().encode("utf-16-le"),
        lambda token: token.upper(),
    ],
)
async def test_a_canary_is_found_in_any_dress(canaries: Canaries, form: object) -> None:
    """Backwards, in hexadecimal, in base64, as UTF-16, and cut in two by the pieces in which output comes."""
    told = form(canaries.token("secret").encode())
    assert canaries.in_bytes(b"before" + told + b"after")
    watch = canaries.listener()
    for piece in (b"before " + told[:7], told[7:20], told[20:] + b" after"):
        await watch(OutputArrived(stream="stdout", data=piece))
    assert watch.found


async def test_what_is_no_canary_is_not_found(canaries: Canaries) -> None:
    """Nothing is reported of output and events that hold none."""
    watch = canaries.listener()
    await watch(OutputArrived(stream="stdout", data=base64.b64encode(bytes(range(256))) * 50))
    await watch(StateChanged(run_id="x", session="", state=State.RUNNING))
    assert watch.found == []
    assert canaries.touched() == []
    assert canaries.calls == []


def test_a_touched_canary_is_noticed(canaries: Canaries) -> None:
    """A changed byte, mode or name beside the workspace is noticed, though it is put back."""
    secret = canaries.beside / "secret"
    content = secret.read_bytes()
    secret.write_bytes(content)
    assert canaries.touched() == ["beside the workspace"]
    assert canaries.touched() == []


def test_a_call_is_noticed(canaries: Canaries) -> None:
    """Whoever connects, or only sends a datagram, is noted."""
    import socket
    import time

    address, port = canaries.places["LOOPBACK"].split()
    with socket.create_connection((address, int(port)), timeout=5) as caller:
        assert canaries.in_bytes(caller.recv(100))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        caller.sendto(b"x", (address, int(port)))
    until = time.monotonic() + 5
    while len(canaries.calls) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert sorted(canaries.calls) == ["loopback", "loopback by UDP"]


def test_the_report_has_a_line_for_everything() -> None:
    """What was tried, what was not and why, and the result on each runtime."""
    results = {name: {"runc": "contained"} for name in IDS} | {"A18": {"any": "contained"}, "A1": {"runc": "failed"}}
    record = {"when": "2026-01-02", "kernel": "6.1", "machine": "x86_64", "engine": "20.10"}
    record |= {"runtimes": {"runc": "1.1"}, "results": results}
    text = markdown([record])
    for name in (*IDS, *ELSEWHERE, *PROVED, *NOT_TRIED):
        assert re.search(rf"(?m)^\| {re.escape(name)} \|", text), name
    assert re.search(r"(?m)^\| A1 \|.*\| \*\*failed\*\* \|$", text)
    assert re.search(r"(?m)^\| A18 \|.*\| contained \|$", text)
    assert re.search(r"(?m)^\| A19 \|.*\| not run \|$", text)
