"""Document vectors from kept block vectors: the document level alone, thousands a second."""

import numpy as np

from encoder.onnx_encoder import OnnxEncoder
from index.embed import EmbeddedCorpus
from index.encoded_corpus import EncodedCorpus


def embed_encoded_corpus(encoded: EncodedCorpus, encoder: OnnxEncoder) -> EmbeddedCorpus:
    """Run the document level over the kept blocks of every document of a corpus.

    Block vectors are kept in half precision, so that vectors differ from served ones by about 1e-4.

    Args:
        encoded: kept by the sentence level of the same checkpoint.
        encoder: it reads at most `max_blocks` of the kept blocks of a document.
    """
    archive = encoded.archive
    limit = encoder.checkpoint.max_blocks
    vectors, read = [], []
    for row in encoded.rows.tolist():
        kept = archive.vectors(row)[:limit].astype(np.float32)
        blocks = archive.blocks(row)[:limit]
        vectors.append(encoder.encode_document(blocks, kept))
        read.append(sum(map(len, blocks)))
    return EmbeddedCorpus(
        ids=encoded.ids,
        vectors=np.stack(vectors),
        tokens=encoded.tokens,
        tokens_read=np.array(read, dtype=np.int64),
        refused=encoded.refused,
    )
