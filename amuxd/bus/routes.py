"""Which signal goes to whom."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from amuxd.bus.messages import Match, Signal

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Subscription:
    match: Match
    handler: Callable[[Signal], None]
    active: bool = True


class Routes:
    """Who gets which signal, by path first: there is a subscription or more for each session."""

    def __init__(self) -> None:
        self._by_path: dict[str | None, list[Subscription]] = {}

    def add(self, match: Match, handler: Callable[[Signal], None]) -> Subscription:
        subscription = Subscription(match, handler)
        self._by_path.setdefault(match.path, []).append(subscription)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        subscription.active = False
        same_path = self._by_path[subscription.match.path]
        same_path.remove(subscription)
        if not same_path:
            del self._by_path[subscription.match.path]

    def deliver(self, signal: Signal, owners: Mapping[str, str]) -> None:
        for subscription in [*self._by_path.get(signal.path, ()), *self._by_path.get(None, ())]:
            name = subscription.match.sender
            sender = None if name is None else owners.get(name, name)
            if subscription.active and subscription.match.accepts(signal, sender):
                try:
                    subscription.handler(signal)
                except Exception:
                    logger.exception("the handler of the signal %s failed", signal.member)
