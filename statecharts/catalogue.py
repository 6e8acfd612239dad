"""Every chart by its name: what `chart show`, the charts' door and the tests go through."""

from collections.abc import Mapping

from hatchway.statecharts import instance, pairing, session
from hatchway.statecharts.chart import Chart

CHARTS: Mapping[str, Chart] = {chart.name: chart for chart in (pairing.CHART, session.CHART, instance.CHART)}
