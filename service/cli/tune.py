"""The command tune: weights fitted to feedback, adopted only if they are better.

And the verdicts of feedback as judged queries, and queries as they are searched for.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from encoder.calibration import FittedMap
from encoder.encoder import Encoder
from encoder.errors import EmptyTextError
from evaluation.fitting.feedback import (
    HELD_OUT,
    MIN_QUERIES,
    MIN_TESTED,
    OTHERS,
    Candidate,
    SearchableQuery,
    ShadowTest,
    fit_probabilities,
    fit_rule,
    run_shadow_test,
)
from evaluation.fitting.judged_queries import JudgedQuery, hold_out
from index.directory.data_directory import CALIBRATION_FILE, STORE_FILE, DataDirectory, settle
from index.document import Document
from index.engine.port import EncodedQuery
from index.errors import StoreError
from index.optional_dependencies import require_extra
from index.progress import Progress
from index.search.calibrate import open_scoring
from index.search.corpus_calibration import measure_store
from index.search.score import CorpusFusion, LinearFusion, changed_kinds
from index.sqlite.connections import utc_now
from index.store.document_store import DocumentStore
from service.cli import checks, opening, options
from service.cli.checks import OptionError
from service.cli.opening import load, opened
from service.cli.options import console, print_json
from service.cli.progress import show_progress
from service.encode import encode_alone, find_stored
from service.feedback.store import FeedbackStore
from service.feedback.store import JudgedQuery as AskedQuery
from service.settings import Settings
from service.state import existing_state


def read_judged(data: Path, store: DocumentStore) -> list[JudgedQuery]:
    """Read the feedback of a data directory by query; a server may be running.

    Verdicts on documents that are not stored are left out.
    """
    grades: dict[AskedQuery, dict[str, int]] = {}
    with existing_state(data) as state:
        if state is None:
            return []
        feedback = FeedbackStore(state)
        keys, by_text = _keys(store, feedback.documents())
        for verdict in feedback.all():
            asked = verdict.query.document_id
            if verdict.match_id in keys and (asked is None or asked in keys):
                grades.setdefault(verdict.query, {})[verdict.match_id] = verdict.grade
    return [
        JudgedQuery(
            document_id=asked.document_id,
            text=asked.text or "",
            title=asked.title,
            key=keys[asked.document_id]
            if asked.document_id
            else _key_of_text(by_text, Document("query", asked.text or "").content_hash),
            grades=found,
            answer_keys={name: keys[name] for name in found},
        )
        for asked, found in grades.items()
    ]


def keys_of_texts(data: Path, store: DocumentStore, content_hashes: Sequence[bytes]) -> set[str]:
    """Return the keys that queries with these texts have in `read_judged`."""
    with existing_state(data) as state:
        _, by_text = _keys(store, [] if state is None else FeedbackStore(state).documents())
    return {_key_of_text(by_text, content_hash) for content_hash in content_hashes}


def open_store(data: Path) -> DocumentStore:
    """Open the store of a data directory for reading, whatever made its vectors."""
    settle(data)
    return DocumentStore(data / STORE_FILE, read_only=True, database=Settings().database)


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


def _keys(
    store: DocumentStore, document_ids: Sequence[str]
) -> tuple[dict[str, str], dict[bytes, str]]:
    """Return what must not be divided: of each stored document its family, or else its text.

    Once by the id of the document, and once by the hash of its text.
    """
    families = store.families.of_ids(document_ids)
    hashes = store.content_hashes(document_ids)
    by_id = {
        name: f"family {families[name]}" if name in families else _key_of_text({}, digest)
        for name, digest in hashes.items()
    }
    return by_id, {digest: by_id[name] for name, digest in hashes.items()}


def _key_of_text(by_text: Mapping[bytes, str], content_hash: bytes) -> str:
    """Return the key of a text: that of the documents which have it, if there are any."""
    return by_text.get(content_hash, f"text {content_hash.hex()}")


_PASSAGE_WORDS = 20  # so few that the weights decide whether their document is found


def searchable(
    sides: Sequence[tuple[Encoder, DataDirectory]],
    judged: Sequence[JudgedQuery],
    progress: Progress,
    *,
    complete: bool = False,
) -> list[list[SearchableQuery]]:
    """Return queries as they are searched for: texts are encoded, documents have their vectors.

    Args:
        sides: data directories in which to search for the same queries, each with its encoder.
        judged: the queries.
        progress: is notified of each.
        complete: whether documents without a grade are not relevant.

    Returns:
        The queries of each side, without those whose document cannot be read, or whose text has no
        token, on any side.
    """
    progress.started("reading the queries", len(judged), unit="queries")
    found = []
    for query in judged:
        forms = [form for side in sides if (form := _query(*side, query)) is not None]
        progress.advanced(1)
        if len(forms) == len(sides):
            found.append([SearchableQuery(form, query.grades, complete) for form in forms])
    return [[forms[side] for forms in found] for side in range(len(sides))]


def passages(
    data: DataDirectory, judged: Sequence[JudgedQuery], progress: Progress
) -> list[JudgedQuery]:
    """Return passages as queries that each look for their document, first without feedback."""
    named = {name for query in judged for name in (query.document_id, *query.grades)}
    ids = data.store.log.added_after(0)[1].tolist()
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


def print_comparisons(report: Mapping[str, Any]) -> None:
    """Print in words what the report of a shadow test compares."""
    for name, what in (
        ("held_out", "held-out queries"),
        ("others", "passages of other documents"),
    ):
        found, gain = report[name], report[name]["difference"]
        console.print(
            f"{found['queries']} {what}: nDCG@10 {found['present']:.4f} -> {found['new']:.4f} "
            f"({gain['difference']:+.4f}, 95 % interval {gain['low']:+.4f} to {gain['high']:+.4f})"
        )


def _query(loaded: Encoder, data: DataDirectory, query: JudgedQuery) -> EncodedQuery | None:
    if query.document_id is None:
        try:
            return encode_alone(loaded, query.text, query.title)
        except EmptyTextError:
            return None
    return find_stored(data, [query.document_id]).get(query.document_id)


def _passage(document: Document) -> str:
    """Return some words from the middle of a text."""
    words = document.text.split()
    start = max(0, (len(words) - _PASSAGE_WORDS) // 2)
    return " ".join(words[start : start + _PASSAGE_WORDS])


def tune(
    data: options.DataArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Test, and adopt nothing whatever the result is.")
    ] = False,
    as_json: options.JsonOption = False,
    encoder: options.EncoderOption = None,
) -> None:
    """Fit the weights of vectors, alignment and words to feedback, and adopt them if better.

    One half of the queries is held out to test them. No document is encoded again. A server may be
    running, which uses the new weights from its next start.
    """
    require_extra("evaluate", "tune")
    opening.check_data_directory(data, "DATA")
    checks.output_folder(data, "DATA")
    check_enough(data, MIN_QUERIES, "DATA", compared=True)
    loaded = load(encoder, data=data)
    present = open_scoring(loaded.checkpoint, data).rule
    with opened(data, loaded.checkpoint, read_only=True) as directory:
        judged = read_judged(data, directory.store)
        parts = _divide(data, [query for query in judged if query.compares])
        with show_progress(console) as progress:
            side = [(loaded, directory)]
            ((fitted,), (held_out,)) = (searchable(side, part, progress) for part in parts)
            new = fit_rule(directory, present, fitted, progress)
            texts = passages(directory, judged, progress)
            (known,) = searchable(side, texts, progress, complete=True)
            tuned = Candidate(directory, new, held_out, known)
            before = Candidate(directory, present, held_out, known)
            test = run_shadow_test(before, tuned, progress)
            report = {
                "created": utc_now(),
                "present": asdict(present),
                "new": asdict(new),
                "fitted_to": len(fitted),
                **asdict(test),
                "adopted": test.refused is None and not dry_run,
            }
            if report["adopted"]:
                maps = _probabilities(present, tuned, report, progress)
                adopted = CorpusFusion(loaded.fingerprint, new, report, maps)
                _adopt(directory, adopted, progress)
    if as_json:
        print_json(report)
        return
    _print(data, report, test)


def _divide(
    data: Path, judged: Sequence[JudgedQuery]
) -> tuple[list[JudgedQuery], list[JudgedQuery]]:
    """Return the queries to fit to and those to test with; neither part is nearly empty."""
    held = hold_out(judged, HELD_OUT)
    fitted = [query for query, out in zip(judged, held, strict=True) if not out]
    tested = [query for query, out in zip(judged, held, strict=True) if out]
    if min(len(fitted), len(tested)) < MIN_TESTED:
        raise OptionError(
            "DATA",
            f"{data}: too many queries of the feedback are of one text or answers of one another: "
            f"they divide into {len(fitted)} and {len(tested)}, and each part takes {MIN_TESTED}",
        )
    return fitted, tested


def _probabilities(
    present: LinearFusion, tuned: Candidate, report: dict[str, Any], progress: Progress
) -> dict[str, FittedMap]:
    """Fit what scores that changed are worth, where there are verdicts enough; add to the report.

    By the held-out queries: to the others the weights were fitted.
    """
    report["probabilities"] = {}
    if "hybrid" not in changed_kinds(present, tuned.rule):
        return {}
    found = fit_probabilities(tuned, progress)
    figures = {name: figure for name, figure in asdict(found).items() if name != "fitted"}
    report["probabilities"]["hybrid"] = figures
    return {} if found.fitted is None else {"hybrid": found.fitted}


def _adopt(directory: DataDirectory, fusion: CorpusFusion, progress: Progress) -> None:
    """Write the new rule, and measure the scores of random pairs again if they were measured.

    After a kill there is the old rule or the new one, perhaps without a calibration.
    """
    path = directory.path / CALIBRATION_FILE
    measured = None
    if path.exists():
        measured = measure_store(directory.store, fusion.rule, progress)
        path.unlink()
    fusion.write(directory.path)
    if measured is not None:
        measured.write(directory.path)


def _print(data: Path, report: dict[str, Any], found: ShadowTest) -> None:
    for name in ("hybrid_alignment_weight", "lexical_weight"):
        console.print(f"{name}: {report['present'][name]:g} -> {report['new'][name]:g}")
    print_comparisons(report)
    if found.refused is not None:
        console.print(f"{data}: not adopted, nothing has changed: {found.refused}")
    elif not report["adopted"]:
        console.print(f"{data}: better; nothing has changed, for want of a run without --dry-run")
    else:
        for kind, outcome in report["probabilities"].items():
            pairs = f"{outcome['relevant']} relevant matches and {outcome['not_relevant']} others"
            fitted = "fitted" if outcome["refused"] is None else f"unknown: {outcome['refused']}"
            console.print(f"probabilities of {kind} scores, by {pairs}: {fitted}")
        console.print(f"{data}: adopted; a server uses it from its next start")
