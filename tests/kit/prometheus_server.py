"""A real Prometheus with our rules, whose clock runs faster than the operator's."""

import json
import re
import subprocess
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tests.kit.process_fixtures import free_port
from tests.kit.programs import require_program
from tests.kit.waiting import TIMEOUT_S, wait_until

ROOT = Path(__file__).parents[2]
SPEED = 30  # the 15 seconds between two scrapes are half a second
# What Grafana sets: four scrapes.
RATE_INTERVAL = "60s"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = r"(\d+)([smhd])"


def faster(duration: str) -> str:
    """Return a duration of Prometheus ("2m"), divided by `SPEED`."""
    [(number, unit)] = re.findall(DURATION, duration)
    return f"{int(number) * UNITS[unit] * 1000 // SPEED}ms"


def faster_query(query: str) -> str:
    """Return a query of which every window is divided by `SPEED`."""
    return re.sub(r"\[" + DURATION + r"\]", lambda m: f"[{faster(m[0][1:-1])}]", query)


def panel_query(query: str) -> str:
    """Return a query as a panel sends it, of all instances, its windows divided by `SPEED`."""
    filled = query.replace("$__rate_interval", RATE_INTERVAL).replace("$instance", ".*")
    return faster_query(filled)


class PrometheusServer:
    """The Prometheus of docker-compose.yml with its files, on a free port, `SPEED` times faster."""

    def __init__(self, folder: Path, target: str) -> None:
        """Start it.

        Args:
            folder: for its files.
            target: host and port of the Longmatch that it scrapes.

        """
        self.url = f"http://127.0.0.1:{free_port()}"
        self._write_files(folder, target)
        self._process = subprocess.Popen(
            [
                *(require_program("prometheus"), f"--config.file={folder / 'prometheus.yml'}"),
                f"--storage.tsdb.path={folder / 'tsdb'}",
                *(f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._is_ready, "Prometheus did not start")

    def _is_ready(self) -> bool:
        with suppress(OSError):
            return bool(self._get("/-/ready"))
        return False

    def query(self, query: str) -> list[dict[str, Any]]:
        """Return the series that a query finds now."""
        found = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": query}))
        answer: list[dict[str, Any]] = json.loads(found)["data"]["result"]
        return answer

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = json.loads(self._get("/api/v1/alerts"))["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read()
        return content

    def _write_files(self, folder: Path, target: str) -> None:
        settings = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())
        for name, value in settings["global"].items():
            settings["global"][name] = faster(value)
        for job in settings["scrape_configs"]:
            own = target if job["job_name"] == "longmatch" else self.url.removeprefix("http://")
            job["static_configs"] = [{"targets": [own]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        rules = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule["expr"] = faster_query(rule["expr"])
                if "for" in rule:
                    rule["for"] = faster(rule["for"])
        (folder / "alerts.yml").write_text(yaml.safe_dump(rules))
