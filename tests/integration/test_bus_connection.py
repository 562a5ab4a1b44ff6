# ruff: noqa: F811, a fixture's parameter bears the name of its import
import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bus_fixtures import (  # noqa: F401
    DEADLINE,
    BusDaemon,
    Client,
    bus_daemon,
    client,
    error_name,
    in_loop,
    is_return,
    own_bus_daemon,
)
from jeepney import DBusAddress, HeaderFields, MessageFlag, new_method_call, new_signal
from jeepney.bus_messages import message_bus

from amuxd import helpers
from amuxd.bus.connection import Bus, BusError, BusLost, BusTimeout, Call, Match, NameOwned, Signal
from amuxd.bus.values import Typed
from amuxd.daemon import keep_descriptors

PATH = "/org/amux/Test"
INTERFACE = "org.amux.Test1"


@asynccontextmanager
async def connected(address: str, descriptors: bool = False) -> AsyncIterator[Bus]:
    bus = await Bus.connect(address, descriptors)
    try:
        yield bus
    finally:
        bus.close()


def echo(bus: Bus) -> None:
    bus.set_handler(lambda call: bus.reply(call, call.signature, call.body))


@in_loop
async def test_a_full_socket_buffer_is_waited_for(own_bus_daemon: BusDaemon) -> None:
    listener = Client(own_bus_daemon.address)
    listener.subscribe(f"type='signal',interface='{INTERFACE}'")
    async with connected(own_bus_daemon.address) as bus:
        own_bus_daemon.pause()
        for number in range(5000):
            bus.signal(PATH, INTERFACE, "Tick", "us", [number, "x" * 100])
        flushed = asyncio.create_task(bus.flush())
        await asyncio.sleep(0)
        assert not flushed.done(), "the bus was meant to be too slow for this"
        own_bus_daemon.go_on()
        await flushed
        ticks = [await asyncio.to_thread(listener.next_signal, "Tick") for _ in range(5000)]
        assert [tick.body[0] for tick in ticks] == list(range(5000))
        await bus.ping()
    listener.close()


@in_loop
async def test_replies_wait_for_a_slow_bus_as_well(own_bus_daemon: BusDaemon) -> None:
    caller = Client(own_bus_daemon.address)
    async with connected(own_bus_daemon.address) as bus:
        waiting: list[Call] = []
        everyone = asyncio.Event()

        def collect(call: Call) -> None:
            waiting.append(call)
            if len(waiting) == 500:
                everyone.set()

        bus.set_handler(collect)
        address = DBusAddress(PATH, bus_name=bus.unique_name, interface=INTERFACE)
        for _ in range(500):
            caller.send(new_method_call(address, "Ask"))
        await everyone.wait()
        own_bus_daemon.pause()
        for number, call in enumerate(waiting):
            bus.reply(call, "us", [number, "y" * 2000])
        own_bus_daemon.go_on()
        replies = [await asyncio.to_thread(caller.received.get, True, DEADLINE) for _ in range(500)]
        assert [reply.body[0] for reply in replies if is_return(reply)] == list(range(500))
    caller.close()


@in_loop
async def test_a_bus_that_takes_nothing_for_good_counts_as_lost(own_bus_daemon: BusDaemon) -> None:
    async with connected(own_bus_daemon.address) as bus:
        own_bus_daemon.pause()
        pending = asyncio.create_task(bus.ping(60))
        await asyncio.sleep(0)
        for _ in range(67):
            bus.signal(PATH, INTERFACE, "Much", "ay", [bytes(1 << 20)])
        assert "has not taken" in await bus.lost()
        with pytest.raises(BusLost):
            await pending
        with pytest.raises(BusLost):
            await bus.flush()


