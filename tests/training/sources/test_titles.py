"""Links by titles: as they are written, the longest ones, rare single words, none of two owners."""

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


def test_titles_are_found_as_they_are_written() -> None:
    found = linked(
        The_End="A film.", Solar_energy="x", Other="It was the end. SOLAR ENERGY is solar energyy."
    )
    assert not found["other"].links


def test_a_document_does_not_name_itself() -> None:
    assert not linked(Solar_energy="Solar energy is energy.", Other="x")["solar_energy"].links


def test_the_longest_title_is_named() -> None:
    found = linked(New_York="x", New_York_City="y", Other="In New York City it rains.")
    assert found["other"].links == {"new_york_city"}


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


def test_titles_with_marks_are_found() -> None:
    text = "From St. Louis, by AC/DC, in café au lait, x-ray vision."
    documents = [
        Document(id=title, title=title, text=f"about {number}")
        for number, title in enumerate(["St. Louis", "AC/DC", "Café au lait", "X-ray vision"])
    ]
    *_, found = link_by_titles([*documents, Document(id="o", text=text)], SilentProgress())
    assert found.links == {"St. Louis", "AC/DC", "Café au lait", "X-ray vision"}
