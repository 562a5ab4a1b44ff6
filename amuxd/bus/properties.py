"""The properties of objects, asked for and told of when they change."""

import asyncio
import inspect
import logging
from collections.abc import Iterable

from amuxd.bus.connection import Bus
from amuxd.bus.interface import Property, snake
from amuxd.bus.messages import DBUS_ERROR
from amuxd.bus.standard import PROPERTIES, STANDARD
from amuxd.bus.tree import Implementation, ObjectTree
from amuxd.bus.values import PropertyMap, Variant, to_python, variant

logger = logging.getLogger(__name__)


class Refusal(Exception):
    """A call that is wrong in itself, with its standard error."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(text)
        self.name = DBUS_ERROR + error


def property_map(implementation: Implementation, names: Iterable[str] | None = None) -> PropertyMap:
    """One property that cannot be read is left out: it must not hide the others."""
    properties = implementation.interface.properties
    values = PropertyMap()
    for name in properties if names is None else names:
        property = properties.get(name)
        if property is not None and property.readable:
            value = _value_or_none(implementation, property)
            if value is not None:
                values[name] = value
    return values


def _value(implementation: Implementation, property: Property) -> Variant:
    return variant(property.type, implementation.get_property(property.name))


def _value_or_none(implementation: Implementation, property: Property) -> Variant | None:
    try:
        return _value(implementation, property)
    except Exception:
        logger.exception("%s.%s cannot be read", implementation.interface.name, property.name)
        return None


class Properties:
    """org.freedesktop.DBus.Properties of every object, and the changes that are still to be told."""

    def __init__(self, bus: Bus, tree: ObjectTree) -> None:
        self._bus = bus
        self._tree = tree
        self._pending: dict[tuple[str, str], dict[str, None]] = {}

    def get(self, path: str, interface_name: str, name: str) -> Variant:
        implementation, property = self._find(path, interface_name, name)
        if not property.readable:
            raise Refusal("AccessDenied", f"{name} cannot be read.")
        return _value(implementation, property)

    def get_all(self, path: str, interface_name: str) -> PropertyMap:
        values = PropertyMap()
        for implementation in self._implementations(path, interface_name):
            values.update(property_map(implementation))
        return values

    async def set(self, path: str, interface_name: str, name: str, value: Variant) -> None:
        implementation, property = self._find(path, interface_name, name)
        setter = getattr(implementation, f"set_{snake(name)}", None)
        if not property.writable or setter is None:
            raise Refusal("PropertyReadOnly", f"{name} cannot be set.")
        if value.signature != property.type:
            raise Refusal("InvalidArgs", f"{name} is of type {property.type}, not {value.signature}.")
        done = setter(*to_python("v", [value]))
        if inspect.isawaitable(done):
            await done
        self.changed(path, implementation.interface.name, [name])

    def changed(self, path: str, interface_name: str, names: Iterable[str]) -> None:
        implementation = self._tree.at(path).get(interface_name)
        if implementation is None:
            return
        properties = implementation.interface.properties
        told = [name for name in names if properties[name].emits in ("true", "invalidates")]
        if not told:
            return
        if not self._pending:
            asyncio.get_running_loop().call_soon(self.tell_changes)
        self._pending.setdefault((path, interface_name), {}).update(dict.fromkeys(told))

    def tell_changes(self) -> None:
        pending, self._pending = self._pending, {}
        for (path, interface_name), names in pending.items():
            implementation = self._tree.at(path).get(interface_name)
            if implementation is not None:
                try:
                    self._tell(path, implementation, names)
                except Exception:
                    logger.exception("the changes of %s cannot be told", path)

    def _tell(self, path: str, implementation: Implementation, names: Iterable[str]) -> None:
        properties = implementation.interface.properties
        pushed = [name for name in names if properties[name].emits == "true"]
        values = property_map(implementation, pushed)
        # A property that cannot be read is among these: what a client has of it is out of date.
        invalidated = [name for name in names if name not in values]
        self._bus.signal(
            path,
            PROPERTIES.name,
            "PropertiesChanged",
            PROPERTIES.signals["PropertiesChanged"].signature,
            [implementation.interface.name, values, invalidated],
        )

    def _find(self, path: str, interface_name: str, name: str) -> tuple[Implementation, Property]:
        for implementation in self._implementations(path, interface_name):
            property = implementation.interface.properties.get(name)
            if property is not None:
                return implementation, property
        raise Refusal("UnknownProperty", f"{interface_name or path} has no property {name}.")

    def _implementations(self, path: str, interface_name: str) -> list[Implementation]:
        implementations = self._tree.at(path)
        if not interface_name:
            return list(implementations.values())
        if interface_name in implementations:
            return [implementations[interface_name]]
        if interface_name in STANDARD:
            return []
        raise Refusal("UnknownInterface", f"{path} has no interface {interface_name}.")
