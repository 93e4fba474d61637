"""The registry of architectures of encoders, by the name that recipes and checkpoints give them."""

from training.models import baselines, colde, ernie_doc, smith
from training.models.architecture import EncoderArchitecture

ENCODERS: dict[str, EncoderArchitecture] = {
    architecture.name: architecture
    for architecture in (
        smith.ARCHITECTURE,
        colde.ARCHITECTURE,
        ernie_doc.ARCHITECTURE,
        baselines.HAN,
        baselines.DSSM,
        baselines.ARC_I,
    )
}
