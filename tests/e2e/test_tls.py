"""TLS: the real server with certificates that a real authority signed."""

import http.client
import ssl
import subprocess
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.errors import SettingsError
from service.process import tls_context
from service.settings import Settings
from tests.kit.waiting import TIMEOUT_S

PASSWORD = "of an encrypted key"


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a folder."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "authority.pem"

    def sign(self, name: str, password: str | None = None) -> tuple[Path, Path]:
        """Return certificate and key of a host or client at 127.0.0.1."""
        key, request = self.folder / f"{name}.key", self.folder / f"{name}.csr"
        certificate = self.folder / f"{name}.pem"
        kept = ["-noenc"] if password is None else ["-passout", f"pass:{password}"]
        openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", *kept),
            *("-keyout", key, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", request),
        )
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-days", "2"),
            *("-CAkey", self.folder / "authority.key", "-copy_extensions", "copy"),
            *("-out", certificate),
        )
        return certificate, key


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("authority")
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"),
        *("-keyout", folder / "authority.key", "-out", folder / "authority.pem"),
        *("-subj", "/CN=test authority", "-days", "2"),
    )
    return Authority(folder)


def test_a_server_with_a_certificate_is_reached_by_tls_alone(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, authority: Authority
) -> None:
    certificate, key = authority.sign("server")
    trusting = ssl.create_default_context(cafile=authority.certificate)
    files = {"tls_certificate": certificate, "tls_key": key}
    with serve(tmp_path / "data", tiny_checkpoint, tls=trusting, **files) as server:
        documents = [{"id": "ants", "text": "Ants live in colonies. " * 2_000}]
        assert server.request("POST", "/index", {"documents": documents})[0] == 200
        status, answer = server.request("POST", "/match", {"text": "Ants live in colonies."})
        assert (status, [match["id"] for match in answer["matches"]]) == (200, ["ants"])
        plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
        plain.request("GET", "/livez")
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            plain.getresponse()
        server.tls = ssl.create_default_context()  # without the authority
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            server.request("GET", "/livez")
        assert server.stop() == 0


def test_clients_without_a_needed_certificate_are_refused(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, authority: Authority
) -> None:
    certificate, key = authority.sign("server")
    known = ssl.create_default_context(cafile=authority.certificate)
    known.load_cert_chain(*authority.sign("client"))
    files = {"tls_certificate": certificate, "tls_key": key}
    files["tls_client_authority"] = authority.certificate
    with serve(tmp_path / "data", tiny_checkpoint, tls=known, **files) as server:
        assert server.request("GET", "/livez")[0] == 200
        server.tls = ssl.create_default_context(cafile=authority.certificate)
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            server.request("GET", "/livez")


def test_what_is_wrong_with_the_files_is_said_at_the_start(
    authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.sign("one", PASSWORD)
    other = authority.sign("two")[1]
    (tmp_path / "empty.pem").touch()
    empty = tmp_path / "empty.pem"
    fields = ("tls_certificate", "tls_key", "tls_client_authority")
    refused = {
        "nothing.pem: .*No such file": (tmp_path / "nothing.pem",),
        "empty.pem": (empty,),
        "KEY_VALUES_MISMATCH|key values mismatch": (certificate, other),
        "one.key": (certificate, key),
        "two.key: .*No such file|one.pem and .*gone.key": (certificate, tmp_path / "gone.key"),
        "CLIENT_AUTHORITY: .*empty.pem": (*authority.sign("three"), empty),
    }
    for message, given in refused.items():
        with pytest.raises(SettingsError, match=message):
            tls_context(Settings(**dict(zip(fields, given, strict=False))))  # type: ignore[arg-type]
    for name in ("tls_key", "tls_client_authority"):
        with pytest.raises(SettingsError, match=f"{name} is given without tls_certificate"):
            tls_context(Settings(**{name: "x"}))  # type: ignore[arg-type]
