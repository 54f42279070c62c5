"""Processes that share work: by pipes, semaphores, shared memory and threads."""

import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
import threading
from multiprocessing import shared_memory

import counting

WORKERS = os.process_cpu_count() if hasattr(os, "process_cpu_count") else len(os.sched_getaffinity(0))


def test_a_pool_of_as_many_as_there_are_processors():
    with multiprocessing.Pool(WORKERS) as pool:
        assert sum(pool.map(counting.twice, range(1000))) == 999_000


def test_spawned_processes():
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(counting.twice, [1, 2])) == [2, 4]


def fill(name):
    memory = shared_memory.SharedMemory(name)
    memory.buf[:5] = b"child"
    memory.close()


def test_shared_memory():
    memory = shared_memory.SharedMemory(create=True, size=4096)
    child = multiprocessing.Process(target=fill, args=(memory.name,))
    child.start()
    child.join()
    assert bytes(memory.buf[:5]) == b"child"
    memory.close()
    memory.unlink()


def test_threads_and_a_subprocess():
    said = []
    argv = [sys.executable, "-c", "import sys; print(sys.prefix)"]
    threads = [threading.Thread(target=lambda: said.append(subprocess.check_output(argv))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [f"{sys.prefix}\n".encode()] * 2
