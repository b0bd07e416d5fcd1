"""What `/metrics` of a running system says: samples by name and labels, and how they change."""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tests.support.system import System

Sample = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class Scrape:
    """One answer of `/metrics`."""

    text: str
    samples: dict[Sample, float]

    def of(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name that have these labels."""
        wanted = labels.items()
        return sum(value for (known, has), value in self.samples.items() if known == name and wanted <= has)

    def only_growing(self) -> dict[Sample, float]:
        """Counters, and what histograms count."""
        ends = ("_total", "_bucket", "_count", "_sum")
        return {sample: value for sample, value in self.samples.items() if sample[0].endswith(ends)}


def scrape(system: System) -> Scrape:
    """Ask now."""
    answer = system.get("/metrics")
    assert answer.status == 200, answer.text
    return Scrape(answer.text, dict(_samples(answer.text)))


def _samples(text: str) -> Iterator[tuple[Sample, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield (sample.name, frozenset(sample.labels.items())), sample.value
