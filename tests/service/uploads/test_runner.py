"""The runner of jobs: in the order of the store, woken by each new job, stopped by no failure."""

import hashlib
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from index.errors import StoreError
from service.metrics import Metrics
from service.settings import Settings
from service.state import State, open_state
from service.uploads.logic import Jobs
from service.uploads.store import Job, Upload

DIGEST = hashlib.sha256(b"").digest()


@pytest.fixture
def make_jobs(tmp_path: Path) -> Iterator[Callable[[], Jobs]]:
    """Return a function that opens the jobs of one data directory, as a restart does."""
    opened: list[tuple[Jobs, State]] = []

    def make() -> Jobs:
        state = open_state(tmp_path)
        jobs = Jobs(state, tmp_path, Settings(data=tmp_path), Metrics().of("default"))
        opened.append((jobs, state))
        return jobs

    yield make
    for jobs, state in opened:
        jobs.worker.close()
        jobs.threads.shutdown()
        state.close()


class Recorder:
    """A runner of jobs that ends each, and remembers the order."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.ran: list[str] = []
        self.ended = threading.Semaphore(0)
        self.failures = 0  # still to come
        self.turns: dict[str, int] = {}  # of a job, of which each is over as soon as it may be

    def __call__(self, job: Job) -> None:
        self.ran.append(job.id)
        while self.turns.get(job.id, 1) > 1:
            self.turns[job.id] -= 1
            if self.jobs.turn_is_over(job):
                return
            self.ran.append(job.id)
        if self.failures:
            self.failures -= 1
            raise StoreError("store.sqlite3: database or disk is full")
        self.jobs.end(job.id, "done")
        self.ended.release()

    def wait(self, jobs: int) -> None:
        for _ in range(jobs):
            assert self.ended.acquire(timeout=120)


def add(jobs: Jobs, client: str = "") -> str:
    job_id = uuid.uuid4().hex
    jobs.store.insert(Upload(id=job_id, size=1, accepted=1, digest=DIGEST), client)
    jobs.worker.woken.set()
    return job_id


def test_jobs_run_in_the_order_in_which_they_were_stored(make_jobs: Callable[[], Jobs]) -> None:
    earlier = make_jobs()
    ids = [add(earlier) for _ in range(3)]
    interrupted = earlier.store.begin(earlier.store.unfinished()[0])
    assert interrupted is not None
    assert (interrupted.id, interrupted.state) == (ids[0], "running")
    earlier.worker.close()
    jobs = make_jobs()
    runner = Recorder(jobs)
    jobs.start(runner)
    ids += [add(jobs) for _ in range(3)]
    runner.wait(6)
    assert runner.ran == ids


def test_a_new_job_wakes_the_runner(
    make_jobs: Callable[[], Jobs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.uploads.logic._IDLE_SECONDS", 3600.0)
    jobs = make_jobs()
    runner = Recorder(jobs)
    jobs.start(runner)
    for _ in range(20):
        add(jobs)
        runner.wait(1)


def test_a_paused_job_is_tried_again_before_later_ones(
    make_jobs: Callable[[], Jobs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.uploads.logic._RETRY_SECONDS", 0.01)
    jobs = make_jobs()
    first, second = add(jobs), add(jobs)
    runner = Recorder(jobs)
    runner.failures = 2
    jobs.start(runner)
    runner.wait(2)
    assert runner.ran == [first, first, first, second]


def test_clients_take_turns_and_keep_their_own_order(
    make_jobs: Callable[[], Jobs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.uploads.logic._TURN_SECONDS", 0.0)
    jobs = make_jobs()
    large, later = add(jobs, "key:a"), add(jobs, "key:a")
    assert not jobs.turn_is_over(jobs.store.find(large))  # nobody else waits
    small, other = add(jobs, "key:b"), add(jobs, "key:c")
    runner = Recorder(jobs)
    runner.turns = {large: 4, other: 2}
    jobs.start(runner)
    runner.wait(4)
    assert runner.ran[:3] == [large, small, other]
    assert [item for item in runner.ran if item in (large, later)] == [large] * 4 + [later]
    assert runner.ran.index(small) < runner.ran.index(other) < len(runner.ran) - 3
