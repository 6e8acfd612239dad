"""The worst that strangers and small sessions can do to an engine, all at once, beside people who go on working."""
