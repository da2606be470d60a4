"""The no-op of every benchmark job: write sixteen bytes.

A tick is the job's number and the machine's monotonic time in nanoseconds. All processes append to one
file, and an append of sixteen bytes is whole, so the file counts the runs and dates the first one.
"""

import os
import struct
import time

RECORD = struct.Struct("<qq")

_fd: int | None = None


def tick(number: int) -> None:
    """Append one tick to the file that BENCH_TICKS names."""
    global _fd
    if _fd is None:
        _fd = os.open(os.environ["BENCH_TICKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(_fd, RECORD.pack(number, time.monotonic_ns()))


def count(path: str) -> int:
    """The number of ticks written so far."""
    try:
        return os.stat(path).st_size // RECORD.size
    except FileNotFoundError:
        return 0


def first_at(path: str) -> int:
    """Monotonic nanoseconds of the first tick in the file."""
    with open(path, "rb") as file:
        return int(RECORD.unpack(file.read(RECORD.size))[1])


def read(path: str) -> dict[int, int]:
    """Job number -> monotonic nanoseconds of its (last) run."""
    with open(path, "rb") as file:
        return dict(RECORD.iter_unpack(file.read()))
