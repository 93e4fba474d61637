import subprocess
import sys

COUNT = """
import faiss, numpy
from threadpoolctl import threadpool_info
from service.threads import limit_numpy_threads

def counts():
    return {
        "numpy" in one["filepath"]: one["num_threads"]
        for one in threadpool_info()
        if one["user_api"] == "blas"
    }

before = counts()
limit_numpy_threads()
after = counts()
assert after[True] == 1, after
assert after.get(False) == before.get(False), after
"""


def test_numpy_multiplies_in_the_calling_thread() -> None:
    subprocess.run([sys.executable, "-c", COUNT], check=True)


GARBAGE = """
import gc
from service.threads import pause_garbage_collection, resume_garbage_collection

pause_garbage_collection()
assert not gc.isenabled()
made = [[]]
resume_garbage_collection()
assert gc.isenabled()
assert gc.get_freeze_count() > 0
assert not any(one is made for one in gc.get_objects())
"""


def test_what_a_start_makes_is_not_searched_for_garbage() -> None:
    subprocess.run([sys.executable, "-c", GARBAGE], check=True)
