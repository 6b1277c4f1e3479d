"""`cairn completion`: prints the script with which a shell completes this command.

Layer: cli.
"""

import click
from click.shell_completion import get_completion_class

_PROGRAM = "cairn"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: commands, options, folders.

    For bash, add eval "$(cairn completion bash)" to ~/.bashrc; for zsh the same to ~/.zshrc; for
    fish, run: cairn completion fish > ~/.config/fish/completions/cairn.fish
    """
    root = click.get_current_context().find_root().command
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - click has all shells of the choice
    # The variable that click reads in a program of this name.
    click.echo(script(root, {}, _PROGRAM, f"_{_PROGRAM.upper()}_COMPLETE").source())
