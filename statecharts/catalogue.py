"""Every chart by its name, for `chart show`, the endpoint of charts, and tests."""

from collections.abc import Mapping

from hatchway.statecharts import instance, pairing, session
from hatchway.statecharts.chart import Chart

CHARTS: Mapping[str, Chart] = {chart.name: chart for chart in (pairing.CHART, session.CHART, instance.CHART)}
