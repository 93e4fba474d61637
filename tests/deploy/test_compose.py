"""The compose file, and that the files which name one another agree."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings

# A tag that names a release (7.4.11-alpine, v3.14.0; not latest, not 7), and what it was then.
RELEASE_TAG = re.compile(r"v?\d+\.\d+\.\d+(-[a-z0-9.]+)?@sha256:[0-9a-f]{64}")


def mounts(service: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(source, target, mode) of the files and folders of the checkout that are mounted."""
    split = [volume.split(":") for volume in service.get("volumes", [])]
    return [(part[0], part[1], part[2]) for part in split if part[0].startswith(".")]


def test_every_image_is_built_here_or_pinned(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if "build" in service:
            continue
        tag = service["image"].partition(":")[2]
        assert RELEASE_TAG.fullmatch(tag), name


def test_what_is_mounted_exists_and_is_read_only(compose: dict[str, Any], root: Path) -> None:
    found = [mount for service in compose["services"].values() for mount in mounts(service)]
    assert found
    for source, _, mode in found:
        assert (root / source).exists(), source
        assert mode == "ro", source


def test_named_volumes_are_declared_and_used(compose: dict[str, Any]) -> None:
    used = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
        if not volume.startswith(".")
    }
    assert used == set(compose["volumes"])


def test_every_port_is_published_on_loopback_unless_the_operator_says_so(
    compose: dict[str, Any],
) -> None:
    for name, service in compose["services"].items():
        for port in service.get("ports", []):
            allowed = ("127.0.0.1:", "${PUBLISH_ADDRESS:-127.0.0.1}:")
            assert port.startswith(allowed[: 2 if name == "longmatch" else 1]), name


def test_every_service_is_bounded_and_has_no_rights(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["mem_limit"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["read_only"] is True, name
        assert service["restart"] == "unless-stopped", name


def test_longmatch_writes_its_data_and_nothing_else(compose: dict[str, Any]) -> None:
    longmatch = compose["services"]["longmatch"]
    assert longmatch["tmpfs"] == ["/tmp"]
    assert longmatch["volumes"] == ["longmatch-data:/data"]


def test_redis_asks_for_a_password_and_only_longmatch_reaches_it(compose: dict[str, Any]) -> None:
    redis = compose["services"]["redis"]
    password = "${REDIS_PASSWORD:-longmatch}"
    assert redis["command"][redis["command"].index("--requirepass") + 1] == password
    assert redis["environment"] == {"REDISCLI_AUTH": password}
    url = compose["services"]["longmatch"]["environment"]["LONGMATCH_REDIS_URL"]
    assert url == f"redis://:{password}@redis:6379/0"
    assert "ports" not in redis
    assert redis["networks"] == ["redis"]
    assert compose["networks"]["redis"] == {"internal": True}
    others = set(compose["services"]) - {"longmatch", "redis"}
    assert all(compose["services"][name]["networks"] == ["monitoring"] for name in others)


def test_the_gpu_file_changes_the_device_and_nothing_else(
    root: Path, compose: dict[str, Any], instructions: list[tuple[str, str]]
) -> None:
    [(name, service)] = yaml.safe_load((root / "deploy/gpu.yml").read_text())["services"].items()
    assert name in compose["services"]
    assert set(service) == {"build", "deploy"}
    [(argument, value)] = service["build"]["args"].items()
    assert argument in {given.partition("=")[0] for kind, given in instructions if kind == "ARG"}
    assert (root / f"deploy/requirements/{value}.txt").is_file()


def test_there_is_time_to_drain(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LONGMATCH_DRAIN_SECONDS", raising=False)
    grace = float(compose["services"]["longmatch"]["stop_grace_period"].removesuffix("s"))
    # Beside the drain there is the closing of the index and the store.
    assert grace >= Settings().drain_seconds + 15


def test_grafana_is_read_by_all_and_changed_by_none(compose: dict[str, Any]) -> None:
    environment = compose["services"]["grafana"]["environment"]
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_prometheus_asks_the_port_that_the_image_exposes(
    prometheus: dict[str, Any],
    compose: dict[str, Any],
    instructions: list[tuple[str, str]],
) -> None:
    [job] = [job for job in prometheus["scrape_configs"] if job["job_name"] == "longmatch"]
    [target] = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert host in compose["services"]
    assert ("EXPOSE", port) in instructions


def test_prometheus_finds_its_rules_where_they_are_mounted(
    prometheus: dict[str, Any], compose: dict[str, Any]
) -> None:
    targets = [target for _, target, _ in mounts(compose["services"]["prometheus"])]
    assert prometheus["rule_files"]
    for rules in prometheus["rule_files"]:
        assert f"/etc/prometheus/{rules}" in targets


def test_grafana_finds_data_source_and_dashboards(compose: dict[str, Any], root: Path) -> None:
    grafana = compose["services"]["grafana"]
    provisioning = root / "deploy/grafana/provisioning"
    sources = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())
    [source] = sources["datasources"]
    providers = yaml.safe_load((provisioning / "dashboards/longmatch.yml").read_text())
    [provider] = providers["providers"]
    mounted = {target: source for source, target, _ in mounts(grafana)}

    assert source["url"] == "http://prometheus:9090"
    assert mounted["/etc/grafana/provisioning"] == "./deploy/grafana/provisioning"
    folder = provider["options"]["path"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(f"{folder}/")
    assert (root / mounted[folder] / Path(home).name).is_file()
