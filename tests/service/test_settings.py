"""Settings: read from the environment, validated, described."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.errors import SettingsError
from service.former import FORMER_SETTINGS
from service.settings import Settings, check_environment


def test_every_setting_says_what_it_means() -> None:
    undescribed = [name for name, field in Settings.model_fields.items() if not field.description]
    assert undescribed == []


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGMATCH_DATA", "/somewhere/else")
    monkeypatch.setenv("LONGMATCH_MAX_QUEUE_TOKENS", "1234")
    monkeypatch.setenv("LONGMATCH_PROVIDERS", "CUDAExecutionProvider, CPUExecutionProvider")
    monkeypatch.setenv("LONGMATCH_DRAIN_SECONDS", "1.5")
    monkeypatch.setenv("LONGMATCH_ENCODER", "")
    monkeypatch.setenv("LONGMATCH_THREADS", "")
    settings = Settings()
    assert (settings.encoder, settings.threads) == (None, None)
    assert settings.data == Path("/somewhere/else")
    assert settings.max_queue_tokens == 1234
    assert settings.providers == ("CUDAExecutionProvider", "CPUExecutionProvider")
    assert settings.drain_seconds == 1.5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max_queue_tokens", 0), ("drain_seconds", float("inf")), ("target_recall", 1.01)),
        *(("reading_share", share) for share in (0, 1.5, "nan", 0.123)),
        ("webhook_hosts", "hooks.internal, 10.0.0.0/33"),
        *(
            ("allowed_hosts", host)
            for host in ("https://a.example", "a.example:80", "a*", "*.", "a b")
        ),
        ("trusted_proxies", "10.0.0.300"),
        *(("trusted_proxies", "*"), ("trusted_proxies", "10.0.0.1/8"), ("log_level", "loud")),
        ("max_queue_token", 5),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})


def test_a_removed_setting_is_refused_with_what_replaces_it() -> None:
    assert not {name.lower() for name in FORMER_SETTINGS} & Settings.model_fields.keys()
    for name, instead in FORMER_SETTINGS.items():
        with pytest.raises(SettingsError) as refused:
            check_environment([f"LONGMATCH_{name}"])
        assert str(refused.value) == f"LONGMATCH_{name} is not a setting any more: {instead}"


@pytest.mark.parametrize("name", ["LONGMATCH_MAX_QUEUE_TOKEN", "longmatch_max_queue_token"])
def test_an_unknown_variable_is_refused_with_the_nearest(name: str) -> None:
    nearest = "LONGMATCH_MAX_QUEUE_TOKEN is not a setting; .* LONGMATCH_MAX_QUEUE_TOKENS"
    with pytest.raises(SettingsError, match=nearest):
        check_environment([name])


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
    assert len(Settings.model_fields) <= 40
