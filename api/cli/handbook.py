"""`hatchway help TOPIC`: the handbook. A chapter is a file, `api/handbook/TOPIC.md`, and lies in the wheel too.

A chapter begins with its title, an empty line, and one sentence on a line of its own: the list of topics shows it.
"""

from __future__ import annotations

import re
import sys

import click


def _chapters() -> dict[str, str]:
    """Each topic and its chapter's text, in the order of their names."""
    from importlib.resources import files

    pages = sorted(files("hatchway.api").joinpath("handbook").iterdir(), key=lambda page: page.name)
    return {page.name[:-3]: page.read_text("utf-8") for page in pages if page.name.endswith(".md")}


def _summary(text: str) -> str:
    """The sentence below a chapter's title."""
    return text.split("\n", 3)[2]


def _for_terminal(text: str) -> str:
    """A chapter without the marks of its generated parts; links to chapters are replaced by the commands that show
    them."""
    text = re.sub(r"^<!-- .* -->\n\n?", "", text, flags=re.MULTILINE)
    return re.sub(r"\[[^]]*\]\(([a-z-]+)\.md\)", r"`hatchway help \1`", text)


def _unknown(context: click.Context, topic: str) -> click.UsageError:
    """The refusal of an unknown topic. It names the command of that name, or a topic of a similar name."""
    import difflib

    hint = "`hatchway help` lists the topics."
    if near := difflib.get_close_matches(topic.lower(), _chapters(), n=1):
        hint = f"Did you mean '{near[0]}'?"
    root = context.find_root()
    if isinstance(root.command, click.Group) and topic in root.command.list_commands(root):
        hint = f"`hatchway {topic} --help` tells of the command."
    return click.UsageError(f"No such topic '{topic}'. {hint}", context)


def _topics(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    return [topic for topic in _chapters() if topic.startswith(typed)]


@click.command(
    "help",
    epilog="""\b
Examples:
  hatchway help
  hatchway help troubleshooting
  hatchway help fleet | less""",
)
@click.argument("topic", required=False, shell_complete=_topics)
@click.pass_context
def help_command(context: click.Context, topic: str | None) -> None:
    """Show a chapter of the handbook, or the list of chapters."""
    from hatchway.api.cli.printing import print_facts, say

    chapters = _chapters()
    if topic is None:
        print_facts({name: _summary(text) for name, text in chapters.items()})
    elif topic not in chapters:
        raise _unknown(context, topic)
    elif sys.stdout.isatty():
        click.echo_via_pager(_for_terminal(chapters[topic]))
    else:
        say(*_for_terminal(chapters[topic]).splitlines())
