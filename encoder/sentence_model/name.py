"""The name of a sentence model: a folder, a name on the hub or a server, with options.

    FOLDER#block=512&dimension=256&prompt=query&language=de
    https://HOST/v1#model=NAME&block=1000&prompt=query:%20

The options are in the name, so that all that carries a name of an encoder carries them too: a data
directory, the environment, an actor on another machine.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from encoder.errors import CheckpointError

_OPTIONS = ("block", "dimension", "prompt", "language")
_SERVER_OPTIONS = (*_OPTIONS, "model")
_HUB_FILES = ["*.json", "*.safetensors", "onnx/*", "*/config.json"]


@dataclass(frozen=True, slots=True)
class SentenceModelName:
    """A name, understood.

    Attributes:
        location: folder of the model, its name on the hub (owner/model), or URL of a server.
        options: as they were written.
        block: tokens of a block, special tokens and prompt included, of a server characters; None
            for the default.
        dimension: leading numbers of a vector that are kept (Matryoshka); None for the default.
        prompt: name of the prompt before each block, for a server the prompt itself; "" for none,
            None for the model's default.
        language: ISO 639-1 code, for the sentence splitter.
        model: that a server has under this name; None for its only one.
    """

    location: str
    options: str
    block: int | None
    dimension: int | None
    prompt: str | None
    language: str
    model: str | None

    @property
    def folder(self) -> Path:
        """The folder of the model, or its name on the hub."""
        return Path(self.location)

    @property
    def source(self) -> str:
        """The name that leads to it on this machine."""
        local = not is_url(self.location) and self.folder.is_dir()
        location = str(self.folder.resolve()) if local else self.location
        return f"{location}#{self.options}" if self.options else location

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


def is_url(name: str) -> bool:
    """Whether a name is that of a server."""
    return name.startswith(("http://", "https://"))


def parse_name(name: str) -> SentenceModelName:
    """Understand a name.

    Raises:
        CheckpointError: an option is unknown, given twice, or not what it must be.
    """
    location, _, options = name.partition("#")
    known = _SERVER_OPTIONS if is_url(location) else _OPTIONS
    if is_url(location):
        _check_url(location)
    values: dict[str, str] = {}
    for part in options.split("&") if options else ():
        key, equals, value = part.partition("=")
        if key not in known or not equals or key in values:
            raise CheckpointError(
                f"{name}: option {part!r}: options, each once, are {', '.join(known)}"
            )
        values[key] = unquote(value)
    language = values.get("language", "en")
    if not (len(language) == 2 and language.isascii() and language.islower()):
        raise CheckpointError(f"{name}: language={language}: must be a code of two letters, as de")
    try:
        block, dimension = (int(values[k]) if k in values else None for k in _OPTIONS[:2])
    except ValueError as error:
        raise CheckpointError(f"{name}: block and dimension must be whole numbers") from error
    return SentenceModelName(
        location, options, block, dimension, values.get("prompt"), language, values.get("model")
    )


def choose(option: str, chosen: int | None, default: int, smallest: int, largest: int) -> int:
    """Return the value of an option, or its default, if it is in bounds.

    Raises:
        CheckpointError: it is not.
    """
    value = default if chosen is None else chosen
    if not smallest <= value <= largest:
        raise CheckpointError(
            f"{option}={value}: must be from {smallest} to {largest}, the most of this model"
        )
    return value


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0 and not parts.query
    except ValueError:
        usable = False
    if not usable:
        raise CheckpointError(f"{url}: is no URL of a server: http://HOST:PORT or https://HOST/v1")
    if parts.username is not None:
        raise CheckpointError(
            f"{parts.scheme}://{parts.hostname}: a key in the URL would be written into the data "
            "directory: give it as LONGMATCH_ENCODER_KEY"
        )
