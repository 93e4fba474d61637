"""The registry of architectures of encoders, by the name that recipes and checkpoints give them."""

from training.models.architecture import EncoderModel
from training.models.colde import Colde
from training.models.ernie_doc import ErnieDoc
from training.models.smith import Smith

_MODELS: tuple[type[EncoderModel], ...] = (Smith, Colde, ErnieDoc)
ENCODERS = {model.name: model for model in _MODELS}
