"""The event loop of the charts: steps, timers, records."""
