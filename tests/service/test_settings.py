"""Settings: read from the environment, validated, described."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import Settings


def test_every_setting_says_what_it_means() -> None:
    undescribed = [name for name, field in Settings.model_fields.items() if not field.description]
    assert undescribed == []


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGMATCH_DATA", "/somewhere/else")
    monkeypatch.setenv("LONGMATCH_MAX_QUEUE_TOKENS", "1234")
    monkeypatch.setenv("LONGMATCH_PROVIDERS", "CUDAExecutionProvider, CPUExecutionProvider")
    monkeypatch.setenv("LONGMATCH_DRAIN_SECONDS", "1.5")
    settings = Settings()
    assert settings.data == Path("/somewhere/else")
    assert settings.max_queue_tokens == 1234
    assert settings.providers == ("CUDAExecutionProvider", "CPUExecutionProvider")
    assert settings.drain_seconds == 1.5


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGMATCH_CHECKPOINT", "")
    monkeypatch.setenv("LONGMATCH_THREADS", "")
    assert Settings().checkpoint is None
    assert Settings().threads is None


def test_a_name_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGMATCH_MAX_TOP_K", "20")
    assert Settings(max_top_k=30).max_top_k == 30


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_queue_tokens", 0),
        ("max_body_bytes", -1),
        ("max_top_k", "many"),
        ("threads", 0),
        ("drain_seconds", float("nan")),
        ("drain_seconds", float("inf")),
        ("drain_seconds", -1),
        ("target_recall", 0),
        ("target_recall", 1.01),
        ("recall_sample_share", -0.1),
        ("maintenance_seconds", 0),
        ("webhook_hosts", "hooks.internal, 10.0.0.0/33"),
        ("webhook_hosts", "10.0.0.1/8"),
        ("webhook_hosts", "*"),
        ("webhook_hosts", "https://hooks.internal"),
        ("webhook_hosts", "10.0.0.300"),
        ("log_level", "loud"),
        ("max_queue_token", 5),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})


def test_the_default_top_k_is_within_its_limit() -> None:
    with pytest.raises(ValidationError, match="default_top_k"):
        Settings(max_top_k=5)
    assert Settings(max_top_k=5, default_top_k=5).default_top_k == 5


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().max_top_k = 3
