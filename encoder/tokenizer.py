"""Text to sentence blocks with their character offsets: split, tokenise, fill."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tokenizers import Tokenizer

from encoder.blocks import Piece, Receipt, SentenceBlocks, plan_sentence_blocks
from encoder.checkpoint import TOKENIZER, Checkpoint, read_verified
from encoder.errors import CheckpointError, EmptyTextError, TruncatedTextError
from encoder.payload import blank_payload
from encoder.sentences import replace_lone_surrogates, split_sentences

if TYPE_CHECKING:
    from encoder.reranker.checkpoint import RerankerCheckpoint

_SPACES_READ = 8  # before a sentence: more of them say nothing
_SENTENCES_A_CALL = 512  # bounds the memory that a book takes

Offsets = tuple[int, int]
# Returns the positions of the blocks to encode, ascending.
Select = Callable[[Sequence[Sequence[int]]], Sequence[int]]


class BlockTokenizer:
    """Turns a text into the sentence blocks that a checkpoint reads. Safe to call from threads."""

    def __init__(self, checkpoint: Checkpoint, select: Select | None = None) -> None:
        """Load the tokenizer of a checkpoint.

        Args:
            checkpoint: whose tokenizer it is.
            select: chooses the blocks to encode; all when not given. See `encoder.block_selection`.
        """
        self._checkpoint = checkpoint
        self._select = select
        # Between a prompt and a text; None of WordPieces, to which white space says nothing.
        self._space: str | None = checkpoint.model.get("space")
        self._capacity = checkpoint.block_capacity
        on_server = "server" in checkpoint.model
        self._tokenizer: Tokenizer | CharacterTokenizer
        self._tokenizer = CharacterTokenizer() if on_server else open_tokenizer(checkpoint)

    def __call__(self, text: str, *, strict: bool = False) -> SentenceBlocks:
        """Split, tokenise and fill.

        Args:
            text: the whole document.
            strict: raise if part of the text would be left out.

        Raises:
            EmptyTextError: the text has no token.
            TruncatedTextError: strict, and the text is longer than is read.
        """
        sentences = self._tokenise(text)
        plan = plan_sentence_blocks(
            sentences.lengths,
            capacity=self._capacity,
            long_sentence=self._checkpoint.long_sentence,
        )
        if not plan:
            raise EmptyTextError(sentences.payload)
        kept = plan[: self._checkpoint.max_blocks]
        tokens, tokens_read = sum(sentences.lengths), sum(_size(block) for block in kept)
        if strict and tokens_read < tokens:
            raise TruncatedTextError(tokens, tokens_read)
        blocks = tuple(_tokens_of(block, sentences.tokens) for block in kept)
        selected = None if self._select is None else tuple(self._select(blocks))
        encoded = kept if selected is None else [kept[position] for position in selected]
        return SentenceBlocks(
            blocks=blocks,
            offsets=tuple(_span_of(block, sentences) for block in encoded),
            receipt=Receipt(
                tokens=tokens,
                tokens_read=tokens_read,
                blocks=len(kept),
                blocks_left_out=len(plan) - len(kept),
                tokens_encoded=sum(_size(block) for block in encoded),
                payload_characters=sentences.payload,
            ),
            selected=selected,
        )

    def _tokenise(self, text: str) -> "_Sentences":
        readable, payload = blank_payload(replace_lone_surrogates(text))
        sentences = _Sentences(payload)
        room = self._checkpoint.max_blocks * self._capacity  # tokens that blocks can hold at most
        spans = split_sentences(readable, self._checkpoint.language)
        while some := list(islice(spans, _SENTENCES_A_CALL)):
            encodings: Sequence[_Encoded] = self._tokenizer.encode_batch(
                [self._before(readable, start) + readable[start:end] for start, end in some],
                add_special_tokens=False,
            )
            for (start, _), encoding in zip(some, encodings, strict=True):
                sentences.lengths.append(len(encoding))
                if room > 0:  # the rest is only counted: a text may have any length
                    sentences.tokens.append(encoding.ids)
                    lead = len(self._before(readable, start))
                    sentences.encodings.append((start, lead, encoding))
                    room -= self._most_in_blocks(len(encoding))
        return sentences

    def _before(self, text: str, start: int) -> str:
        """Return the white space that a sentence is read with."""
        if self._space is None:
            return ""
        near = text[max(0, start - _SPACES_READ) : start]
        kept = near[len(near.rstrip()) :]
        return self._space + kept if len(kept) == start else kept

    def _most_in_blocks(self, length: int) -> int:
        if self._checkpoint.long_sentence == "truncate":
            return min(length, self._capacity)
        return length


class _Encoded(Protocol):
    """The tokens of a text, as `tokenizers.Encoding` has them."""

    @property
    def ids(self) -> Any: ...

    def __len__(self) -> int: ...

    def token_to_chars(self, token: int, /) -> Offsets | None: ...


@dataclass(frozen=True, slots=True)
class _Sentences:
    """The sentences of a text.

    Attributes:
        payload: characters of the text that are none of them, as nobody reads them.
        lengths: of all of them, in tokens.
        tokens: of those that can be read.
        encodings: of these, each with the first character of the sentence, and the length of the
            space that it was read with. They know where each token is; a list of all places would
            take a tenth of the time of tokenising.
    """

    payload: int
    lengths: list[int] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    encodings: list[tuple[int, int, _Encoded]] = field(default_factory=list)

    def place_of(self, sentence: int, token: int) -> Offsets:
        """Return the characters of a token in the text."""
        start, lead, encoding = self.encodings[sentence]
        place = encoding.token_to_chars(token)
        if place is None:
            raise IndexError(f"there is no token {token} in sentence {sentence}")
        return start + max(0, place[0] - lead), start + max(0, place[1] - lead)


class CharacterTokenizer:
    """Reads a text as characters, where the tokenizer is on a server. A token is a character."""

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool) -> list["Characters"]:
        """Return the characters of each text; there are no special ones."""
        return [Characters(array("i", map(ord, text))) for text in texts]


@dataclass(frozen=True, slots=True)
class Characters:
    """The characters of a text, each of them a token."""

    ids: "array[int]"

    def __len__(self) -> int:
        return len(self.ids)

    def token_to_chars(self, token: int, /) -> Offsets | None:
        """Return where a token begins and ends."""
        return (token, token + 1) if 0 <= token < len(self.ids) else None


def open_tokenizer(checkpoint: "Checkpoint | RerankerCheckpoint") -> Tokenizer:
    """Load the tokenizer of a checkpoint, for texts of any length without special tokens."""
    data = read_verified(checkpoint.directory, checkpoint.files, TOKENIZER)
    return load_tokenizer(data, checkpoint.directory / TOKENIZER)


def load_tokenizer(data: bytes, where: Path) -> Tokenizer:
    """Load the content of a tokenizer file, as `open_tokenizer` does."""
    try:
        tokenizer: Tokenizer = Tokenizer.from_buffer(data)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
        return tokenizer
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{where}: {error}") from error


def _size(block: Sequence[Piece]) -> int:
    return sum(piece.stop - piece.start for piece in block)


def _tokens_of(block: Sequence[Piece], sentences: list[list[int]]) -> "array[int]":
    tokens = array("i")  # a tenth of the memory of a list, while a document waits
    for piece in block:
        tokens.extend(sentences[piece.sentence][piece.start : piece.stop])
    return tokens


def _span_of(block: Sequence[Piece], sentences: _Sentences) -> Offsets:
    first, last = block[0], block[-1]
    begin, _ = sentences.place_of(first.sentence, first.start)
    _, end = sentences.place_of(last.sentence, last.stop - 1)
    return begin, end
