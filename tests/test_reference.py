"""The reference in docs is that of the code."""

from tests.tools.reference import FOLDER, reference


def test_the_reference_is_made_of_this_code() -> None:
    """`make reference` writes it anew."""
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert written == reference()
