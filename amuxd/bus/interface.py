"""What an interface has to offer, read from its XML, and the XML that introspection shows."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Literal, cast
from xml.etree import ElementTree

Emits = Literal["true", "invalidates", "const", "false"]

DOC_STRING = "org.gtk.GDBus.DocString"
EMITS_CHANGED = "org.freedesktop.DBus.Property.EmitsChangedSignal"
DOCTYPE = (
    '<!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"\n'
    ' "http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">\n'
)


@dataclass(frozen=True, slots=True)
class Arg:
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    inputs: tuple[Arg, ...]
    outputs: tuple[Arg, ...]
    doc: str = ""

    @property
    def in_signature(self) -> str:
        return "".join(arg.type for arg in self.inputs)

    @property
    def out_signature(self) -> str:
        return "".join(arg.type for arg in self.outputs)


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    type: str
    access: Literal["read", "write", "readwrite"]
    emits: Emits
    doc: str = ""

    @property
    def readable(self) -> bool:
        return "read" in self.access

    @property
    def writable(self) -> bool:
        return "write" in self.access


@dataclass(frozen=True, slots=True)
class Signal:
    name: str
    args: tuple[Arg, ...]
    doc: str = ""

    @property
    def signature(self) -> str:
        return "".join(arg.type for arg in self.args)


@dataclass(frozen=True, slots=True, eq=False)
class Interface:
    name: str
    doc: str
    methods: Mapping[str, Method]
    properties: Mapping[str, Property]
    signals: Mapping[str, Signal]


@cache
def load(name: str) -> Interface:
    return parse((files("amuxd.bus") / "interfaces" / f"{name}.xml").read_text("utf-8"))[0]


def parse(xml: str) -> list[Interface]:
    return [_interface(element) for element in ElementTree.fromstring(xml).iter("interface")]


@cache
def snake(member: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", member).lower()


def _interface(element: ElementTree.Element) -> Interface:
    methods = [_method(child) for child in element.iter("method")]
    properties = [_property(child) for child in element.iter("property")]
    signals = [_signal(child) for child in element.iter("signal")]
    return Interface(
        name=element.attrib["name"],
        doc=_annotation(element, DOC_STRING),
        methods={method.name: method for method in methods},
        properties={property.name: property for property in properties},
        signals={signal.name: signal for signal in signals},
    )


def _method(element: ElementTree.Element) -> Method:
    def args(direction: str) -> tuple[Arg, ...]:
        return tuple(_arg(arg) for arg in element.iter("arg") if arg.get("direction", "in") == direction)

    return Method(element.attrib["name"], args("in"), args("out"), _annotation(element, DOC_STRING))


def _property(element: ElementTree.Element) -> Property:
    return Property(
        name=element.attrib["name"],
        type=element.attrib["type"],
        access=cast(Literal["read", "write", "readwrite"], element.attrib["access"]),
        emits=cast(Emits, _annotation(element, EMITS_CHANGED) or "true"),
        doc=_annotation(element, DOC_STRING),
    )


def _signal(element: ElementTree.Element) -> Signal:
    args = tuple(_arg(arg) for arg in element.iter("arg"))
    return Signal(element.attrib["name"], args, _annotation(element, DOC_STRING))


def _arg(element: ElementTree.Element) -> Arg:
    return Arg(element.get("name", ""), element.attrib["type"])


def _annotation(element: ElementTree.Element, name: str) -> str:
    for annotation in element.findall("annotation"):
        if annotation.get("name") == name:
            return annotation.get("value", "")
    return ""


def introspection(interfaces: Iterable[Interface], children: Iterable[str]) -> str:
    """What Introspect answers: the documentation stays out of it, it would double every reply."""
    lines = [_interface_xml(interface) for interface in interfaces]
    lines += [f"  <node name={_quoted(child)}/>\n" for child in children]
    return f"{DOCTYPE}<node>\n{''.join(lines)}</node>\n"


@cache
def _interface_xml(interface: Interface) -> str:
    lines = [f"  <interface name={_quoted(interface.name)}>"]
    for method in interface.methods.values():
        args = [_arg_xml(arg, ' direction="in"') for arg in method.inputs]
        args += [_arg_xml(arg, ' direction="out"') for arg in method.outputs]
        lines += _member_xml("method", f"name={_quoted(method.name)}", args)
    for property in interface.properties.values():
        attributes = f'name={_quoted(property.name)} type="{property.type}" access="{property.access}"'
        annotation = f'      <annotation name="{EMITS_CHANGED}" value="{property.emits}"/>'
        lines += _member_xml("property", attributes, [annotation] if property.emits != "true" else [])
    for signal in interface.signals.values():
        lines += _member_xml("signal", f"name={_quoted(signal.name)}", [_arg_xml(a) for a in signal.args])
    return "\n".join([*lines, "  </interface>\n"])


def _quoted(value: str) -> str:
    # What the standard library has for XML loads all of its HTTP with it.
    return f'"{escape(value)}"'


def _member_xml(kind: str, attributes: str, inner: list[str]) -> list[str]:
    if not inner:
        return [f"    <{kind} {attributes}/>"]
    return [f"    <{kind} {attributes}>", *inner, f"    </{kind}>"]


def _arg_xml(arg: Arg, direction: str = "") -> str:
    name = f" name={_quoted(arg.name)}" if arg.name else ""
    return f'      <arg{name} type="{arg.type}"{direction}/>'
