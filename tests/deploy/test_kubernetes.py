"""The manifests agree with the image and the settings."""

from typing import Any

import yaml

from service.settings import Settings
from tests.deploy.conftest import ROOT

FOLDER = ROOT / "deploy/kubernetes"


def test_the_kustomization_lists_every_manifest() -> None:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    others = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(listed) == sorted(others)


def test_the_stateful_set_runs_the_image_without_rights(
    instructions: list[tuple[str, str]],
) -> None:
    manifest: dict[str, Any] = yaml.safe_load((FOLDER / "statefulset.yaml").read_text())
    pod = manifest["spec"]["template"]["spec"]
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
