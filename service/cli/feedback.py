"""What learns from feedback: its verdicts as judged queries, and the command tune."""

import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from encoder.errors import EmptyTextError
from evaluation.fitting.feedback import (
    HELD_OUT,
    MIN_QUERIES,
    OTHERS,
    Asked,
    Compared,
    ShadowTest,
    fit_rule,
    run_shadow_test,
)
from evaluation.fitting.judged_queries import JudgedQuery, hold_out
from index.directory.data_directory import CALIBRATION_FILE, STORE_FILE, DataDirectory, settle
from index.document import Document
from index.errors import StoreError
from index.extras import require_extra
from index.progress import Progress
from index.search.corpus_calibration import write_corpus_calibration
from index.search.corpus_fusion import CorpusFusion, fusion_of, write_corpus_fusion
from index.search.fusion import LinearFusion
from index.search.records import EncodedQuery
from index.sqlite.connections import utc_now
from index.store.document_store import SQLiteDocumentStore
from index.store.schema import read_space
from service.cli.calibration import measure_calibration
from service.cli.checks import OptionError, check_data_directory, check_output_folder
from service.cli.data import DataArgument
from service.cli.options import (
    CheckpointOption,
    Loaded,
    PrecisionOption,
    ProviderOption,
    ThreadsOption,
    console,
    load,
    opened,
    print_json,
)
from service.cli.progress import show_progress
from service.feedback.store import FEEDBACK_FILE, open_feedback
from service.feedback.verdict import JudgedQuery as AskedQuery
from service.matching.queries import find_stored

_PASSAGE_WORDS = 20  # so few that the weights decide whether their document is found


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
        keys, texts = _keys(store, feedback.documents())
        for one in feedback.all():
            asked = one.query.document_id
            if one.match_id in keys and (asked is None or asked in keys):
                grades.setdefault(one.query, {})[one.match_id] = one.grade
    return [
        JudgedQuery(
            document_id=asked.document_id,
            text=asked.text or "",
            title=asked.title,
            key=keys[asked.document_id]
            if asked.document_id
            else _text_key(asked.text or "", texts),
            grades=found,
            answer_keys={name: keys[name] for name in found},
        )
        for asked, found in grades.items()
    ]


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


