"""Which object is where, and what it implements."""

from collections.abc import Iterator
from typing import Protocol

from amuxd.bus.interface import Interface


class Implementation(Protocol):
    """Also has a coroutine method for each method, and set_NAME(value) for what can be set, in snake case."""

    @property
    def interface(self) -> Interface: ...

    def get_property(self, name: str) -> object: ...


class ObjectTree:
    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Implementation]] = {}
        self._children: dict[str, dict[str, None]] = {"/": {}}

    def add(self, path: str, implementations: dict[str, Implementation]) -> None:
        if path in self._objects:
            raise ValueError(f"{path} is exported already")
        self._objects[path] = implementations
        while path != "/":
            parent, name = _split(path)
            self._children.setdefault(path, {})
            self._children.setdefault(parent, {})[name] = None
            path = parent

    def remove(self, path: str) -> dict[str, Implementation]:
        removed = self._objects.pop(path)
        while path != "/" and path not in self._objects and not self._children[path]:
            parent, name = _split(path)
            del self._children[path]
            del self._children[parent][name]
            path = parent
        return removed

    def __contains__(self, path: str) -> bool:
        """Also true of the nodes above an object, which have nothing but children."""
        return path in self._children

    def at(self, path: str) -> dict[str, Implementation]:
        return self._objects.get(path, {})

    def children(self, path: str) -> Iterator[str]:
        return iter(self._children[path])

    def below(self, path: str) -> Iterator[tuple[str, dict[str, Implementation]]]:
        prefix = path.rstrip("/") + "/"
        return (item for item in self._objects.items() if item[0].startswith(prefix) and item[0] != path)


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name