@in_loop
async def test_a_signal_is_written_at_once(bus_daemon: BusDaemon, client: Client) -> None:
    client.subscribe(f"type='signal',interface='{INTERFACE}'")
    async with connected(bus_daemon.address) as bus:
        bus.signal(PATH, INTERFACE, "Now")
        # Blocks the loop: were anything left to it, nothing would arrive.
        assert client.next_signal("Now").header.fields[HeaderFields.sender] == bus.unique_name


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@in_loop
async def test_descriptors_that_nobody_asked_for_do_not_stay(bus_daemon: BusDaemon) -> None:
    sender = Client(bus_daemon.address, enable_fds=True)
    async with connected(bus_daemon.address) as bus:
        echo(bus)
        await bus.add_match(Match(interface=INTERFACE), lambda signal: None)
        address = DBusAddress(PATH, bus_name=bus.unique_name, interface=INTERFACE)
        gc.collect()
        before = open_descriptors()
        with open(os.devnull) as file:  # noqa: ASYNC230, PTH123
            for _ in range(50):
                reply = await asyncio.to_thread(sender.ask, new_method_call(address, "Take", "h", (file,)))
                assert error_name(reply) == "org.freedesktop.DBus.Error.NotSupported"
                sender.send(new_signal(address, "Take", "h", (file,)))
        await bus.ping()
        assert open_descriptors() == before
        assert is_return(await asyncio.to_thread(sender.call, bus.unique_name, PATH, INTERFACE, "Still"))
    sender.close()


def seen_by_a_helper(directory: Path) -> list[str]:
    with (directory / "seen").open("w+") as seen:
        helpers.run(["ls", "/proc/self/fd"], (None, seen.fileno(), seen.fileno()), os.environ, DEADLINE)
        seen.seek(0)
        return seen.read().split()


@in_loop
async def test_a_descriptor_is_for_nobody_but_who_asked_for_it(bus_daemon: BusDaemon, tmp_path: Path) -> None:
    # As amuxd begins.
    keep_descriptors()
    giver = Client(bus_daemon.address, enable_fds=True)
    async with connected(bus_daemon.address, descriptors=True) as bus:
        with open(os.devnull) as file:  # noqa: ASYNC230, PTH123
            giver.answers("Give", "h", (file,))
            [given] = await bus.call(giver.unique_name, PATH, INTERFACE, "Give")
        try:
            # The fourth is the directory that is listed.
            assert await asyncio.to_thread(seen_by_a_helper, tmp_path) == ["0", "1", "2", "3"]
        finally:
            os.close(given)
    giver.close()


@in_loop
async def test_messages_larger_than_the_socket_buffer(bus_daemon: BusDaemon, client: Client) -> None:
    large = "ü" * (1 << 20)
    async with connected(bus_daemon.address) as bus:
        echo(bus)
        reply = await asyncio.to_thread(client.call, bus.unique_name, PATH, INTERFACE, "Echo", "s", (large,))
        assert reply.body == (large,)
        client.answers("Give", "s", (large,))
        assert await bus.call(client.unique_name, PATH, INTERFACE, "Give", "s", [large]) == [large]


@in_loop
async def test_a_call_is_answered_once(bus_daemon: BusDaemon, client: Client) -> None:
    async with connected(bus_daemon.address) as bus:

        def twice(call: Call) -> None:
            bus.reply(call, "s", ["first"])
            bus.reply(call, "s", ["second"])
            bus.error(call, "org.amux.Error.Third", "third")

        bus.set_handler(twice)
        serial = client.send(
            new_method_call(DBusAddress(PATH, bus_name=bus.unique_name, interface=INTERFACE), "Ask")
        )
        first = await asyncio.to_thread(client.received.get, True, DEADLINE)
        assert first.header.fields[HeaderFields.reply_serial] == serial
        assert first.body == ("first",)
        await bus.ping()
        assert await asyncio.to_thread(client.everything_until_now) == []


