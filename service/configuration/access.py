"""Settings of who may ask, under which names, and how the connection is protected."""

import ipaddress
import re
from pathlib import Path

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings

from service.configuration.names import Names

_HOST_NAME = re.compile(r"\*|(\*\.)?[A-Za-z0-9_-][A-Za-z0-9._-]*|[0-9A-Fa-f:.]+")


class AccessSettings(BaseSettings):
    """Who may ask, under which names, and how the connection is protected."""

    allow_anonymous: bool = Field(
        default=False,
        description="Listen on an address that others can reach although there are no API keys.",
    )
    open_metrics: bool = Field(
        default=True, description="Serve /metrics without an API key, where there are keys."
    )
    open_docs: bool = Field(
        default=True,
        description="Serve /, /docs, /openapi.json and /problems without an API key, where there "
        "are keys.",
    )
    allowed_hosts: Names = Field(
        default=(),
        description="Names, separated by commas, under which clients reach the service, in "
        "addition to those that are always allowed: on a loopback address, localhost and loopback "
        "addresses; on another one, every address and every name without a dot. *.example.com "
        "stands for all names below, * for any name.",
    )
    trusted_proxies: Names = Field(
        default=(),
        description="Addresses or networks of the proxies whose X-Forwarded-For names the client, "
        "separated by commas; by default, the header is ignored.",
    )
    tls_certificate: Path | None = Field(
        default=None,
        description="PEM file of the server's certificate, with those that lead to its authority; "
        "with it, the service is reached by https:// alone.",
    )
    tls_key: Path | None = Field(
        default=None,
        description="PEM file of its private key; by default, it is in the same file.",
    )
    tls_key_password: SecretStr | None = Field(
        default=None, description="The password of `tls_key`, if it is encrypted."
    )
    tls_client_authority: Path | None = Field(
        default=None,
        description="The certificates of authorities, in a PEM file: with it, a client needs a "
        "certificate of one of them to connect at all.",
    )

    @field_validator("allowed_hosts")
    @classmethod
    def _host_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if not _HOST_NAME.fullmatch(one):
                raise ValueError(
                    f"{one!r} is no host name: give names or addresses without scheme and port"
                )
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            try:
                ipaddress.ip_network(one)
            except ValueError as error:
                raise ValueError(f"{one!r} is no address and no network: {error}") from error
        return value
