"""Settings of standing queries and of their webhooks."""

import ipaddress
import re

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from service.configuration.names import Names

_WEBHOOK_HOST = re.compile(r"[A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9._-]*")


class StandingSettings(BaseSettings):
    """How many standing queries there may be, and which webhooks are notified."""

    max_standing_queries: int = Field(
        default=1000,
        ge=0,
        description="Standing queries of one collection; more are refused with 409.",
    )
    max_standing_query_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=1,
        description="Bytes of the texts of all standing queries of one collection, in UTF-8; more "
        "are refused with 409.",
    )
    max_standing_events: int = Field(
        default=10_000,
        ge=1,
        description="Events that are kept of each standing query; older ones are deleted, "
        "delivered or not.",
    )
    max_event_listeners: int = Field(
        default=64,
        ge=0,
        description="Clients that may listen to events of standing queries at a time, of all "
        "collections; more are rejected with 503.",
    )
    webhook_hosts: Names = Field(
        default=(),
        description="Names, addresses and networks, separated by commas, that webhooks may reach "
        "without TLS and although they are not public; others must be public, by https.",
    )
    webhook_seconds: float = Field(
        default=10.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds in which the receiver of a webhook must have answered.",
    )
    webhook_attempts: int = Field(
        default=24,
        ge=1,
        description="Attempts, over about 14 hours, to deliver an event before a webhook failed.",
    )

    @field_validator("webhook_hosts")
    @classmethod
    def _hosts_and_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            try:
                ipaddress.ip_network(one)
            except ValueError as error:
                if not _WEBHOOK_HOST.fullmatch(one):
                    raise ValueError(
                        f"{one!r} is no name, no address and no network: {error}"
                    ) from error
        return value
