"""A corpus of three files, one of them in a folder."""

from pathlib import Path

import pytest


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "papers"
    (folder / "deep").mkdir(parents=True)
    (folder / "rivers.md").write_text("# Rivers\n\nRivers carry water and stones. " * 5)
    (folder / "deep" / "music.txt").write_text("Music is made of notes and silence. " * 5)
    (folder / "page.html").write_text("<title>Trees</title><p>Trees grow slowly in winter.</p>")
    return folder
