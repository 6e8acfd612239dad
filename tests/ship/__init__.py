"""Handing records on: real syslog, a receiver of OpenTelemetry, webhooks that fail in every way, files."""
