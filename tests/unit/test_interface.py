import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from amuxd.bus.interface import Arg, introspection, load, parse, snake
from amuxd.bus.standard import COMMON, OBJECT_MANAGER

OURS = ["org.amux.Amux1.Manager", "org.amux.Amux1.Session", "org.freedesktop.LogControl1"]


@pytest.mark.parametrize(
    ("member", "name"),
    [
        ("CreateSession", "create_session"),
        ("LastActivityUSec", "last_activity_usec"),
        ("OomKilled", "oom_killed"),
        ("Id", "id"),
        ("LogPath", "log_path"),
    ],
)
def test_members_have_python_names(member: str, name: str) -> None:
    assert snake(member) == name


def test_a_method_has_its_arguments_in_order() -> None:
    create = load("org.amux.Amux1.Manager").methods["CreateSession"]
    assert create.inputs == (Arg("command", "as"), Arg("options", "a{sv}"))
    assert create.outputs == (Arg("session", "o"),)
    assert (create.in_signature, create.out_signature) == ("asa{sv}", "o")
    assert create.doc.startswith("Creates a session")


def test_a_signal_has_its_signature() -> None:
    assert load("org.amux.Amux1.Manager").signals["SessionStateChanged"].signature == "osssssu"


def test_a_property_says_whether_its_changes_are_told() -> None:
    properties = load("org.amux.Amux1.Session").properties
    assert properties["State"].emits == "true"
    assert properties["Id"].emits == "const"
    assert properties["LastActivityUSec"].emits == "false"


def test_access_is_read_from_the_xml() -> None:
    properties = load("org.freedesktop.LogControl1").properties
    assert properties["LogLevel"].writable
    assert not properties["SyslogIdentifier"].writable


def test_no_two_members_of_an_interface_share_a_python_name() -> None:
    for name in OURS:
        interface = load(name)
        methods = [snake(member) for member in interface.methods]
        setters = [f"set_{snake(member)}" for member, p in interface.properties.items() if p.writable]
        assert len({*methods, *setters}) == len(methods) + len(setters)


@pytest.mark.parametrize("name", OURS)
def test_introspection_says_what_the_file_says_without_the_documentation(name: str) -> None:
    interface = load(name)
    xml = introspection([interface], [])
    assert "DocString" not in xml
    [parsed] = parse(xml)
    assert parsed.name == name
    assert {m.name: (m.inputs, m.outputs) for m in parsed.methods.values()} == {
        m.name: (m.inputs, m.outputs) for m in interface.methods.values()
    }
    assert {p.name: (p.type, p.access, p.emits) for p in parsed.properties.values()} == {
        p.name: (p.type, p.access, p.emits) for p in interface.properties.values()
    }
    assert {s.name: s.args for s in parsed.signals.values()} == {
        s.name: s.args for s in interface.signals.values()
    }


def test_introspection_lists_children() -> None:
    root = ElementTree.fromstring(introspection(COMMON, ["a", "b"]))
    assert [node.get("name") for node in root.findall("node")] == ["a", "b"]


@pytest.mark.skipif(shutil.which("xmllint") is None, reason="xmllint is not installed")
def test_introspection_is_well_formed() -> None:
    xml = introspection([*map(load, OURS), *COMMON, OBJECT_MANAGER], ["sessions"])
    subprocess.run(["xmllint", "--noout", "--nonet", "-"], input=xml, text=True, check=True)
