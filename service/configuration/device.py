"""Settings of what computes: the encoder's engines, and a GPU beside it for the index."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class DeviceSettings(BaseSettings):
    """Settings of the devices that compute; every command reads them."""

    model_config = SettingsConfigDict(
        env_prefix="LONGMATCH_", env_ignore_empty=True, extra="forbid", frozen=True
    )

    engine_cache: Path | None = Field(
        default=None,
        description="Folder where TensorRT keeps the engines that it builds, which takes minutes; "
        "by default none, and they are built at every start. Created if missing. Every command "
        "reads it.",
    )
    index_gpu: bool = Field(
        default=True,
        description="Use a GPU, where the installed FAISS has one, to train the index and for "
        "exact searches of many vectors at a time; requests are searched on the CPU in any case. "
        "Every command reads it.",
    )
