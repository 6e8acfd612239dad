"""Hands the journal's records on to others: syslog, OpenTelemetry, webhooks, a file. A process of its own, which reads
the journal's files and its own position, and knows nothing of the engine that writes them."""
