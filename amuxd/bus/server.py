"""The objects that others can call."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from amuxd import callers
from amuxd.addresses import MANAGER_PATH
from amuxd.bus.connection import Bus
from amuxd.bus.interface import Interface, Method, introspection, snake
from amuxd.bus.messages import Call
from amuxd.bus.properties import Properties, Refusal, property_map
from amuxd.bus.standard import COMMON, OBJECT_MANAGER, PEER
from amuxd.bus.tree import Implementation, ObjectTree
from amuxd.bus.values import PropertyMap, Typed, to_python
from amuxd.callers import Caller
from amuxd.errors import STOPPING, UNFINISHED, AmuxError, Busy, Internal

__all__ = ["Implementation", "PropertyMap", "Server", "Typed"]

logger = logging.getLogger(__name__)

MACHINE_ID_FILES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


class Server:
    """The objects on the bus: every call is answered once, whatever becomes of its handler."""

    def __init__(self, bus: Bus, manager_path: str = MANAGER_PATH) -> None:
        self._bus = bus
        self._manager_path = manager_path
        self._tree = ObjectTree()
        self._properties = Properties(bus, self._tree)
        self._running: dict[asyncio.Task[Any], tuple[Call, Method]] = {}
        self._stopping = False
        self._still_answered: Collection[str] = ()
        bus.set_handler(self._handle)

    def export(self, path: str, *implementations: Implementation, announce: bool = True) -> None:
        self._tree.add(path, {item.interface.name: item for item in implementations})
        if announce and self._is_managed(path):
            self._tell_manager("InterfacesAdded", path, _all_properties(implementations))

    def unexport(self, path: str) -> None:
        self._properties.tell_changes()
        removed = self._tree.remove(path)
        if self._is_managed(path):
            self._tell_manager("InterfacesRemoved", path, list(removed))

    def changed(self, path: str, interface_name: str, names: Iterable[str]) -> None:
        """Tells of them once in this turn of the loop, as each property's EmitsChangedSignal wants it."""
        self._properties.changed(path, interface_name, names)

    def emit(self, path: str, interface_name: str, member: str, *args: object) -> None:
        signal = self._tree.at(path)[interface_name].interface.signals[member]
        self._bus.signal(path, interface_name, member, signal.signature, args)

    def property_map(self, path: str, interface_name: str, names: Iterable[str] | None = None) -> PropertyMap:
        """The properties of an object as an a{sv}, to be put into a reply as it is."""
        return property_map(self._tree.at(path)[interface_name], names)

    async def drain(self, timeout: float, still_answered: Collection[str] = ()) -> None:  # noqa: ASYNC109
        self._stopping = True
        self._still_answered = still_answered
        if self._running:
            await asyncio.wait(self._running, timeout=timeout)
        late = list(self._running)
        for task in late:
            task.cancel()
        # A handler may refuse to be cancelled, but its caller gets an answer now.
        for call, _ in list(self._running.values()):
            self._fail(call, asyncio.CancelledError())

    def _handle(self, call: Call) -> None:
        try:
            method, function, arguments = self._resolve(call)
            result = function(*arguments)
        except Exception as error:
            self._fail(call, error)
            return
        if inspect.iscoroutine(result):
            self._run(call, method, result)
        else:
            self._succeed(call, method, result)

    def _resolve(self, call: Call) -> tuple[Method, Callable[..., Any], list[Any]]:
        if call.path not in self._tree and not _is_peer(call):
            raise Refusal("UnknownObject", f"There is nothing at {call.path}.")
        interface, implementation = self._interface_of(call)
        method = interface.methods.get(call.member)
        if method is None:
            raise Refusal("UnknownMethod", f"{interface.name} has no method {call.member}.")
        if call.signature != method.in_signature:
            raise Refusal(
                "InvalidArgs", f"{call.member} takes ({method.in_signature}), not ({call.signature})."
            )
        if implementation is None:
            return method, self._standard(call.path, call.member), call.body
        if self._stopping and call.member not in self._still_answered:
            raise Busy(STOPPING)
        return method, getattr(implementation, snake(call.member)), to_python(call.signature, call.body)

    def _interface_of(self, call: Call) -> tuple[Interface, Implementation | None]:
        candidates: list[tuple[Interface, Implementation | None]] = [
            (item.interface, item) for item in self._tree.at(call.path).values()
        ]
        candidates += [(interface, None) for interface in self._standard_interfaces(call.path)]
        for interface, implementation in candidates:
            if call.interface == interface.name or (not call.interface and call.member in interface.methods):
                return interface, implementation
        if call.interface:
            raise Refusal("UnknownInterface", f"{call.path} has no interface {call.interface}.")
        raise Refusal("UnknownMethod", f"{call.path} has no method {call.member}.")

    def _run(self, call: Call, method: Method, handler: Coroutine[Any, Any, Any]) -> None:
        bus, sender = self._bus, call.sender
        context = callers.context_of(Caller(partial(bus.has_owner, sender), partial(bus.pid_of, sender)))
        name = f"{call.member} for {call.sender}"
        task = asyncio.get_running_loop().create_task(handler, name=name, context=context)
        self._running[task] = (call, method)
        # Not in the task itself: one that is cancelled before its first step never runs any of its code.
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        call, method = self._running.pop(task)
        if task.cancelled():
            self._fail(call, asyncio.CancelledError())
        elif error := task.exception():
            self._fail(call, error)
        else:
            self._succeed(call, method, task.result())

    def _succeed(self, call: Call, method: Method, result: Any) -> None:
        if call.answered:
            return
        if len(method.outputs) == 1:
            result = (result,)
        try:
            self._properties.tell_changes()
            self._bus.reply(call, method.out_signature, result if method.outputs else ())
        except Exception as error:
            self._fail(call, error)

    def _fail(self, call: Call, error: BaseException) -> None:
        if call.answered:
            return
        self._properties.tell_changes()
        if isinstance(error, Refusal):
            self._bus.error(call, error.name, str(error))
        elif isinstance(error, AmuxError):
            self._bus.error(call, error.bus_name, str(error))
        elif isinstance(error, asyncio.CancelledError):
            # It had begun, and may go on under the next amuxd: it is not for the caller to ask again.
            self._bus.error(call, Internal().bus_name, UNFINISHED)
        else:
            logger.error("%s failed for %s", call.member, call.sender, exc_info=error)
            text = f"amuxd could not answer {call.member}; its log says why."
            self._bus.error(call, Internal().bus_name, text)

    def _standard(self, path: str, member: str) -> Callable[..., Any]:
        functions: dict[str, Callable[..., Any]] = {
            "Get": partial(self._properties.get, path),
            "GetAll": partial(self._properties.get_all, path),
            "Set": partial(self._properties.set, path),
            "Introspect": partial(self._introspect, path),
            "GetManagedObjects": self._managed_objects,
            "Ping": lambda: None,
            "GetMachineId": _machine_id,
        }
        return functions[member]

    def _standard_interfaces(self, path: str) -> tuple[Interface, ...]:
        return (*COMMON, OBJECT_MANAGER) if path == self._manager_path else COMMON

    def _introspect(self, path: str) -> str:
        interfaces = [item.interface for item in self._tree.at(path).values()]
        return introspection([*interfaces, *self._standard_interfaces(path)], self._tree.children(path))

    def _managed_objects(self) -> dict[str, dict[str, PropertyMap]]:
        below = self._tree.below(self._manager_path)
        return {path: _all_properties(implementations.values()) for path, implementations in below}

    def _is_managed(self, path: str) -> bool:
        return path.startswith(f"{self._manager_path}/")

    def _tell_manager(self, member: str, *args: object) -> None:
        signature = OBJECT_MANAGER.signals[member].signature
        self._bus.signal(self._manager_path, OBJECT_MANAGER.name, member, signature, args)


def _all_properties(implementations: Iterable[Implementation]) -> dict[str, PropertyMap]:
    return {item.interface.name: property_map(item) for item in implementations}


def _is_peer(call: Call) -> bool:
    return call.interface == PEER.name or (not call.interface and call.member in PEER.methods)


def _machine_id() -> str:
    for file in MACHINE_ID_FILES:
        if file.exists():
            return file.read_text().strip()
    raise Refusal("FileNotFound", "This machine has no machine id.")