@in_loop
async def test_no_reply_is_sent_to_who_wants_none(bus_daemon: BusDaemon, client: Client) -> None:
    async with connected(bus_daemon.address) as bus:
        arrived: asyncio.Future[Call] = asyncio.get_running_loop().create_future()

        def handle(call: Call) -> None:
            bus.reply(call)
            arrived.set_result(call)

        bus.set_handler(handle)
        message = new_method_call(DBusAddress(PATH, bus_name=bus.unique_name, interface=INTERFACE), "Ask")
        message.header.flags = MessageFlag.no_reply_expected
        client.everything_until_now()
        client.send(message)
        assert (await arrived).answered
        await bus.ping()
        assert await asyncio.to_thread(client.everything_until_now) == []


@in_loop
async def test_a_handler_that_raises_is_answered_without_its_traceback(
    bus_daemon: BusDaemon, client: Client
) -> None:
    async with connected(bus_daemon.address) as bus:

        def broken(call: Call) -> None:
            raise RuntimeError("secret")

        bus.set_handler(broken)
        reply = await asyncio.to_thread(client.call, bus.unique_name, PATH, INTERFACE, "Ask")
        assert error_name(reply) == "org.freedesktop.DBus.Error.Failed"
        assert "secret" not in reply.body[0]


@in_loop
async def test_a_name_is_owned_or_refused_but_never_waited_for(bus_daemon: BusDaemon, client: Client) -> None:
    name = "org.amux.TestName"
    client.request_name(name)
    async with connected(bus_daemon.address) as bus:
        with pytest.raises(NameOwned):
            await bus.request_name(name)
        client.release_name(name)
        assert not (await asyncio.to_thread(client.ask, message_bus.NameHasOwner(name))).body[0]
        await bus.request_name(name)
        await bus.request_name(name)
        owner = await asyncio.to_thread(client.ask, message_bus.GetNameOwner(name))
        assert owner.body == (bus.unique_name,)


class Collector:
    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self._arrived = asyncio.Event()

    def __call__(self, signal: Signal) -> None:
        self.signals.append(signal)
        self._arrived.set()

    async def until(self, member: str) -> list[str]:
        while not self.signals or self.signals[-1].member != member:
            self._arrived.clear()
            await self._arrived.wait()
        return [signal.member for signal in self.signals]


@in_loop
async def test_a_match_is_in_force_once_it_was_added(bus_daemon: BusDaemon, client: Client) -> None:
    async with connected(bus_daemon.address) as bus:
        heard = Collector()
        await bus.add_match(Match(interface=INTERFACE, member="Tick", path=PATH), heard)
        client.signal(PATH, INTERFACE, "Tick", "a{sv}", ({"n": ("u", 42), "list": ("av", [("s", "x")])},))
        await heard.until("Tick")
        assert heard.signals[0].body == [{"n": 42, "list": ["x"]}]
        assert heard.signals[0].sender == client.unique_name


@in_loop
async def test_a_match_takes_what_fits_and_nothing_else(bus_daemon: BusDaemon, client: Client) -> None:
    other = Client(bus_daemon.address)
    async with connected(bus_daemon.address) as bus:
        below, mine, argument = Collector(), Collector(), Collector()
        await bus.add_match(Match(interface=INTERFACE, path_namespace="/org/amux"), below)
        await bus.add_match(Match(interface=INTERFACE, sender=client.unique_name), mine)
        await bus.add_match(Match(interface=INTERFACE, arg0="it's"), argument)
        client.signal("/org/amux", INTERFACE, "Own")
        client.signal("/org/amux/deep/er", INTERFACE, "Deep")
        client.signal("/org/amuxe", INTERFACE, "Beside")
        client.signal("/", INTERFACE, "Quoted", "s", ("it's",))
        client.everything_until_now()
        other.signal("/org/amux/x", INTERFACE, "Other")
        client.everything_until_now()
        other.everything_until_now()
        client.signal("/org/amux", INTERFACE, "End", "s", ("it's",))
        assert await below.until("End") == ["Own", "Deep", "Other", "End"]
        assert await mine.until("End") == ["Own", "Deep", "Beside", "Quoted", "End"]
        assert await argument.until("End") == ["Quoted", "End"]
    other.close()


