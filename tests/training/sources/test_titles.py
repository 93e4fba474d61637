"""Links by titles: as they are written, the longest ones, rare single words, none of two owners."""

import pytest

from index.document import Document
from index.progress import SilentProgress
from training.sources.linked_corpus import LinkedDocument
from training.sources.titles import RARE, link_by_titles


def linked(**texts: str) -> dict[str, LinkedDocument]:
    """Link documents; the keyword is the title, with `_` for spaces, and its id in lower case."""
    documents = [
        Document(id=name.lower(), title=name.replace("_", " "), text=text, metadata={"n": 1})
        for name, text in texts.items()
    ]
    return {document.id: document for document in link_by_titles(documents, SilentProgress())}


def test_a_document_is_linked_to_those_whose_titles_it_names() -> None:
    text = "Energy, such as solar energy, and World\nWar I. Solar energy again."
    found = linked(Solar_energy="It is old.", World_War_I="It was long.", Other=text)
    assert found["other"].links == {"solar_energy", "world_war_i"}
    named = [text[mention.start : mention.end] for mention in found["other"].mentions]
    assert named == ["solar energy", "World\nWar I", "Solar energy"]
    assert found["other"].metadata == {"n": 1}
    assert not found["solar_energy"].links


@pytest.mark.parametrize(
    ("titles", "text", "links"),
    [
        (["The End", "Solar energy"], "It was the end. SOLAR ENERGY is solar energyy.", set()),
        (["Other"], "The Other is energy.", set()),  # itself
        (["New York", "New York City"], "In New York City it rains.", {"New York City"}),
        (
            ["St. Louis", "AC/DC", "Café au lait", "X-ray vision"],
            "From St. Louis, by AC/DC, in café au lait, x-ray vision.",
            {"St. Louis", "AC/DC", "Café au lait", "X-ray vision"},
        ),
    ],
    ids=["as written", "not itself", "longest", "with marks"],
)
def test_titles_that_a_text_names(titles: list[str], text: str, links: set[str]) -> None:
    documents = [
        Document(id=title, title=title, text=f"about {number}")
        for number, title in enumerate(titles)
        if title != "Other"
    ]
    other = Document(id="Other", title="Other", text=text)
    *_, found = link_by_titles([*documents, other], SilentProgress())
    assert found.links == links


def test_a_title_of_two_documents_is_none() -> None:
    documents = [
        Document(id="a", title="Big Apple", text="x"),
        Document(id="b", title="Big apple", text="y"),
        Document(id="c", title="", text="The Big Apple is a city."),
    ]
    assert not any(document.links for document in link_by_titles(documents, SilentProgress()))


def test_single_words_are_titles_if_they_are_rare() -> None:
    texts = {f"D{number}": "on the common Topic" for number in range(RARE + 1)}
    found = linked(
        Topic="x", Photon="y", Ion="z", Nr12="q", **texts, Other="a photon, an Ion, Nr12"
    )
    assert found["other"].links == {"photon"}
    assert not found["d0"].links
    del texts["D0"]
    assert linked(Topic="x", **texts)["d1"].links == {"topic"}
