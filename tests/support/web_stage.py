"""What the HTTP tests run on: SERVICES names the factories of services, and every test runs over each of them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from loom_worker.core.settings import Settings, WebSettings
from tests.support.memory_service import MemoryService
from web.serve import Server

Submit = Callable[..., dict[str, Any]]


class Worker(Protocol):
    """Whatever makes the turns of a service go on, step by step."""

    def start(self, turn_id: str) -> None: ...
    def say(self, turn_id: str, text: str) -> None: ...
    def finish(self, turn_id: str, output_text: str = "done") -> object: ...
    def heed(self, turn_id: str) -> object: ...
    def die(self, turn_id: str, reason: str = "dead") -> object: ...


@dataclass(frozen=True)
class Stage:
    service: Any
    worker: Worker


def settings(**web: Any) -> Settings:
    return Settings(web=WebSettings(**{"port": 0, "threads": 8, **web}))


@contextmanager
def memory_stage() -> Iterator[Stage]:
    service = MemoryService(settings())
    yield Stage(service, service)


SERVICES: dict[str, Callable[[], AbstractContextManager[Stage]]] = {"memory": memory_stage}


@dataclass
class Live:
    """A real server on loopback and what keeps it."""

    server: Server

    @property
    def port(self) -> int:
        return self.server.port