@in_loop
async def test_a_sender_may_be_a_name_that_changes_hands(bus_daemon: BusDaemon, client: Client) -> None:
    name = "org.amux.TestSender"
    successor = Client(bus_daemon.address)
    stranger = Client(bus_daemon.address)
    client.request_name(name)
    async with connected(bus_daemon.address) as bus:
        heard, everything = Collector(), Collector()
        await bus.add_match(Match(interface=INTERFACE), everything)
        await bus.add_match(Match(sender=name, interface=INTERFACE), heard)
        client.signal(PATH, INTERFACE, "First")
        client.release_name(name)
        client.signal(PATH, INTERFACE, "Former")
        client.everything_until_now()
        stranger.signal(PATH, INTERFACE, "Foreign")
        stranger.everything_until_now()
        successor.request_name(name)
        successor.signal(PATH, INTERFACE, "Second")
        assert await heard.until("Second") == ["First", "Second"]
        assert await everything.until("Second") == ["First", "Former", "Foreign", "Second"]
    successor.close()
    stranger.close()


@in_loop
async def test_a_name_without_owner_is_heard_once_it_has_one(bus_daemon: BusDaemon, client: Client) -> None:
    name = "org.amux.TestLater"
    async with connected(bus_daemon.address) as bus:
        heard = Collector()
        await asyncio.gather(
            bus.add_match(Match(sender=name, member="Tick"), heard),
            bus.add_match(Match(sender=name, member="Tock"), heard),
        )
        client.request_name(name)
        client.signal(PATH, INTERFACE, "Tick")
        client.signal(PATH, INTERFACE, "Tock")
        assert await heard.until("Tock") == ["Tick", "Tock"]


@in_loop
async def test_a_removed_match_is_silent(bus_daemon: BusDaemon, client: Client) -> None:
    async with connected(bus_daemon.address) as bus:
        gone, kept = Collector(), Collector()
        subscription = await bus.add_match(Match(interface=INTERFACE, path=PATH), gone)
        await bus.add_match(Match(interface=INTERFACE, path=PATH), kept)
        bus.remove_match(subscription)
        bus.remove_match(subscription)
        client.signal(PATH, INTERFACE, "Tick")
        await kept.until("Tick")
        assert gone.signals == []


@in_loop
async def test_a_wrong_match_is_an_error_and_leaves_nothing(bus_daemon: BusDaemon) -> None:
    async with connected(bus_daemon.address) as bus:
        with pytest.raises(BusError) as caught:
            await bus.add_match(Match(path="not a path"), lambda signal: None)
        assert caught.value.name == "org.freedesktop.DBus.Error.MatchRuleInvalid"


@in_loop
async def test_one_handler_that_raises_does_not_keep_a_signal_from_the_others(
    bus_daemon: BusDaemon, client: Client
) -> None:
    def broken(signal: Signal) -> None:
        raise RuntimeError

    async with connected(bus_daemon.address) as bus:
        heard = Collector()
        await bus.add_match(Match(interface=INTERFACE), broken)
        await bus.add_match(Match(interface=INTERFACE), heard)
        client.signal(PATH, INTERFACE, "Tick")
        await heard.until("Tick")


@in_loop
async def test_values_arrive_plain_and_structs_by_index(bus_daemon: BusDaemon, client: Client) -> None:
    async with connected(bus_daemon.address) as bus:
        client.answers("Give", "a(sv)a{s(uv)}", ([("a", ("i", -1))], {"k": (7, ("as", ["x", "y"]))}))
        pairs, table = await bus.call(
            client.unique_name, PATH, INTERFACE, "Give", "a{sv}(ss)", [{"o": Typed("o", "/")}, ("a", "b")]
        )
        assert (pairs[0][0], pairs[0][1]) == ("a", -1)
        assert (table["k"][0], table["k"][1]) == (7, ["x", "y"])


