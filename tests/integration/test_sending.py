"""What several send to one session at once arrives whole, each after the other."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.bus import Bus
from harness.client import BUS_NAME, SESSION, Client
from harness.waiting import until

SENDERS = 12


def texts(kind: str) -> list[str]:
    """Short ones are typed, those of several lines and long ones are pasted."""
    if kind == "typed":
        return [f"<{number}>" for number in range(SENDERS)]
    if kind == "pasted":
        return [f"<{number} begins\n{number} goes on\n{number} ends>" for number in range(SENDERS)]
    # A terminal takes lines of 4095 bytes at most.
    return [f"<{number}" + f"\n{number} {'x' * 2000}" * 5 + ">" for number in range(SENDERS)]


@pytest.mark.parametrize("kind", ["typed", "pasted", "long"])
def test_many_who_send_at_once_do_not_mix(anywhere: Client, kind: str) -> None:
    got = anywhere.machine.temporary / "got"
    session = anywhere.create(["sh", "-c", 'stty -echo; echo ready; exec cat >"$0"', str(got)])
    until(lambda: "ready" in session.log())
    sent = texts(kind)
    buses = [Bus(anywhere.bus_address) for _ in sent]
    try:
        with ThreadPoolExecutor(len(sent)) as senders:
            calls = [
                senders.submit(bus.call, BUS_NAME, session.path, SESSION, "Send", "sb", text, True)
                for bus, text in zip(buses, sent, strict=True)
            ]
            for call in calls:
                call.result()
    finally:
        for bus in buses:
            bus.close()
    until(lambda: len(got.read_text()) >= len("\n".join([*sent, ""])))
    arrived = got.read_text().removesuffix("\n").replace(">\n", ">\n\0").split("\n\0")
    assert sorted(arrived) == sorted(sent)


def test_what_ends_in_a_semicolon_arrives_as_it_is(anywhere: Client) -> None:
    """tmux takes one at the end of an argument for the end of a command."""
    got = anywhere.machine.temporary / "got"
    session = anywhere.create(["sh", "-c", 'stty -echo; echo ready; exec cat >"$0"', str(got)])
    until(lambda: "ready" in session.log())
    sent = ["int x = 1;", ";", "a;", "a\\;", "a\\\\;", ";;", "\\;;", "a;b", "a;\n;"]
    for text in sent:
        session.send(text)
    session.send("no Enter;", enter=False)
    session.send("\nthat is all")
    until(lambda: "all\n" in got.read_text())
    assert got.read_text() == "\n".join([*sent, "no Enter;", "that is all", ""])


def test_a_buffer_of_ours_is_gone_once_it_is_typed(anywhere: Client) -> None:
    session = anywhere.create(["cat"])
    session.send("two\nlines")
    until(lambda: session.log().count("lines") == 2)
    socket = session.call("AttachCommand")[3]
    assert anywhere.machine.run(["tmux", "-S", socket, "list-buffers"]).stdout == ""
