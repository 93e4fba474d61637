"""Settings of where the documents are."""

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from index.errors import StoreError
from index.postgres.address import (
    DEFAULT_SCHEMA,
    Database,
    PostgreSQLAddress,
    check_schema,
    parse_postgresql_url,
)

SQLITE = "sqlite"


class StoreSettings(BaseSettings):
    """Settings of where the documents are; every command reads them."""

    model_config = SettingsConfigDict(
        env_prefix="LONGMATCH_", env_ignore_empty=True, extra="forbid", frozen=True
    )

    store: str = Field(
        default=SQLITE,
        repr=False,  # it may hold a password
        description="Where the documents are: sqlite, in the data directory; or a PostgreSQL that "
        "many servers share, as postgresql://USER@HOST/DATABASE. The data directory then holds a "
        "copy, from which this server searches. Every command reads it.",
    )
    store_schema: str = Field(
        default=DEFAULT_SCHEMA,
        description="The schema of the PostgreSQL that holds the documents.",
    )
    store_seconds: float = Field(
        default=5.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that a request waits for PostgreSQL to say whether something has "
        "changed; then it is rejected with 503, and the service is not ready.",
    )

    job_lease_seconds: float = Field(
        default=30.0,
        ge=1,
        allow_inf_nan=False,
        description="With a PostgreSQL: seconds after which an upload that a server was indexing "
        "is taken by another one, if that server died.",
    )

    @field_validator("store")
    @classmethod
    def _known_store(cls, value: str) -> str:
        if value != SQLITE:
            _address(value, DEFAULT_SCHEMA)
        return value

    @field_validator("store_schema")
    @classmethod
    def _schema(cls, value: str) -> str:
        try:
            check_schema(value)  # also where psycopg is not installed
        except StoreError as error:
            raise ValueError(str(error)) from error
        return value

    @property
    def database(self) -> Database | None:
        """The PostgreSQL that holds the documents; None for SQLite in the data directory."""
        if self.store == SQLITE:
            return None
        return Database(_address(self.store, self.store_schema), self.store_seconds)


def _address(url: str, schema: str) -> PostgreSQLAddress:
    try:
        return parse_postgresql_url(url, schema)
    except StoreError as error:
        raise ValueError(str(error)) from error
