from encoder.models.registry import ENCODERS


def test_what_ships_is_registered_by_its_name() -> None:
    assert list(ENCODERS) == ["smith", "colde", "ernie-doc", "han", "dssm", "arc-i"]
    assert all(name == architecture.name for name, architecture in ENCODERS.items())
