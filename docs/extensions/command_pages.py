"""``{command-help}``: the help page of every command, as the command line prints it."""

import contextlib
import io

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from relatum.cli import COMMANDS, main


def help_page(name: str) -> str:
    """What ``relatum NAME --help`` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main([*name.split(), "--help"])
    return printed.getvalue().rstrip()


class CommandHelp(SphinxDirective):
    """One section a command."""

    def run(self) -> list[nodes.Node]:
        """The sections, in the order of ``relatum --help``."""
        parts = [
            f"## relatum {name}\n\n{command.summary.capitalize()}.\n\n"
            f"```text\n{help_page(name)}\n```"
            for name, command in COMMANDS.items()
        ]
        return self.parse_text_to_nodes("\n\n".join(parts), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
