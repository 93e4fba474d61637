"""The architectures that ship."""

from encoder.models.registry import ENCODERS, RERANKERS


def test_what_ships_is_registered_by_its_name() -> None:
    assert list(ENCODERS) == ["smith", "colde", "ernie-doc", "han", "dssm", "arc-i"]
    assert list(RERANKERS) == ["match-ignition"]
    assert all(name == entry.name for name, entry in (ENCODERS | RERANKERS).items())
