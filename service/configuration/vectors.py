"""Settings of the engine that holds the vectors to search."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from index.vectors.milvus.connection import MilvusAddress, parse_milvus_url

FAISS = "faiss"


class VectorSettings(BaseSettings):
    """Settings of the engine that holds the vectors to search; every command reads them."""

    model_config = SettingsConfigDict(
        env_prefix="LONGMATCH_", env_ignore_empty=True, extra="forbid", frozen=True
    )

    vectors: str = Field(
        default=FAISS,
        description="What holds the vectors to search: faiss, in the process; a Milvus server, as "
        "milvus://HOST:19530/DATABASE (milvus+tls:// with TLS; USER:PASSWORD@ before the host); or "
        "Milvus Lite, as milvus:///FOLDER.db. Another one than before: the index is built again "
        "from the document store at the start. Every command reads it.",
    )
    words: Literal["local", "milvus"] = Field(
        default="local",
        description="Where lexical and hybrid searches find the words of documents: local, in a "
        "copy that each process has; or milvus, in the Milvus that holds the vectors. Every "
        "command reads it.",
    )
    vectors_seconds: float = Field(
        default=10.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that a request to Milvus may take.",
    )
    vectors_load_seconds: float = Field(
        default=600.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that Milvus may take to write vectors to its disk, and to build or "
        "load an index.",
    )

    @field_validator("vectors")
    @classmethod
    def _known_engine(cls, value: str) -> str:
        if value != FAISS:
            parse_milvus_url(value)
        return value

    @model_validator(mode="after")
    def _words_go_with_vectors(self) -> Self:
        if self.words == "milvus" and self.vectors == FAISS:
            raise ValueError("words is milvus, and vectors names no Milvus (milvus://…)")
        return self

    @property
    def milvus(self) -> MilvusAddress | None:
        """The Milvus that holds the vectors; None for FAISS."""
        if self.vectors == FAISS:
            return None
        return parse_milvus_url(
            self.vectors,
            seconds=self.vectors_seconds,
            load_seconds=self.vectors_load_seconds,
            words=self.words == "milvus",
        )
