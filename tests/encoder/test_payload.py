"""Data inside a text is not read, invisible characters do not part words, and all else is read."""

import base64
import random
import unicodedata
from pathlib import Path

import pytest

from encoder.checkpoint import load_checkpoint
from encoder.comparison.matches import locate_words
from encoder.errors import EmptyTextError
from encoder.payload import blank_payload
from encoder.terms.segmentation import word_spans, words_of
from encoder.tokenizer import BlockTokenizer

RANDOM = random.Random(1)
BYTES = RANDOM.randbytes(3_000)
PICTURE = f"data:image/png;base64,{base64.b64encode(BYTES).decode()}"
MINIFIED = "function(a,b){return a[b]=a[b]||{},a[b].c=function(d){return d?e(d):f},a}," * 20


@pytest.mark.parametrize(
    "payload",
    [
        PICTURE,
        base64.b64encode(BYTES).decode(),
        base64.encodebytes(BYTES).decode().strip(),  # lines of 76
        base64.urlsafe_b64encode(BYTES).decode(),
        f"0x{BYTES.hex()}",
        "data:image/svg+xml," + "%3Cpath%20d=M0" * 20,
        MINIFIED,
    ],
)
def test_payload_is_blanked_and_the_text_around_it_stays(payload: str) -> None:
    text = f"A report on lava.\n{payload}\nIt flows downhill."
    found, left_out = blank_payload(text)
    assert len(found) == len(text)
    assert " ".join(found.split()) == "A report on lava. It flows downhill."
    assert left_out == pytest.approx(len(payload), rel=0.05)
    assert words_of(text) == words_of(found)
    assert [text[start:end] for _, start, end in word_spans(text)][-1] == "downhill"
    located = locate_words(text)
    assert text[located.starts[-1] : located.ends[-1]] == "downhill"


@pytest.mark.parametrize(
    "text",
    [
        "commit 2ef7bde608ce5404e97d5f042f95f89f1c232871 and " + "0f" * 64,
        "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz" * 2,
        "https://example.org/a/long/path/of/a/page/that/has/many/parts/in/it?with=a&query=of&some=more",
        *("ACGTTGCA" * 50, "東京都は日本の首都である。" * 80, "ภาษาไทยไม่มีช่องว่างระหว่างคำ" * 40),
        *("\n".join(f"{n} {n * n} {n**3}" for n in range(400)), "=" * 200 + "\n" + "_" * 200),
        "one_very_long_identifier_of_a_program_that_somebody_wrote_" * 3,
        *(
            "a" * 200,
            "1234567890" * 20,
            ",".join(map(str, range(400))),
            "/en/Press/Release/2006" * 6,
        ),
        "for (int i = 0; i < n; i++) { total += values[i]; } " * 30,
    ],
)
def test_what_people_write_is_read(text: str) -> None:
    assert blank_payload(text) == (text, 0)


def test_a_document_is_read_without_its_picture(tiny_checkpoint: Path) -> None:
    tokenizer = BlockTokenizer(load_checkpoint(tiny_checkpoint))
    text = "The ant digs. {}\n\nThe bee flies."
    whole, without = tokenizer(text.format(PICTURE)), tokenizer(text.format(""))
    assert list(map(list, whole.blocks)) == list(map(list, without.blocks))
    assert whole.receipt.tokens == without.receipt.tokens
    assert whole.receipt.payload_characters == len(PICTURE)
    assert without.receipt.payload_characters == 0
    end = whole.offsets[-1][1]
    assert text.format(PICTURE)[:end].endswith("flies.")
    with pytest.raises(EmptyTextError, match=rf"its {len(PICTURE)} characters are data, not text"):
        tokenizer(PICTURE)


@pytest.mark.parametrize("sign", ["\u00ad", "\u200b", "\u2060", "\ufeff"])
def test_invisible_characters_do_not_part_words(sign: str, tiny_checkpoint: Path) -> None:
    plain = "Netzbetreiber leisten Übertragung"
    text = f"{sign}Netz{sign}betrei{sign}ber leisten{sign} Über{sign}tragung"
    assert words_of(text) == words_of(plain) == ["netzbetreiber", "leisten", "ubertragung"]
    assert locate_words(text).codes.tolist() == locate_words(plain).codes.tolist()
    spans = [text[start:end] for _, start, end in word_spans(text)]
    assert [span.replace(sign, "") for span in spans] == plain.split()
    tokenizer = BlockTokenizer(load_checkpoint(tiny_checkpoint))
    assert list(tokenizer(text).blocks[0]) == list(tokenizer(plain).blocks[0])


def test_persian_joiners_part_words_and_forms_of_umlauts_agree() -> None:
    assert len(words_of("می\u200cخوانند")) == 2
    decomposed = unicodedata.normalize("NFD", "Übertragung über Ämter")
    plain = locate_words("Übertragung über Ämter").codes.tolist()
    assert locate_words(decomposed).codes.tolist() == plain
    assert words_of(decomposed) == words_of("Übertragung über Ämter")
