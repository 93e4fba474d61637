"""Settings of what computes: a GPU for the index."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class DeviceSettings(BaseSettings):
    """Settings of the devices that compute; every command reads them."""

    model_config = SettingsConfigDict(
        env_prefix="LONGMATCH_", env_ignore_empty=True, extra="forbid", frozen=True
    )

    index_gpu: bool = Field(
        default=True,
        description="Use a GPU, where the installed FAISS has one, to train the index and for "
        "exact searches of many vectors at a time; requests are searched on the CPU in any case. "
        "Every command reads it.",
    )
