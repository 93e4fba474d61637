"""The name of a sentence model: a folder or a name on the hub, with options.

    FOLDER#block=512&dimension=256&prompt=query&language=de

The options are in the name, so that all that carries a name of an encoder carries them too: a data
directory, the environment, an actor on another machine.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path

from encoder.errors import CheckpointError

_NUMBERS = ("block", "dimension")
_OPTIONS = (*_NUMBERS, "prompt", "language")
_HUB_FILES = ["*.json", "*.safetensors", "onnx/*", "*/config.json"]


@dataclass(frozen=True, slots=True)
class SentenceModelName:
    """A name, understood.

    Attributes:
        folder: of the model, or its name on the hub: owner/model.
        options: as they were written.
        block: tokens of a block, special tokens and prompt included; None for the default.
        dimension: leading numbers of a vector that are kept (Matryoshka); None for the default.
        prompt: name of the prompt before each block, "" for none; None for the model's default.
        language: ISO 639-1 code, for the sentence splitter.
    """

    folder: Path
    options: str = ""
    block: int | None = None
    dimension: int | None = None
    prompt: str | None = None
    language: str = "en"

    @property
    def source(self) -> str:
        """The name that leads to it on this machine."""
        folder = str(self.folder.resolve() if self.folder.is_dir() else self.folder)
        return f"{folder}#{self.options}" if self.options else folder

    def locate(self) -> Path:
        """Return the folder, which is downloaded from the hub if there is none.

        Raises:
            CheckpointError: there is none, neither here nor there.
        """
        if self.folder.is_dir():
            return self.folder
        name = str(self.folder)
        if name.count("/") != 1 or self.folder.is_absolute() or name.startswith("."):
            raise CheckpointError(f"{name}: there is no such folder")
        try:
            hub = importlib.import_module("huggingface_hub")
        except ImportError as error:
            raise CheckpointError(
                f"{name}: there is no such folder, and huggingface-hub is not installed, which "
                "downloads models: pip install 'longmatch[sentence-models]'"
            ) from error
        try:
            return Path(hub.snapshot_download(name, allow_patterns=_HUB_FILES))
        except Exception as error:  # of the hub, of HTTP, of the disk: no common base class
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise CheckpointError(
                f"{name}: there is no such folder, and the hub gives none: {reason}"
            ) from error


def parse_name(name: str) -> SentenceModelName:
    """Understand a name.

    Raises:
        CheckpointError: an option is unknown, given twice, or not a number where it must be.
    """
    folder, _, options = name.partition("#")
    values: dict[str, str] = {}
    for part in options.split("&") if options else ():
        key, equals, value = part.partition("=")
        if key not in _OPTIONS or not equals:
            raise CheckpointError(f"{name}: option {part!r}: options are {', '.join(_OPTIONS)}")
        if key in values:
            raise CheckpointError(f"{name}: option {key} is given twice")
        if key in _NUMBERS and not (value.isascii() and value.isdigit()):
            raise CheckpointError(f"{name}: {key}={value}: must be a whole number")
        values[key] = value
    numbers = {key: int(values[key]) if key in values else None for key in _NUMBERS}
    language = values.get("language", "en")
    if not (len(language) == 2 and language.isascii() and language.islower()):
        raise CheckpointError(f"{name}: language={language}: must be a code of two letters, as de")
    return SentenceModelName(
        Path(folder), options, prompt=values.get("prompt"), language=language, **numbers
    )
