"""What many measurements of one thing say together."""

from collections.abc import Callable, Sequence


def quantile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that this share of all does not exceed."""
    ranked = sorted(samples)
    return ranked[max(0, -int(-share * len(ranked) // 1) - 1)]


def p50(samples: Sequence[float]) -> float:
    return quantile(samples, 0.5)


def p99(samples: Sequence[float]) -> float:
    return quantile(samples, 0.99)


def interleaved(*measurements: Callable[[], float], rounds: int) -> list[list[float]]:
    """In turns, so that all of them meet the same weather; the first round is to warm up."""
    for measurement in measurements:
        measurement()
    taken = [[measurement() for measurement in measurements] for _ in range(rounds)]
    return [list(column) for column in zip(*taken, strict=True)]
