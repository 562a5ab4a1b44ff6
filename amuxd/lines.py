"""Lines as the kernel, git and amux itself write them."""


def lines_of(text: str) -> list[str]:
    """Ended by line feeds alone: str.splitlines() ends them at what names and messages may have in them."""
    *lines, rest = text.split("\n")
    return [*lines, rest] if rest else lines
