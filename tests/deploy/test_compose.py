"""The compose file, and that the files which name one another agree."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings

# A tag that names a release (7.4.11-alpine, v3.14.0; not latest, not 7), and its digest.
RELEASE_TAG = re.compile(r"v?\d+\.\d+\.\d+(-[a-z0-9.]+)?@sha256:[0-9a-f]{64}")
LOOPBACK = ("127.0.0.1:", "${PUBLISH_ADDRESS:-127.0.0.1}:")


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Source by target of the files and folders of the checkout that are mounted read-only."""
    split = [volume.split(":") for volume in service.get("volumes", [])]
    return {part[1]: part[0] for part in split if part[0].startswith(".") and part[2] == "ro"}


def test_services_have_pins_limits_and_no_rights(compose: dict[str, Any], root: Path) -> None:
    for name, service in compose["services"].items():
        assert "build" in service or RELEASE_TAG.fullmatch(service["image"].partition(":")[2]), name
        assert service["mem_limit"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["cap_drop"] == ["ALL"], name
        assert (service["read_only"], service["restart"]) == (True, "unless-stopped"), name
        for port in service.get("ports", []):
            assert port.startswith(LOOPBACK[: 2 if name == "longmatch" else 1]), name
    assert compose["services"]["longmatch"]["mem_limit"] == "4g"
    assert "(`mem_limit`) is 4 GB" in (root / "docs/operations.md").read_text(encoding="utf-8")


def test_what_is_mounted_exists_and_is_read_only(compose: dict[str, Any], root: Path) -> None:
    for name, service in compose["services"].items():
        local = [volume for volume in service.get("volumes", []) if volume.startswith(".")]
        assert len(mounts(service)) == len(local), name
        for source in mounts(service).values():
            assert (root / source).exists(), source


def test_only_longmatch_reaches_redis(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert "ports" not in services["redis"]
    assert services["redis"]["networks"] == ["redis"]
    assert compose["networks"]["redis"] == {"internal": True}
    for name in set(services) - {"longmatch", "redis"}:
        assert services[name]["networks"] == ["monitoring"], name


def test_the_gpu_file_changes_the_device_and_what_it_takes(
    root: Path, compose: dict[str, Any], instructions: list[tuple[str, str]]
) -> None:
    [(name, service)] = yaml.safe_load((root / "deploy/gpu.yml").read_text())["services"].items()
    assert name in compose["services"]
    assert set(service) == {"build", "deploy", "mem_limit"}
    [(argument, value)] = service["build"]["args"].items()
    assert argument in {given.partition("=")[0] for kind, given in instructions if kind == "ARG"}
    assert (root / f"deploy/requirements/{value}.txt").is_file()


def test_there_is_time_to_drain(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LONGMATCH_DRAIN_SECONDS", raising=False)
    grace = float(compose["services"]["longmatch"]["stop_grace_period"].removesuffix("s"))
    # After the drain the index and the store are closed.
    assert grace >= Settings().drain_seconds + 15


def test_prometheus_finds_longmatch_and_its_rules(
    prometheus: dict[str, Any], compose: dict[str, Any], instructions: list[tuple[str, str]]
) -> None:
    [job] = [job for job in prometheus["scrape_configs"] if job["job_name"] == "longmatch"]
    [target] = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert host in compose["services"]
    assert ("EXPOSE", port) in instructions
    assert prometheus["rule_files"]
    for rules in prometheus["rule_files"]:
        assert f"/etc/prometheus/{rules}" in mounts(compose["services"]["prometheus"])


def test_grafana_finds_data_source_and_dashboards(compose: dict[str, Any], root: Path) -> None:
    grafana = compose["services"]["grafana"]
    provisioning = root / "deploy/grafana/provisioning"
    sources = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())
    assert [source["url"] for source in sources["datasources"]] == ["http://prometheus:9090"]
    providers = yaml.safe_load((provisioning / "dashboards/longmatch.yml").read_text())
    [provider] = providers["providers"]
    mounted = mounts(grafana)
    assert mounted["/etc/grafana/provisioning"] == "./deploy/grafana/provisioning"
    folder = provider["options"]["path"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(f"{folder}/")
    assert (root / mounted[folder] / Path(home).name).is_file()
    assert grafana["environment"]["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert grafana["environment"]["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
