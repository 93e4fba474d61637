"""A WordPiece vocabulary of the texts of pretraining: nothing is taken from another model."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from encoder.atomic_files import replace_durably
from encoder.checkpoint import TOKENIZER
from index.corpus.reader import read_corpus
from index.document import Document

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def keep_vocabulary(folder: Path, corpora: Sequence[Path], documents: int, size: int) -> Path:
    """Return a folder with a tokenizer; if it is missing, it is made.

    Args:
        folder: that keeps it.
        corpora: whose texts are read, one after another.
        documents: that are read, at most.
        size: of the vocabulary, special tokens included.

    Raises:
        CorpusError: a corpus cannot be read.
        OSError: a file cannot be written.
    """
    path = folder / TOKENIZER
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=list(_SPECIAL), show_progress=False
        )
        tokenizer.train_from_iterator(islice(_texts(corpora), documents), trainer)
        partial = path.with_suffix(".partial")
        tokenizer.save(str(partial))
        replace_durably(partial, path)
    return folder


def _texts(corpora: Sequence[Path]) -> Iterator[str]:
    for corpus in corpora:
        yield from (one.text for one in read_corpus(corpus) if isinstance(one, Document))
