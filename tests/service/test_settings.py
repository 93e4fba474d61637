"""Settings: read from the environment, validated, described."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.configuration.store import StoreSettings
from service.configuration.vectors import VectorSettings
from service.errors import SettingsError
from service.settings import REMOVED_SETTINGS, Settings, check_environment


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
    monkeypatch.setenv("LONGMATCH_MAX_COLLECTIONS", "20")
    assert Settings(max_collections=30).max_collections == 30


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_queue_tokens", 0),
        ("threads", "many"),
        ("drain_seconds", float("inf")),
        ("target_recall", 1.01),
        ("webhook_hosts", "hooks.internal, 10.0.0.0/33"),
        ("webhook_hosts", "https://hooks.internal"),
        ("allowed_hosts", "https://example.com"),
        ("trusted_proxies", "10.0.0.300"),
        ("log_level", "loud"),
        ("max_queue_token", 5),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})


@pytest.mark.parametrize(
    "name", [name for name in REMOVED_SETTINGS if name[10:].lower() not in Settings.model_fields]
)
def test_a_removed_setting_is_refused_with_what_holds(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "20")
    with pytest.raises(SettingsError) as refused:
        Settings()
    assert str(refused.value) == f"{name} is not a setting any more: {REMOVED_SETTINGS[name]}"


@pytest.mark.parametrize("name", ["LONGMATCH_MAX_QUEUE_TOKEN", "longmatch_max_queue_token"])
def test_an_unknown_variable_is_refused_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "20")
    nearest = "LONGMATCH_MAX_QUEUE_TOKEN is not a setting; .* LONGMATCH_MAX_QUEUE_TOKENS"
    with pytest.raises(SettingsError, match=nearest):
        Settings()


def test_variables_of_others_are_left_alone() -> None:
    check_environment(
        [
            "PATH",
            "LONGMATCH_TEST_MILVUS",
            # Kubernetes and `docker --link` set these for a service of the name `longmatch`.
            "LONGMATCH_SERVICE_HOST",
            "LONGMATCH_SERVICE_PORT_HTTP",
            "LONGMATCH_PORT",
            "LONGMATCH_PORT_8000_TCP_ADDR",
            "LONGMATCH_REDIS_SERVICE_PORT",
        ]
    )


def test_there_are_few_settings() -> None:
    store_and_vectors = {*StoreSettings.model_fields, *VectorSettings.model_fields}
    assert len(Settings.model_fields.keys() - store_and_vectors) <= 40


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().max_collections = 3


def test_the_engine_of_the_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().milvus is None
    monkeypatch.setenv("LONGMATCH_VECTORS", "milvus://user:secret@host/base")
    monkeypatch.setenv("LONGMATCH_VECTORS_SECONDS", "2")
    address = Settings(vectors_load_seconds=3).milvus
    assert address is not None
    assert (address.uri, address.database) == ("http://host:19530", "base")
    assert (address.seconds, address.load_seconds) == (2, 3)
    assert Settings(index_precision="fp32").milvus is not None
    with pytest.raises(ValidationError, match="Milvus holds vectors in fp32"):
        Settings(index_precision="int8")
    with pytest.raises(ValidationError, match=r"search_processes is 2, and vectors names a Milvus"):
        Settings(search_processes=2)
    with pytest.raises(ValidationError, match="none of the forms"):
        Settings(vectors="redis://host")
    assert not address.words
    words = Settings(words="milvus").milvus
    assert words is not None
    assert words.words
    with pytest.raises(ValidationError, match="words is milvus, and vectors names no Milvus"):
        Settings(words="milvus", vectors="faiss")


def test_with_postgresql_nothing_is_allowed_that_servers_would_not_share() -> None:
    shared = Settings(store="postgresql://me@db/papers", store_schema="here")
    assert str(shared.database.address if shared.database else "") == (
        "postgresql://me@db/papers (schema here)"
    )
    for name in ("max_collections", "max_feedback", "max_standing_queries"):
        assert getattr(shared, name) == 0
        assert getattr(Settings(), name) > 0
        with pytest.raises(ValidationError, match=f"{name} is 3, and with `store` in a PostgreSQL"):
            Settings(store="postgresql://me@db/papers", **{name: 3})
    for name, value in (("store", "mysql://db"), ("store_schema", "No"), ("store_seconds", 0)):
        with pytest.raises(ValidationError) as refused:
            Settings(**{name: value})
        assert [error["loc"] for error in refused.value.errors()] == [(name,)]
