"""`hatchway completion SHELL`: the script that makes the shell complete our commands, options and settings."""

from __future__ import annotations

import click


@click.command(
    epilog="""\b
Examples:
  hatchway completion fish > ~/.config/fish/completions/hatchway.fish
  echo 'eval "$(hatchway completion bash)"' >> ~/.bashrc
  echo 'eval "$(hatchway completion zsh)"' >> ~/.zshrc       below its compinit"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(context.find_root().command, {}, "hatchway", "_HATCHWAY_COMPLETE").source())