def tune(
    data: DataArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Test, and adopt nothing whatever the result is.")
    ] = False,
    others: Annotated[
        int,
        typer.Option(min=20, help="Passages of other documents that must not get worse matches."),
    ] = OTHERS,
    seed: Annotated[int, typer.Option(help="Of the choice of these passages.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Fit the weights of vectors, alignment and words to feedback, and adopt them if better.

    One half of the queries is held out to test them. No document is encoded again. A server may be
    running, which uses the new weights from its next start.
    """
    require_extra("evaluate", "tune", "ir_measures")
    require_extra("evaluate", "tune", "scipy")
    check_data_directory(data, "DATA")
    check_output_folder(data, "DATA")
    check_enough(data, MIN_QUERIES, "DATA", compared=True)
    loaded = load(checkpoint, precision, provider, threads, data)
    present = fusion_of(data, loaded.checkpoint, loaded.encoder.adapter)
    with opened(data, loaded.encoder, read_only=True) as directory:
        judged = read_judged(data, directory.store)
        parts = _divide(data, [one for one in judged if one.compares])
        with show_progress(console) as progress:
            fitted, held_out = (_asked(loaded, directory, part, progress) for part in parts)
            new = fit_rule(directory, present, fitted, progress)
            known = _passages(loaded, directory, judged, others, seed, progress)
            found = run_shadow_test(directory, (present, new), held_out, known, progress)
            report = _report((present, new), len(fitted), found, dry_run=dry_run)
            if report["adopted"]:
                adopted = CorpusFusion(loaded.encoder.fingerprint, new, report)
                _adopt(data, directory, loaded, adopted, progress)
    if as_json:
        print_json(report)
        return
    _print(data, report, found)


def _divide(
    data: Path, judged: Sequence[JudgedQuery]
) -> tuple[list[JudgedQuery], list[JudgedQuery]]:
    """Return the queries to fit to and those to test with; neither part is nearly empty."""
    held = hold_out(judged, HELD_OUT)
    fitted = [one for one, out in zip(judged, held, strict=True) if not out]
    tested = [one for one, out in zip(judged, held, strict=True) if out]
    least = MIN_QUERIES // 4
    if min(len(fitted), len(tested)) < least:
        raise OptionError(
            "DATA",
            f"{data}: too many queries of the feedback are of one text or answers of one another: "
            f"they divide into {len(fitted)} and {len(tested)}, and each part takes {least}",
        )
    return fitted, tested


def _asked(
    loaded: Loaded, data: DataDirectory, judged: Sequence[JudgedQuery], progress: Progress
) -> list[Asked]:
    """Return queries as they are searched for: texts are encoded, documents have their vectors."""
    progress.started("reading the queries", len(judged), unit="queries")
    found = []
    for one in judged:
        query = _query(loaded, data, one)
        progress.advanced(1)
        if query is not None:
            found.append(Asked(query, one.grades, complete=False))
    return found


def _query(loaded: Loaded, data: DataDirectory, one: JudgedQuery) -> EncodedQuery | None:
    if one.document_id is None:
        return _encoded(loaded, one.text, one.title)
    stored = find_stored(data, [one.document_id], skip_damaged=True).get(one.document_id)
    if stored is None:
        return None
    return EncodedQuery(stored.text, stored.vector, stored.title, None, stored.vector_id)


def _encoded(loaded: Loaded, text: str, title: str = "") -> EncodedQuery | None:
    try:
        blocks = loaded.tokenizer(text)
    except EmptyTextError:
        return None
    made = loaded.encoder.encode([blocks])
    return EncodedQuery(text, made.document_vectors[0], title, made.block_vectors[0])


def _passages(
    loaded: Loaded,
    data: DataDirectory,
    judged: Sequence[JudgedQuery],
    number: int,
    seed: int,
    progress: Progress,
) -> list[Asked]:
    """Return passages of stored documents that look for these, first of those without feedback."""
    named = {name for one in judged for name in (one.document_id, *one.grades)}
    ids = data.store.changes_since(0).added.tolist()
    chosen = random.Random(seed).sample(ids, min(len(ids), 4 * number))  # noqa: S311  no secret
    summaries = data.store.get(chosen, skip_damaged=True).values()
    names = sorted((one.id for one in summaries), key=lambda name: name in named)[:number]
    progress.started("reading other documents", len(names))
    found = []
    for name in names:
        stored = data.store.find([name], skip_damaged=True).get(name)
        query = None if stored is None else _encoded(loaded, _passage(stored.document))
        progress.advanced(1)
        if query is not None:
            found.append(Asked(query, {name: 1}, complete=True))
    if not found:
        raise StoreError(f"{data.path}: no document can be read")
    return found


def _passage(document: Document) -> str:
    """Return some words from the middle of a text."""
    words = document.text.split()
    start = max(0, (len(words) - _PASSAGE_WORDS) // 2)
    return " ".join(words[start : start + _PASSAGE_WORDS])


def _adopt(
    data: Path, directory: DataDirectory, loaded: Loaded, fusion: CorpusFusion, progress: Progress
) -> None:
    """Write the new rule, and measure the scores of random pairs again if they were measured.

    After a kill there is the old rule or the new one, perhaps without a calibration.
    """
    path = data / CALIBRATION_FILE
    measured = None
    if path.exists():
        measured = measure_calibration(
            directory.store,
            loaded.encoder,
            fusion.rule,
            progress,
            adapted=loaded.encoder.adapter is not None,
        )
        path.unlink()
    write_corpus_fusion(data, fusion)
    if measured is not None:
        write_corpus_calibration(data, measured)


def _report(
    rules: tuple[LinearFusion, LinearFusion], fitted: int, found: ShadowTest, *, dry_run: bool
) -> dict[str, Any]:
    return {
        "created": utc_now(),
        "present": asdict(rules[0]),
        "new": asdict(rules[1]),
        "fitted_to": fitted,
        **asdict(found),
        "adopted": found.refused is None and not dry_run,
    }


def _print(data: Path, report: dict[str, Any], found: ShadowTest) -> None:
    for name in ("alignment_weight", "lexical_weight"):
        console.print(f"{name}: {report['present'][name]:g} -> {report['new'][name]:g}")
    console.print(_described("held-out queries", found.held_out))
    console.print(_described("passages of other documents", found.others))
    if found.refused is not None:
        console.print(f"{data}: not adopted, nothing has changed: {found.refused}")
    elif not report["adopted"]:
        console.print(f"{data}: better; nothing has changed, for want of a run without --dry-run")
    else:
        console.print(
            f"{data}: adopted; a server uses it from its next start. Probabilities of scores that "
            "changed are unknown"
        )


def _described(what: str, one: Compared) -> str:
    gain = one.difference
    return (
        f"{one.queries} {what}: nDCG@10 {one.present:.4f} -> {one.new:.4f} "
        f"({gain.difference:+.4f}, 95 % interval {gain.low:+.4f} to {gain.high:+.4f})"
    )


def _keys(
    store: SQLiteDocumentStore, document_ids: Sequence[str]
) -> tuple[dict[str, str], dict[bytes, str]]:
    """Return the key of each stored document, its family or else its text; by id and by text."""
    families = store.families.of_ids(document_ids)
    hashes = store.content_hashes(document_ids)
    keys = {
        name: f"family {families[name]}" if name in families else f"text {content_hash.hex()}"
        for name, content_hash in hashes.items()
    }
    return keys, {content_hash: keys[name] for name, content_hash in hashes.items()}


def _text_key(text: str, known: Mapping[bytes, str]) -> str:
    """Return the key of a text: that of the documents which have it, if there are any."""
    content_hash = Document("query", text).content_hash
    return known.get(content_hash, f"text {content_hash.hex()}")
