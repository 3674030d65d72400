"""The page on explanations in a service: its recipes run."""

import asyncio
import json
import re
import threading
import time
from pathlib import Path

import pytest

import axil

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")


def test_the_recipe_gives_rows_and_novelty_after_a_round_trip_through_mlflow(capsys):
    pytest.importorskip("mlflow")
    names = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.S).group(1), names)
    answer, new = names["answer"], names["new"]
    assert answer["prediction"].tolist() == names["model"].predict(new.head(2)).tolist()
    top = names["explained"].explainer.top(new.head(2), k=5)
    for label, made_by in answer["made_by"].items():
        own = top[top["query"] == label]
        assert {int(row): w for row, w in json.loads(made_by).items()} == pytest.approx(
            dict(zip(own["row"], own["weight"])), abs=1e-4
        )
    assert (names["moved"]["novelty"] > 0.95).all()
    assert (answer["novelty"] < 0.95).all()


def blocks_of(section):
    """Return the Python of a section of the page."""
    _, text = PAGE.split(f"## {section}\n", 1)
    return re.findall(r"```python\n(.*?)```", text.split("\n## ", 1)[0], re.S)


@pytest.fixture(scope="module")
def service():
    """Return the names of the recipe for asyncio."""
    names = {}
    exec(blocks_of("Processes, threads and requests that end early")[0], names)
    return names


def test_the_recipe_for_asyncio_explains(service):
    expected = service["explainer"].top(service["X"][:1], k=3)
    assert service["rows"].equals(expected)


def test_a_cancelled_task_ends_its_computation(service):
    has_ended = threading.Event()

    def work():
        try:
            while True:
                service["explainer"].top(service["X"], k=3)
        except axil.CancellationError:
            has_ended.set()
            raise

    async def cancelled():
        task = asyncio.create_task(service["explained"](work))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    start = time.perf_counter()
    asyncio.run(cancelled())
    assert has_ended.wait(timeout=60)
    assert time.perf_counter() - start < 60


def test_the_recipe_for_fastapi_answers_and_gives_up(service):
    try:
        from fastapi.testclient import TestClient
    except (ImportError, RuntimeError) as error:  # starlette raises either without a client
        pytest.skip(str(error))
    names = dict(service)
    exec(blocks_of("Processes, threads and requests that end early")[1], names)
    http = TestClient(names["app"])
    answer = http.get("/top/0?k=3").json()
    expected = service["explainer"].top(service["X"][:1], k=3)
    assert [line["row"] for line in answer] == expected["row"].tolist()
    assert http.get("/top/0?seconds=0").status_code == 503
