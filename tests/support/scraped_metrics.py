"""Metrics as a scraper reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


def parsed(text: str) -> dict[str, dict[Labels, float]]:
    """Every sample by name and labels, by the Prometheus client's own parser."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert frozenset(sample.labels.items()) not in found.setdefault(sample.name, {}), "told twice"
            found[sample.name][frozenset(sample.labels.items())] = sample.value
    return found
