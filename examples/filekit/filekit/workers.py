"""The workers. Args hold paths, never contents; each may run twice and leaves the same files behind."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from filekit import files
from jobkit import Discard, Done, JobInfo, NewJob, Outcome, Snooze, Unique, Worker, enqueue_all, worker
from jobkit.core import current_core

SAMPLE = 5


class ScanFolder(Worker, name="filekit_scan_folder", unique=Unique.args("folder", "output"), max_attempts=3):
    """Find the files of a folder and enqueue a job for each of them, in one batch."""

    folder: str
    output: str

    def perform(self, job: JobInfo) -> Outcome | None:
        """Discarded where the folder does not exist: trying again would not make it appear."""
        folder = Path(self.folder)
        if not folder.is_dir():
            return Discard(f"{self.folder} is not a folder")
        paths = [str(path) for path in files.files_below(folder)]
        enqueue_all(current_core().engine, self._jobs(paths))
        return Done()

    def _jobs(self, paths: list[str]) -> list[NewJob]:
        facts = [file_facts(path=path, output=self.output).job() for path in paths]
        thumbnails = [
            Thumbnail(path=path, output=self.output).job() for path in paths if files.is_image(Path(path))
        ]
        checks = [
            VerifyFacts(path=path, output=self.output).job() for path in paths[:: len(paths) // SAMPLE or 1]
        ]
        catalogue = Catalogue(folder=self.folder, output=self.output).job()
        return [*checks, catalogue, *facts, *thumbnails]


@worker(name="filekit_file_facts", queue="files", priority=2, max_attempts=3)
def file_facts(path: str, output: str) -> Outcome | None:
    """Size, SHA-256, lines and words of one file."""
    try:
        facts = files.facts_of(Path(path))
    except FileNotFoundError:
        return Discard(f"{path} is gone")
    files.write_facts(Path(output), facts)
    return None


class Thumbnail(Worker, name="filekit_thumbnail", queue="files", priority=2, max_attempts=3):
    """A thumbnail of one image."""

    path: str
    output: str
    size: int = 128

    def perform(self, job: JobInfo) -> Outcome | None:
        """Discarded where the file is no image, whatever its name says."""
        from PIL import UnidentifiedImageError

        try:
            files.write_thumbnail(Path(self.path), Path(self.output), self.size)
        except UnidentifiedImageError as error:
            return Discard(f"not an image: {error}")
        return None


class VerifyFacts(Worker, name="filekit_verify_facts", queue="files", max_attempts=8):
    """Read a file again and compare it with its facts."""

    path: str
    output: str

    def perform(self, job: JobInfo) -> None:
        """Fails, and so is tried again, while there are no facts or when they differ."""
        known = files.read_facts(Path(self.output), self.path)
        found = files.facts_of(Path(self.path))
        if known != found:
            raise ValueError(f"{self.path} has changed since its facts were taken")

    @classmethod
    def backoff(cls, attempt: int) -> timedelta:
        """Facts take seconds, not hours."""
        return timedelta(seconds=min(2**attempt, 60))


class Catalogue(Worker, name="filekit_catalogue", queue="files", unique=Unique.args("folder", "output")):
    """One page about all files of a folder."""

    folder: str
    output: str

    def perform(self, job: JobInfo) -> Outcome | None:
        """Snoozes until every file has its facts."""
        facts = []
        for path in files.files_below(Path(self.folder)):
            try:
                facts.append(files.read_facts(Path(self.output), str(path)))
            except FileNotFoundError:
                return Snooze(timedelta(seconds=2))
        files.write_catalogue(Path(self.output), self.folder, facts)
        return Done()
