"""The registry of architectures, by the name that recipes and checkpoints give them.

Encoders turn one document into a vector; rerankers read two documents together and have no vector.
"""

from encoder.models import colde, ernie_doc, match_ignition, smith
from encoder.models.architecture import EncoderArchitecture, RerankerArchitecture
from encoder.models.baselines import arc_i, dssm, han

ENCODERS: dict[str, EncoderArchitecture] = {
    one.name: one
    for one in (
        smith.ARCHITECTURE,
        colde.ARCHITECTURE,
        ernie_doc.ARCHITECTURE,
        han.ARCHITECTURE,
        dssm.ARCHITECTURE,
        arc_i.ARCHITECTURE,
    )
}
RERANKERS: dict[str, RerankerArchitecture] = {
    one.name: one for one in (match_ignition.ARCHITECTURE,)
}
