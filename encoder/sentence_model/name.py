"""The name of a sentence model: a folder or a name on the hub, with options.

    FOLDER#block=512&dimension=256&prompt=query&language=de

The options are in the name, so that all that carries a name of an encoder carries them too: a data
directory, the environment, an actor on another machine.
"""

from dataclasses import dataclass
from pathlib import Path

from encoder.errors import CheckpointError

_OPTIONS = ("block", "dimension", "prompt", "language")
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
    options: str
    block: int | None
    dimension: int | None
    prompt: str | None
    language: str

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
        where = f"{self.folder}: there is no such folder, and"
        try:
            import huggingface_hub
        except ImportError as error:
            raise CheckpointError(f"{where} to download it, huggingface-hub is missing") from error
        try:
            name = str(self.folder)
            return Path(huggingface_hub.snapshot_download(name, allow_patterns=_HUB_FILES))
        except Exception as error:  # of the hub, of HTTP, of the disk: no common base class
            reason = str(error).strip().partition("\n")[0]
            raise CheckpointError(f"{where} the hub gives none: {reason}") from error


def parse_name(name: str) -> SentenceModelName:
    """Understand a name.

    Raises:
        CheckpointError: an option is unknown, given twice, or not what it must be.
    """
    folder, _, options = name.partition("#")
    values: dict[str, str] = {}
    for part in options.split("&") if options else ():
        key, equals, value = part.partition("=")
        if key not in _OPTIONS or not equals or key in values:
            raise CheckpointError(
                f"{name}: option {part!r}: options, each once, are {', '.join(_OPTIONS)}"
            )
        values[key] = value
    language = values.get("language", "en")
    if not (len(language) == 2 and language.isascii() and language.islower()):
        raise CheckpointError(f"{name}: language={language}: must be a code of two letters, as de")
    try:
        block, dimension = (int(values[k]) if k in values else None for k in _OPTIONS[:2])
    except ValueError as error:
        raise CheckpointError(f"{name}: block and dimension must be whole numbers") from error
    return SentenceModelName(
        Path(folder), options, block, dimension, values.get("prompt"), language
    )
