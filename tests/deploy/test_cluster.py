"""The files of several servers: they agree with each other, the image and the service."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.metrics import create_metrics
from service.settings import Settings
from tests.deploy.conftest import load_yaml
from tests.tools.compose_processes import read_compose

FILE = "deploy/cluster/compose.yml"
# A release, and what it was then.
RELEASE = re.compile(r"[\w./-]+:(v?\d+\.\d+|RELEASE\.\d{4})[\w.-]*@sha256:[0-9a-f]{64}")


@pytest.fixture(scope="module")
def cluster(root: Path) -> dict[str, Any]:
    return read_compose(root / FILE)


@pytest.fixture(scope="module")
def manifests(root: Path) -> list[dict[str, Any]]:
    """What the kustomization lists, before its labels are added."""
    folder = root / "deploy/kubernetes"
    listed = load_yaml("deploy/kubernetes/kustomization.yaml")["resources"]
    assert sorted(listed) == sorted(
        path.name for path in folder.glob("*.yaml") if path.name != "kustomization.yaml"
    )
    return [one for name in listed for one in yaml.safe_load_all((folder / name).read_text())]


def kind(manifests: list[dict[str, Any]], name: str) -> dict[str, Any]:
    [found] = [one for one in manifests if one["kind"] == name]
    return found


def test_images_are_pinned_and_services_bounded(cluster: dict[str, Any]) -> None:
    for name, service in cluster["services"].items():
        assert "build" in service or RELEASE.fullmatch(service["image"]), name
        assert service["mem_limit"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == "unless-stopped", name


def test_only_proxy_and_monitoring_are_published_on_this_machine(cluster: dict[str, Any]) -> None:
    services = cluster["services"]
    published = {name for name, service in services.items() if service.get("ports")}
    assert published == {"proxy", "prometheus", "grafana"}
    for name in published:
        [port] = services[name]["ports"]
        assert port.startswith("127.0.0.1:"), name  # the default of PUBLISH_ADDRESS is filled in
    assert cluster["networks"]["storage"] == {"internal": True}
    for name in ("postgres", "milvus", "etcd", "minio"):
        assert services[name]["networks"] == ["storage"], name


def test_mounted_files_exist(cluster: dict[str, Any]) -> None:
    for service in cluster["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith("/") or source == "/data" or Path(source).exists(), volume


def test_named_volumes_are_declared_and_used(cluster: dict[str, Any]) -> None:
    sources = [v.split(":")[0] for one in cluster["services"].values() for v in one["volumes"]]
    assert {one for one in sources if not one.startswith("/")} == set(cluster["volumes"])


def test_replicas_have_the_packages_and_valid_settings(
    cluster: dict[str, Any], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = cluster["services"]["longmatch"]
    requirements = root / f"deploy/requirements/{replica['build']['args']['REQUIREMENTS']}.txt"
    packages = requirements.read_text()
    assert "\npsycopg==" in packages
    assert "\npymilvus==" in packages
    for name, value in replica["environment"].items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LONGMATCH_DRAIN_SECONDS", raising=False)
    settings = Settings()
    assert settings.trusted_proxies
    assert float(replica["stop_grace_period"].removesuffix("s")) >= settings.drain_seconds + 15


def test_proxy_and_prometheus_find_the_replicas_by_their_name(
    cluster: dict[str, Any], root: Path, instructions: list[tuple[str, str]]
) -> None:
    [port] = [arguments for kind, arguments in instructions if kind == "EXPOSE"]
    rules = (root / "deploy/cluster/haproxy.cfg").read_text()
    assert f"longmatch:{port}" in rules
    assert "GET uri /readyz" in rules
    scraped = load_yaml("deploy/cluster/prometheus.yml")
    alone = load_yaml("deploy/prometheus.yml")
    [job] = [one for one in scraped["scrape_configs"] if one["job_name"] == "longmatch"]
    [source] = job["dns_sd_configs"]
    assert (source["names"], str(source["port"])) == (["longmatch"], port)
    assert scraped["rule_files"] == alone["rule_files"]
    assert scraped["global"] == alone["global"]


def test_the_stateful_set_runs_what_the_image_runs_and_no_more_rights(
    manifests: list[dict[str, Any]], instructions: list[tuple[str, str]]
) -> None:
    pod = kind(manifests, "StatefulSet")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    commands = [arguments for kind, arguments in instructions if kind == "CMD"]
    assert yaml.safe_load(commands[-1]) == container["args"]
    [user] = [arguments for kind, arguments in instructions if kind == "USER"]
    context = pod["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert pod["terminationGracePeriodSeconds"] >= Settings().drain_seconds + 15


def test_the_autoscaler_follows_a_metric_that_exists(manifests: list[dict[str, Any]]) -> None:
    scaler = kind(manifests, "HorizontalPodAutoscaler")["spec"]
    target = kind(manifests, "StatefulSet")
    assert scaler["scaleTargetRef"]["name"] == target["metadata"]["name"]
    names = {family.name for family in create_metrics().registry.collect()}
    [metric] = scaler["metrics"]
    assert metric["pods"]["metric"]["name"] in names
