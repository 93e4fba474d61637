"""`longmatch index --on ray`: what is refused in one line, before any work."""

from pathlib import Path

import pytest

from tests.tools.command import Run
from tests.tools.process_fixtures import free_port


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "a", "text": "Rivers carry stones."}\n')
    return path


@pytest.mark.parametrize(
    ("option", "value"),
    [("--ray-address", "auto"), ("--actors", 2)],
)
def test_options_of_ray_need_it(longmatch: Run, corpus: Path, option: str, value: object) -> None:
    answer = longmatch("index", corpus, option, value)
    assert (answer.status, answer.err) == (2, f"error: {option}: is for --on ray\n")


def test_the_extra_is_named_where_ray_is_not_installed(
    longmatch: Run, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.optional_dependencies.find_spec", lambda name: None)
    answer = longmatch("index", corpus, "--on", "ray")
    assert answer.status == 2
    assert "encoding on Ray needs the extra 'ray': pip install 'longmatch[ray]'" in answer.err


def test_an_address_where_nothing_listens_is_refused(
    longmatch: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    given = longmatch("index", corpus, "--on", "ray", "--ray-address", address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    for answer in (given, longmatch("index", corpus, "--on", "ray")):
        assert answer.status == 2
        assert answer.err == f"error: Ray at {address}: cannot be reached: Connection refused\n"
    assert not (tmp_path / "data").exists()
