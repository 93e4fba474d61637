"""The verdicts of feedback as judged queries."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from evaluation.fitting.judged_queries import JudgedQuery
from index.directory.data_directory import STORE_FILE, settle
from index.document import Document
from index.store.document_store import SQLiteDocumentStore
from index.store.schema import read_space
from service.cli.checks import OptionError
from service.feedback.store import FEEDBACK_FILE, open_feedback
from service.feedback.store import JudgedQuery as AskedQuery


def read_judged(data: Path, store: SQLiteDocumentStore) -> list[JudgedQuery]:
    """Read the feedback of a data directory by query; a server may be running.

    Verdicts on documents that are not stored are left out.

    Raises:
        StoreError: the feedback or the store cannot be read.
    """
    if not (data / FEEDBACK_FILE).exists():
        return []
    grades: dict[AskedQuery, dict[str, int]] = {}
    with closing(open_feedback(data, read_only=True)) as feedback:
        keys = Keys.of(store, feedback.documents())
        for one in feedback.all():
            asked = one.query.document_id
            if one.match_id in keys.by_id and (asked is None or asked in keys.by_id):
                grades.setdefault(one.query, {})[one.match_id] = one.grade
    return [
        JudgedQuery(
            document_id=asked.document_id,
            text=asked.text or "",
            title=asked.title,
            key=keys.by_id[asked.document_id]
            if asked.document_id
            else keys.of_text(Document("query", asked.text or "").content_hash),
            grades=found,
            answer_keys={name: keys.by_id[name] for name in found},
        )
        for asked, found in grades.items()
    ]


def keys_of_texts(
    data: Path, store: SQLiteDocumentStore, content_hashes: Sequence[bytes]
) -> set[str]:
    """Return the keys that queries with these texts have in `read_judged`.

    Raises:
        StoreError: the feedback or the store cannot be read.
    """
    with closing(open_feedback(data, read_only=True)) as feedback:
        keys = Keys.of(store, feedback.documents())
    return {keys.of_text(one) for one in content_hashes}


def open_store(data: Path) -> SQLiteDocumentStore:
    """Open the store of a data directory for reading, whatever made its vectors.

    Raises:
        StoreError: it is damaged.
    """
    settle(data)
    space = read_space(data / STORE_FILE)
    return SQLiteDocumentStore(
        data / STORE_FILE,
        fingerprint=space.fingerprint,
        dimension=space.dimension,
        read_only=True,
    )


def check_enough(data: Path, least: int, option: str, *, compared: bool = False) -> None:
    """Check that enough queries have a relevant answer; if `compared`, and a less relevant one.

    Raises:
        OptionError: too few have; says how many.
        StoreError: the feedback cannot be read.
    """
    relevant = 0
    if (data / FEEDBACK_FILE).exists():
        with closing(open_feedback(data, read_only=True)) as feedback:
            relevant = feedback.relevant_queries(compared=compared)
    if relevant < least:
        beside = " and one that is less so" if compared else ""
        raise OptionError(
            option,
            f"{data}: the feedback has {relevant} queries with a relevant match{beside}, and it "
            f"takes {least}: give more (POST /feedback), or wait for it",
        )


@dataclass(frozen=True, slots=True)
class Keys:
    """What must not be divided: of each stored document its family, or else its text.

    Attributes:
        by_id: of stored documents.
        by_text: of the same, by the hash of their text.
    """

    by_id: Mapping[str, str]
    by_text: Mapping[bytes, str]

    @classmethod
    def of(cls, store: SQLiteDocumentStore, document_ids: Sequence[str]) -> "Keys":
        """Return the keys of those of the documents that are stored."""
        families = store.families.of_ids(document_ids)
        hashes = store.content_hashes(document_ids)
        by_id = {
            name: f"family {families[name]}" if name in families else f"text {one.hex()}"
            for name, one in hashes.items()
        }
        return cls(by_id, {one: by_id[name] for name, one in hashes.items()})

    def of_text(self, content_hash: bytes) -> str:
        """Return the key of a text: that of the documents which have it, if there are any."""
        return self.by_text.get(content_hash, f"text {content_hash.hex()}")
