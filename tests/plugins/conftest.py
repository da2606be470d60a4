"""An app with a clock that moves by hand, and the services of its built-in plugins to be ticked by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from jobkit import JobInfo, Jobkit, Recurring, Worker, hookimpl
from jobkit.config import Config
from jobkit.events import Event
from jobkit.hookspecs import Service
from jobkit.jobs import Unique
from jobkit.testing import FrozenClock
from tests.support.nodes import StillNode

START = datetime(2030, 5, 6, 12, 0, 30, tzinfo=UTC)


class Noop(Worker, name="noop"):
    n: int = 0

    def perform(self, job: JobInfo) -> None: ...


class Single(Worker, name="single", unique=Unique.worker()):
    def perform(self, job: JobInfo) -> None: ...


class Witness:
    """A plugin that keeps the events it sees and brings the entries a test gives it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.entries: list[Recurring] = []

    @hookimpl
    def jobkit_event(self, event: Event) -> None:
        self.events.append(event)

    @hookimpl
    def jobkit_schedules(self, config: Config) -> list[Recurring]:
        return self.entries

    def seen(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(START)


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
def make_app(database_url: str, clock: FrozenClock, witness: Witness) -> Iterator[Callable[..., Jobkit]]:
    made: list[Jobkit] = []

    def make(**settings: object) -> Jobkit:
        config = Config(disable=("cleanup", "filekit"), **settings)  # type: ignore[arg-type]
        app = Jobkit(database_url, config=config, workers=[Noop, Single], plugins=[witness], clock=clock)
        app.migrate()
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


@pytest.fixture
def app(make_app: Callable[..., Jobkit]) -> Jobkit:
    return make_app()


def services(app: Jobkit, node: StillNode) -> dict[str, Service]:
    """A node's services by name."""
    return {service.name: service for _, service in app.core.registry.services(app.core, node)}


def tick(app: Jobkit, service: Service) -> int:
    """One round, as the runtime gives it: a connection outside a transaction, and the clock's time."""
    with app.engine.connect() as conn:
        return service.tick(conn, app.core.clock.now())
