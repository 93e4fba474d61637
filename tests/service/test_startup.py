"""Opening and closing the engine."""

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from encoder.errors import CheckpointError
from service.encode import RequestText
from service.engine import unready_because
from service.errors import SettingsError, ShuttingDownError
from service.match.logic import match
from service.match.schemas import MatchRequest
from service.settings import Settings
from service.startup import open_engine, search_threads

MakeSettings = Callable[..., Settings]


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (4, 2), (64, 4)])
def test_searches_leave_cores_to_the_event_loop(cores: int, threads: int) -> None:
    assert search_threads(cores) == threads


def test_an_engine_is_ready_until_it_is_closed(make_settings: MakeSettings) -> None:
    engine = open_engine(make_settings())
    assert unready_because(engine) is None
    running = {"checkpoint": "tiny", "precision": "fp32", "provider": "CPUExecutionProvider"}
    (sample,) = engine.metrics.build_info.collect()[0].samples
    assert running.items() <= sample.labels.items()
    engine.opened.close()
    assert unready_because(engine)
    with pytest.raises(ShuttingDownError):
        asyncio.run(
            match(
                engine.default,
                [RequestText("#/text", "too late")],
                MatchRequest.model_construct(top_k=1),
            )
        )


def test_the_queue_must_hold_the_longest_document(make_settings: MakeSettings) -> None:
    with pytest.raises(SettingsError, match=r"1023.*1024 tokens"):
        open_engine(make_settings(max_queue_tokens=1023))
    open_engine(make_settings(max_queue_tokens=1024)).opened.close()


def test_a_failure_half_way_lets_go_of_what_was_opened(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError

    before = threading.active_count()
    with monkeypatch.context() as patched:
        patched.setattr("service.startup.open_rerank_pool", broken)
        with pytest.raises(MemoryError):
            open_engine(make_settings())
    assert threading.active_count() == before
    open_engine(make_settings()).opened.close()


@pytest.mark.parametrize("name", ["config.json", "fp32/block_encoder.onnx"])
def test_a_damaged_checkpoint_is_refused_by_file_name(
    make_settings: MakeSettings, tiny_checkpoint: Path, tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, copy)
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=Path(name).name):
        open_engine(make_settings(encoder=copy))
    assert not (tmp_path / "data").exists()
