"""Bodies of /standing-queries."""

from dataclasses import asdict
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from index.search.records import DEFAULT_MODE, Mode
from service.errors import FieldError, InvalidInputError
from service.match.filter import FilterField
from service.schemas import (
    BodyModel,
    BoundsBody,
    QueryBody,
    Strict,
    WholeText,
    nullable,
    optional,
)
from service.standing.store import Event, Interest, StandingQuery, Webhook, new_webhook
from service.standing.targets import MAX_URL_CHARACTERS
from service.standing.webhooks import SECRET_FORM, check_secret, make_secret

Secret = Annotated[
    WholeText, AfterValidator(check_secret), Field(json_schema_extra={"pattern": SECRET_FORM})
]


Url = Annotated[
    WholeText,
    Field(
        max_length=MAX_URL_CHARACTERS,
        json_schema_extra={"pattern": r"^https?://[A-Za-z0-9]", "format": "uri"},
    ),
]


class WebhookRequest(BodyModel):
    """Where to tell events."""

    url: Url = Field(
        description="A public address by https, or one of the setting `webhook_hosts`."
    )
    secret: Secret | None = optional(
        "`whsec_` and the Base64 of 24 to 64 bytes, which signs the messages; by default, one is "
        "made, and shown once."
    )

    def to_webhook(self) -> Webhook:
        """Return the webhook, with a secret."""
        return new_webhook(self.url, self.secret or make_secret())


class StandingQueryRequest(QueryBody, BoundsBody):
    """What to look for among new documents: exactly one of `text` and `id`.

    New documents are compared with what a stored document is then. Without any bound,
    `max_false_positive_rate` is 0.001 or, without a calibration of the data directory,
    `min_probability` 0.9.
    """

    mode: Mode = Field(
        default=DEFAULT_MODE,
        description="By what new documents are scored, as in POST /match: document vectors, words, "
        "or both.",
    )
    filter: FilterField | None = optional(
        "Tell of no document for whose metadata this does not hold when it is compared."
    )
    webhook: WebhookRequest | None = optional("Where to tell events; by default, nowhere.")
    strict: Strict = False

    def to_interest(self) -> Interest:
        """Return what is looked for, inside the bounds that are given."""
        return Interest(
            document=self.id,
            title=self.title or "",
            mode=self.mode,
            filter=None if self.filter is None else self.filter.as_json(),
            **asdict(self.bounds),
        )


class _Change(BodyModel):
    """What is to be another; what is not given stays. Null takes away what there may be none of."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})
    null_is_absent = False

    @model_validator(mode="after")
    def _of_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("must have at least one field")
        return self


class WebhookChange(_Change):
    """Another address, another secret, or both."""

    url: Url | None = optional(
        "As in POST /standing-queries; needed where the query has no webhook."
    )
    secret: Secret | None = optional(
        "As in POST /standing-queries; null lets the server make a new one. A new secret is in the "
        "answer, and never shown again."
    )

    def apply(self, before: Webhook | None) -> Webhook:
        """Return the webhook that there is to be; InvalidInputError if it has no address."""
        kept = before or new_webhook("", "")
        url, secret = self.url or kept.url, kept.secret
        if not url:
            detail = "give this: the query has no webhook"
            raise InvalidInputError([FieldError("#/webhook/url", detail)])
        if not secret or "secret" in self.model_fields_set:
            secret = self.secret or make_secret()
        if (url, secret) == (kept.url, kept.secret):
            return kept
        return new_webhook(url, secret, kept.delivered)


class StandingQueryChange(_Change, BoundsBody):
    """What is to be another of a standing query; what is not given stays.

    A bound may be null for none; without any bound, the query gets the default.
    """

    webhook: WebhookChange | None = optional(
        "Another address or secret; null for no webhook. One where there was none receives what "
        "is found from now on; another one goes on with the first event that was not received."
    )
    paused: bool | None = optional(
        "True: nothing is compared or delivered. False: both go on where they were."
    )

    def apply(self, before: StandingQuery) -> StandingQuery:
        """Return what the query is to be."""
        bounds = set(BoundsBody.model_fields)
        changed = self.model_dump(include=bounds, exclude_unset=True)
        if "webhook" in self.model_fields_set:
            changed["webhook"] = self.webhook and self.webhook.apply(before.webhook)
        if self.paused is not None:
            changed["paused"] = self.paused
        return before.model_copy(update=changed)


class StandingQueriesResponse(BaseModel):
    """A page of standing queries, the oldest first."""

    queries: list[StandingQuery]
    next_cursor: str | None = nullable("Of the next page; null on the last one.")


class EventsResponse(BaseModel):
    """A page of events, the oldest first."""

    events: list[Event]
    last: int = Field(
        description="Number of the last event on this page, or `after` where there is none: give "
        "it as `after` to get the next ones."
    )
