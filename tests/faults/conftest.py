"""What is made to fail, and who sees that nothing is left."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from faults.engine import MINIMAL, NoEngine, SecondEngine
from faults.steps import SteppedEngine

from provider import Provider, Settings


@pytest.fixture(scope="session")
def second_engine(unavailable: Callable[[str], NoReturn]) -> Iterator[SecondEngine]:
    """A dockerd of the tests' own, started once, whatever becomes of it in between."""
    engine = SecondEngine()
    try:
        try:
            engine.set_up()
        except NoEngine as error:
            unavailable(str(error))
        yield engine
    finally:
        engine.tear_down()


@pytest.fixture
def engine(second_engine: SecondEngine) -> Iterator[SecondEngine]:
    """Sound before each test; after it, when it is sound again, it holds nothing."""
    second_engine.heal()
    yield second_engine
    second_engine.heal()
    left = second_engine.left_after(5)
    if left:
        second_engine.clear()  # one test's leftovers are not another's
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the SDK forgets to close its socket where nobody listens
        gc.collect()
    assert left == []


@pytest.fixture
def complaints() -> Iterator[Callable[[], None]]:
    """Whatever fails, nothing fails unheard: no task ends with an error that nobody takes."""
    heard: list[Any] = []

    def listen() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))

    yield listen
    assert heard == []


@pytest.fixture
def provider_on(
    engine: SecondEngine, workspace: Path, complaints: Callable[[], None]
) -> Callable[..., tuple[Provider, SteppedEngine]]:
    """A provider over the second engine, whose steps can be listened to. Whoever makes one closes it."""

    def make(**settings: Any) -> tuple[Provider, SteppedEngine]:
        complaints()
        stepped = SteppedEngine(engine.endpoint)
        chosen = Settings(**{"spares": 0, "grace": 0.1, **settings})
        return Provider(workspace, image=MINIMAL, settings=chosen, engine=stepped), stepped

    return make


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Figures of the long forms, for whoever runs them."""

    def tell(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n    {text}\n")

    return tell
