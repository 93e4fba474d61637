import random

from benchmarks.server.load import NO_ANSWER, SIZE_CLASSES, Answer, TextSource, summarise
from index.document import Document


def test_texts_have_the_planned_words_log_uniform() -> None:
    source = TextSource([Document(id="a", text="one two  three\n\nfour five")])
    counts = []
    for seed in range(200):
        count, text = source.sample(random.Random(seed))
        assert len(text.split()) == count
        counts.append(count)
    assert min(counts) >= SIZE_CLASSES[0]
    assert max(counts) <= SIZE_CLASSES[-1]
    # about half are under the geometric mean of the borders, 1,000 words
    assert 70 < sum(count < 1_000 for count in counts) < 130


def test_latencies_are_kept_apart_by_size_and_rejections() -> None:
    answers = [
        Answer(60, 200, 0.1, tokens=80),
        Answer(20_000, 200, 9.0, tokens=25_000),
        Answer(19_000, 503, 0.01, retry_after=7),
        Answer(300, NO_ANSWER, 0.5),
    ]
    results = summarise(answers, lasted=10.0)
    assert results["statuses"] == {"200": 2, "503": 1, "no answer": 1}
    assert results["tokens_per_second"] == 2508
    latencies = results["latency_seconds"]
    assert latencies["50 to 200 words"] == {"answers": 1, "p50": 0.1, "p95": 0.1, "p99": 0.1}
    assert latencies["200 to 1,000 words"] == {"answers": 0}
    assert latencies["5,000 to 20,000 words"]["p50"] == 9.0
    assert latencies["refused"]["p50"] == 0.01
    assert results["retry_after_seconds"]["p50"] == 7.0
