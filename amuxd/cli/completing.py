"""amux completion"""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell, for its start-up file.

    \b
    bash:  eval "$(amux completion bash)"
    zsh:   eval "$(amux completion zsh)"
    fish:  amux completion fish | source
    """
    from click.shell_completion import ShellComplete

    from amuxd.cli.app import amux

    found = get_completion_class(shell)
    assert found is not None
    # The shell's own source() asks the shell for its version first, and the shell need not be here.
    script = ShellComplete.source(found(amux, {}, "amux", "_AMUX_COMPLETE"))
    # Bash puts it into the line as it is, where a name with a blank would be two words.
    click.echo(script.replace("COMPREPLY+=($value)", 'COMPREPLY+=("$(printf %q "$value")")'))
