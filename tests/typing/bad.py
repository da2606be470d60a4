# pyright: strict
"""What type checkers refuse: exactly the lines that say so."""

from __future__ import annotations

from jobkit.jobs import JobInfo, Unique
from jobkit.workers import Worker, worker


class Send(Worker, queue="mailers"):
    user_id: int

    async def perform(self, job: JobInfo) -> None: ...


class Misspelt(Worker, queu="mailers"):  # refused
    def perform(self, job: JobInfo) -> None: ...


class WrongOption(Worker, max_attempts="ten"):  # refused
    def perform(self, job: JobInfo) -> None: ...


@worker
def resize(image_id: int, width: int = 800) -> None: ...


@worker
def with_job(job: JobInfo, image_id: int) -> None: ...


Send(user_id="1")  # refused
Send(user=1)  # refused
Send()  # refused
resize("1")  # refused
resize(image=1)  # refused
resize()  # refused
with_job("1")  # refused
Send(1).user_id = 2  # refused
Send(1).job(queu="x")  # refused
Send(1).job(priority="high")  # refused
Send(1).job(unique=True)  # refused
Send(1).job().replace(user_id=2)  # refused
Unique.args("a", states="final")  # refused
