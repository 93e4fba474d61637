"""`import longmatch` without a server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import longmatch
import pytest
from longmatch import Document, Stored

from index.directory.data_directory import KEY_FILE
from service.keys import change_keys
from tests.kit.command import Run
from tests.kit.process_fixtures import serving
from tests.kit.service_fixtures import TEXTS as ALL

TEXTS = {name: text for name, text in ALL.items() if name.isalpha()}


@pytest.fixture
def library(tiny_checkpoint: Path, tmp_path: Path) -> Iterator[longmatch.Library]:
    with longmatch.open(tmp_path / "data", encoder=str(tiny_checkpoint), threads=1) as opened:
        yield opened


def test_documents_are_added_found_compared_and_deleted(
    library: longmatch.Library, tmp_path: Path
) -> None:
    library.index(Document(name, text, name.title()) for name, text in TEXTS.items())
    assert len(library) == len(TEXTS)
    found = library.match(TEXTS["bees"], top_k=2)
    assert found.matches[0].id == "bees"
    assert found.matches[0].explanation is not None
    assert library.match(id="bees", top_k=1).matches[0].id == "ants"
    page = found._repr_html_()
    assert "Bees" in page
    assert "not calibrated: fewer than 100 documents" in page
    compared = library.compare(Stored("bees"), found.matches[1])
    assert compared.differences is not None
    assert compared.relation in compared._repr_html_()
    assert compared._repr_html_().count("<polygon") == len(compared.passages)
    stored = library.get("bees")
    assert stored is not None
    assert stored.text == TEXTS["bees"]
    library.delete(["bees", "nobody"])
    assert library.get("bees") is None
    assert "bees" not in [match.id for match in library.match(TEXTS["bees"]).matches]
    with pytest.raises(ValueError, match="a text or the id"):
        library.match()


def test_a_folder_is_added_and_pruned(library: longmatch.Library, tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / f"{name}.txt").write_text(f"{name.title()}\n\n{text}")
    first = library.index(folder)
    assert (first.encoded, first.unchanged) == (len(TEXTS), 0)  # type: ignore[union-attr]
    assert library.match(TEXTS["bees"]).matches[0].title == "Bees"
    (folder / "bees.txt").unlink()
    again = library.index(folder, prune=True)
    assert (again.unchanged, again.gone) == (len(TEXTS) - 1, 1)  # type: ignore[union-attr]
    assert len(library) == len(TEXTS) - 1
    assert library.match(TEXTS["bees"]).matches[0].title != "Bees"


def test_numbers_are_those_of_a_server_and_of_the_command_line(
    tiny_checkpoint: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    data = tmp_path / "data"
    with longmatch.open(data, encoder=str(tiny_checkpoint), threads=1) as library:
        library.index(Document(name, text) for name, text in TEXTS.items())
        ours = library.match(TEXTS["bees"][:200], top_k=1).matches[0]
    with (
        serving(tmp_path, data, tiny_checkpoint) as server,
        longmatch.Client(server.url) as client,
    ):
        (theirs,) = client.match(TEXTS["bees"][:200], longmatch.MatchOptions(top_k=1)).matches
    query = tmp_path / "query.txt"
    query.write_text(TEXTS["bees"][:200])
    run: Run = request.getfixturevalue("longmatch")
    printed = run("match", query, "--data", data, "--json")
    (line, *_) = json.loads(printed.out)["matches"]
    assert (ours.id, theirs.id, line["id"]) == ("bees", "bees", "bees")
    assert ours.score == theirs.score == pytest.approx(line["score"], abs=1e-6)


def test_a_directory_in_use_and_one_with_keys(
    library: longmatch.Library, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    with pytest.raises(Exception, match="in use") as refused:
        longmatch.open(tmp_path / "data", encoder=str(tiny_checkpoint))
    assert "\n" not in str(refused.value)
    change_keys(tmp_path / "data" / KEY_FILE, lambda keys: keys.clear())
    library.index([Document("bees", TEXTS["bees"])])
    assert library.match(id="bees").matches == []


def test_modules_of_another_project_do_no_harm(tmp_path: Path) -> None:
    """A folder with modules of our names, where Python looks first."""
    for name in ("service", "encoder", "index"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('of another project')")
    command = Path(sys.executable).parent / "longmatch"
    found = subprocess.run([command, "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    code = "import longmatch; longmatch.open('data')"
    (tmp_path / "service" / "__init__.py").write_text("")
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.returncode == 1
    assert "another module of this name" in found.stderr.splitlines()[-1]
