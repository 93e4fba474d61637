"""The registry of architectures, by the name that recipes and checkpoints give them.

Encoders turn one document into a vector; rerankers read two documents together and have no vector.
"""

from encoder.models import baselines, colde, ernie_doc, match_ignition, smith
from encoder.models.architecture import EncoderArchitecture, RerankerArchitecture

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
RERANKERS: dict[str, RerankerArchitecture] = {
    match_ignition.ARCHITECTURE.name: match_ignition.ARCHITECTURE
}
