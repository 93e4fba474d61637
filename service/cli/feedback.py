"""The verdicts of feedback as judged queries, and queries as they are searched for."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoder.encoder import Encoder
from encoder.errors import EmptyTextError
from evaluation.fitting.feedback import OTHERS, SearchableQuery
from evaluation.fitting.judged_queries import JudgedQuery
from index.directory.data_directory import STORE_FILE, DataDirectory, settle
from index.document import Document
from index.errors import StoreError
from index.progress import Progress
from index.search.records import EncodedQuery
from index.store.document_store import DocumentStore
from service.cli.checks import OptionError
from service.cli.opening import encode_query, space_of
from service.feedback.store import FeedbackStore
from service.feedback.store import JudgedQuery as AskedQuery
from service.match.queries import find_stored
from service.settings import Settings
from service.state.database import existing_state


def read_judged(data: Path, store: DocumentStore) -> list[JudgedQuery]:
    """Read the feedback of a data directory by query; a server may be running.

    Verdicts on documents that are not stored are left out.
    """
    grades: dict[AskedQuery, dict[str, int]] = {}
    with existing_state(data) as state:
        if state is None:
            return []
        feedback = FeedbackStore(state)
        keys = Keys.of(store, feedback.documents())
        for verdict in feedback.all():
            asked = verdict.query.document_id
            if verdict.match_id in keys.by_id and (asked is None or asked in keys.by_id):
                grades.setdefault(verdict.query, {})[verdict.match_id] = verdict.grade
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


def keys_of_texts(data: Path, store: DocumentStore, content_hashes: Sequence[bytes]) -> set[str]:
    """Return the keys that queries with these texts have in `read_judged`."""
    with existing_state(data) as state:
        keys = Keys.of(store, [] if state is None else FeedbackStore(state).documents())
    return {keys.of_text(content_hash) for content_hash in content_hashes}


def open_store(data: Path) -> DocumentStore:
    """Open the store of a data directory for reading, whatever made its vectors."""
    settle(data)
    space = space_of(data)
    return DocumentStore(
        data / STORE_FILE,
        fingerprint=space.fingerprint,
        dimension=space.dimension,
        read_only=True,
        database=Settings().database,
    )


def check_enough(data: Path, least: int, option: str, *, compared: bool = False) -> None:
    """Check that enough queries have a relevant answer; if `compared`, and a less relevant one."""
    with existing_state(data) as state:
        relevant = 0 if state is None else FeedbackStore(state).relevant_queries(compared=compared)
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
    def of(cls, store: DocumentStore, document_ids: Sequence[str]) -> "Keys":
        """Return the keys of those of the documents that are stored."""
        families = store.families.of_ids(document_ids)
        hashes = store.content_hashes(document_ids)
        by_id = {
            name: f"family {families[name]}" if name in families else f"text {digest.hex()}"
            for name, digest in hashes.items()
        }
        return cls(by_id, {digest: by_id[name] for name, digest in hashes.items()})

    def of_text(self, content_hash: bytes) -> str:
        """Return the key of a text: that of the documents which have it, if there are any."""
        return self.by_text.get(content_hash, f"text {content_hash.hex()}")


_PASSAGE_WORDS = 20  # so few that the weights decide whether their document is found


def asked(
    loaded: Encoder,
    data: DataDirectory,
    judged: Sequence[JudgedQuery],
    progress: Progress,
    *,
    complete: bool = False,
) -> list[SearchableQuery | None]:
    """Return queries as they are searched for: texts are encoded, documents have their vectors.

    Args:
        loaded: the encoder of the data directory.
        data: where they are searched for.
        judged: Q queries.
        progress: is notified of each.
        complete: whether documents without a grade are not relevant.

    Returns:
        Q of them; None for a document that cannot be read, or a text without a token.
    """
    progress.started("reading the queries", len(judged), unit="queries")
    found: list[SearchableQuery | None] = []
    for question in judged:
        query = _query(loaded, data, question)
        progress.advanced(1)
        found.append(None if query is None else SearchableQuery(query, question.grades, complete))
    return found


def passages(
    data: DataDirectory, judged: Sequence[JudgedQuery], progress: Progress
) -> list[JudgedQuery]:
    """Return passages as queries that each look for their document, first without feedback."""
    named = {name for query in judged for name in (query.document_id, *query.grades)}
    ids = data.store.changes_since(0).added.tolist()
    chosen = random.Random(0).sample(ids, min(len(ids), 4 * OTHERS))  # noqa: S311  no secret
    summaries = data.store.get(chosen).values()
    names = sorted((summary.id for summary in summaries), key=lambda name: name in named)[:OTHERS]
    progress.started("reading other documents", len(names))
    found = []
    for name in names:
        stored = data.store.find([name]).get(name)
        progress.advanced(1)
        if stored is not None:
            found.append(JudgedQuery(None, _passage(stored.document), "", "", {name: 1}, {}))
    if not found:
        raise StoreError(f"{data.path}: no document can be read")
    return found


def described(what: str, found: Mapping[str, Any]) -> str:
    """Return in words what a report has of a comparison."""
    gain = found["difference"]
    return (
        f"{found['queries']} {what}: nDCG@10 {found['present']:.4f} -> {found['new']:.4f} "
        f"({gain['difference']:+.4f}, 95 % interval {gain['low']:+.4f} to {gain['high']:+.4f})"
    )


def _query(loaded: Encoder, data: DataDirectory, query: JudgedQuery) -> EncodedQuery | None:
    if query.document_id is None:
        try:
            return encode_query(loaded, loaded.read(query.text), query.text, query.title)
        except EmptyTextError:
            return None
    stored = find_stored(data, [query.document_id]).get(query.document_id)
    if stored is None:
        return None
    return EncodedQuery(stored.text, stored.vector, stored.title, None, stored.vector_id)


def _passage(document: Document) -> str:
    """Return some words from the middle of a text."""
    words = document.text.split()
    start = max(0, (len(words) - _PASSAGE_WORDS) // 2)
    return " ".join(words[start : start + _PASSAGE_WORDS])