@in_loop
async def test_an_error_reply_is_raised_with_its_name(bus_daemon: BusDaemon, client: Client) -> None:
    async with connected(bus_daemon.address) as bus:
        with pytest.raises(BusError, match="no Nothing here") as caught:
            await bus.call(client.unique_name, PATH, INTERFACE, "Nothing")
        assert caught.value.name == "org.example.Error.Unknown"


@in_loop
async def test_a_call_that_is_not_answered_ends(bus_daemon: BusDaemon, client: Client) -> None:
    async with connected(bus_daemon.address) as bus:
        with pytest.raises(BusTimeout):
            await bus.call(client.unique_name, PATH, INTERFACE, "Silence", timeout=0.05)
        await bus.ping()


@in_loop
async def test_a_ping_needs_the_bus(own_bus_daemon: BusDaemon) -> None:
    async with connected(own_bus_daemon.address) as bus:
        await bus.ping()
        own_bus_daemon.pause()
        with pytest.raises(BusTimeout):
            await bus.ping(0.05)
        own_bus_daemon.go_on()
        await bus.ping()


@in_loop
async def test_everybody_hears_that_the_bus_is_gone(own_bus_daemon: BusDaemon) -> None:
    silent = Client(own_bus_daemon.address)
    async with connected(own_bus_daemon.address) as bus:
        pending = asyncio.create_task(bus.call(silent.unique_name, PATH, INTERFACE, "Silence"))
        await bus.ping()
        threading.Thread(target=own_bus_daemon.kill).start()
        assert await bus.lost()
        with pytest.raises(BusLost):
            await pending
        with pytest.raises(BusLost):
            await bus.ping()
        bus.signal(PATH, INTERFACE, "Nobody")
    silent.close()


@in_loop
async def test_what_the_bus_would_disconnect_for_is_not_sent(bus_daemon: BusDaemon, client: Client) -> None:
    client.subscribe(f"type='signal',interface='{INTERFACE}'")
    async with connected(bus_daemon.address) as bus:
        bus.signal(PATH, INTERFACE, "Text", "sv", ["a\0b\udcff", Typed("as", ["\0"])])
        assert (await asyncio.to_thread(client.next_signal, "Text")).body == (
            "a\ufffdb\ufffd",
            ("as", ["\ufffd"]),
        )
        for signature, value in [("o", "/a-b"), ("o", "a"), ("u", -1), ("y", 256), ("s", 5), ("v", "bare")]:
            with pytest.raises((TypeError, ValueError, OverflowError)):
                bus.signal(PATH, INTERFACE, "Wrong", signature, [value])
        with pytest.raises(Exception, match=r"more than the bus takes|exceeds"):
            bus.signal(PATH, INTERFACE, "Huge", "ay", [bytes(65 << 20)])
        await bus.ping()


@in_loop
async def test_no_bus_is_an_error_that_says_where(tmp_path: Path) -> None:
    address = f"unix:path={tmp_path}/none"
    with pytest.raises(BusError, match="none"):
        await Bus.connect(address)


@in_loop
async def test_a_round_trip_is_quick(bus_daemon: BusDaemon, client: Client) -> None:
    async with connected(bus_daemon.address) as bus:
        taken = []
        for _ in range(200):
            started = time.perf_counter()
            await bus.ping()
            taken.append(time.perf_counter() - started)
        # Whoever else wants the processor makes some of them late.
        assert min(taken) < 0.01


@in_loop
async def test_a_bus_that_hangs_is_given_up(
    own_bus_daemon: BusDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amuxd.bus.connection.CONNECT_TIMEOUT", 0.1)
    own_bus_daemon.pause()
    with pytest.raises(BusError, match="TimeoutError"):
        await Bus.connect(own_bus_daemon.address)
    own_bus_daemon.go_on()
    async with connected(own_bus_daemon.address) as bus:
        await bus.ping()
