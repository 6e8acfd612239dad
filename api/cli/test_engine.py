"""`hatchway test-engine`: an engine to test clients against, in memory, whose clock stands still until it is told."""

from __future__ import annotations

import click


@click.command(
    "test-engine",
    epilog="""\b
Examples:
  hatchway test-engine                     any free ports; the first line tells which
  hatchway test-engine --port 7430 --control-port 7431
  curl --json '{"seconds": 30}' http://127.0.0.1:7431/clock/advance
  hatchway help testing                    all that it can be told""",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port; 0 is any free one.")
@click.option(
    "--control-port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port of the control address."
)
def test_engine(port: int, control_port: int) -> None:
    """Run an engine to test clients against.

    It is in memory, on loopback, and its clock stands still until it is told. It prints one line of JSON (address,
    control_address, key_file, pid), then serves until Ctrl-C. No engine's folder is opened.
    """
    from hatchway.engine.base.memory import loading

    with loading():
        from hatchway.api.testing.serve import run_test_engine

    run_test_engine(port, control_port)
