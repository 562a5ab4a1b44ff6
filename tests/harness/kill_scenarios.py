"""What happens to a session while amuxd is killed, and what may have become of it then."""

import contextlib
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.bus import CallFailed
from harness.kill_subject import Subject
from harness.waiting import until

Act = Callable[[Subject], None]


@dataclass(frozen=True)
class Scenario:
    """What happens before amuxd is armed and while it is, and what may have become of the session then."""

    before: Act
    act: Act
    allowed: set[str]
    agent: str = ""
    in_slot: bool = False
    # Of the points that no scenario before it has, make test kills at each so-manieth.
    every: int = 1


def nothing(_: Subject) -> None:
    pass


def create(subject: Subject) -> None:
    subject.create(start=False)


def create_and_start(subject: Subject) -> None:
    subject.create()
    subject.wait_until_begun(1)


def start(subject: Subject) -> None:
    subject.session.call("Start")


def stop(subject: Subject) -> None:
    subject.session.stop(5)


def end(subject: Subject) -> None:
    subject.end(3)
    until(lambda: subject.has_certificate or subject.amux.has_ended, timeout=60)


def restart(subject: Subject) -> None:
    subject.session.call("Restart")


def archive(subject: Subject) -> None:
    subject.session.call("Archive")


def remove(subject: Subject) -> None:
    subject.session.remove()


def remove_while_it_runs(subject: Subject) -> None:
    subject.session.remove(force=True)


def go(subject: Subject) -> None:
    subject.amux.end(signal.SIGTERM)


def begin(subject: Subject) -> None:
    subject.amux.begin()
    subject.amux.comes_up()


def come_back(subject: Subject) -> None:
    subject.amux.begin()
    if subject.amux.comes_up():
        until(lambda: subject.is_at_rest or subject.amux.has_ended, timeout=60)


def run_and_end(subject: Subject) -> None:
    create_and_start(subject)
    end(subject)


def run_and_end_attached(subject: Subject) -> None:
    """The terminal stays, because somebody looks at it."""
    create_and_start(subject)
    subject.terminal = subject.amux.terminal("attach", subject.session.id)
    until(lambda: subject.session.get("Attached") == 1)
    end(subject)


def run_and_go(subject: Subject) -> None:
    create_and_start(subject)
    go(subject)


def end_unwatched(subject: Subject) -> None:
    create_and_start(subject)
    subject.amux.end(signal.SIGKILL)
    subject.end(3)


def die(subject: Subject, act: Act, point: str) -> None:
    subject.amux.arm(point)
    with contextlib.suppress(CallFailed):
        act(subject)
    subject.amux.wait_until_gone()
    subject.amux.disarm()


def die_while_it_starts(subject: Subject) -> None:
    die(subject, create_and_start, "answer to StartTransientUnit")
    subject.find_on_disk()


def die_while_it_stops(subject: Subject) -> None:
    create_and_start(subject)
    die(subject, stop, "a signal")


def die_while_it_settles(subject: Subject) -> None:
    create_and_start(subject)
    die(subject, end, "answer to StopUnit")


def resume(subject: Subject) -> None:
    subject.session.call("Resume")


def park(subject: Subject) -> None:
    subject.session.call("Park")


def run_and_park(subject: Subject) -> None:
    create_and_start(subject)
    park(subject)


def park_and_go(subject: Subject) -> None:
    run_and_park(subject)
    go(subject)


def run_and_stop(subject: Subject) -> None:
    create_and_start(subject)
    stop(subject)


def wait_for_another(subject: Subject) -> None:
    subject.let_another_in()
    subject.create(queue=True)


def run_end_and_let_another_in(subject: Subject) -> None:
    subject.create(queue=True)
    end(subject)
    subject.let_another_in()


def come_next(subject: Subject) -> None:
    subject.send_the_other_away()
    until(lambda: subject.begun or subject.amux.has_ended)


def lose_the_directory(subject: Subject) -> None:
    assert subject.slot is not None
    shutil.rmtree(subject.slot.directory)
    until(lambda: subject.amux.has_ended or subject.has_certificate, timeout=60)


def lose_the_directory_unwatched(subject: Subject) -> None:
    assert subject.slot is not None
    run_and_go(subject)
    shutil.rmtree(subject.slot.directory)


def end_well(subject: Subject) -> None:
    subject.end(0)
    until(lambda: subject.has_certificate or subject.amux.has_ended, timeout=60)


def end_and_stay(subject: Subject) -> None:
    subject.end(0)
    until(lambda: subject.is_parked or subject.amux.has_ended, timeout=60)


def end_suspended(subject: Subject) -> None:
    run_and_go(subject)
    subject.end(3)


def run_and_reboot(subject: Subject) -> None:
    run_and_go(subject)
    subject.reboot()


def run_and_reboot_and_begin(subject: Subject) -> None:
    run_and_reboot(subject)
    subject.amux.start()


def run_and_lose_power(subject: Subject) -> None:
    create_and_start(subject)
    subject.amux.end(signal.SIGKILL)
    subject.reboot()


def run_for_ever_and_reboot(subject: Subject) -> None:
    subject.create(resume="auto")
    subject.wait_until_begun(1)
    go(subject)
    subject.reboot()


def run_for_ever_and_lose_power(subject: Subject) -> None:
    subject.create(resume="auto")
    subject.wait_until_begun(1)
    subject.amux.end(signal.SIGKILL)
    subject.reboot()


def come_back_by_itself(subject: Subject) -> None:
    subject.amux.begin()
    if subject.amux.comes_up():
        until(lambda: subject.begun == 2 or subject.amux.has_ended, timeout=60)


def create_and_lose_place(subject: Subject) -> None:
    place = subject.marks.parent / "place"
    place.mkdir()
    subject.create(start=False, cwd=str(place))
    place.rmdir()
    subject.has_place = False


def run_end_and_grow_old(subject: Subject) -> None:
    run_and_end(subject)
    go(subject)
    subject.rewrite(state_changed_at=1_000_000, known_at=0)
    subject.amux.start()


def clean(subject: Subject) -> None:
    subject.amux.manager.call("Clean", "a{sv}", {})


SCENARIOS: dict[str, Scenario] = {
    "begin": Scenario(go, begin, {"none"}),
    "create": Scenario(nothing, create, {"none", "created"}),
    "create and start": Scenario(nothing, create_and_start, {"none", "created", "running"}),
    "start": Scenario(create, start, {"created", "running"}),
    "stop": Scenario(create_and_start, stop, {"running", "stopped"}),
    "end": Scenario(create_and_start, end, {"failed"}),
    "restart": Scenario(run_and_end, restart, {"failed", "running"}),
    "restart in the same terminal": Scenario(run_and_end_attached, restart, {"failed", "running"}),
    "archive": Scenario(run_and_end, archive, {"failed", "archived"}),
    "remove": Scenario(run_and_end, remove, {"failed", "none"}),
    "remove while it runs": Scenario(create_and_start, remove_while_it_runs, {"running", "stopped", "none"}),
    "suspend": Scenario(create_and_start, go, {"running"}),
    "adopt": Scenario(run_and_go, come_back, {"running"}),
    "end unwatched": Scenario(end_unwatched, come_back, {"failed"}),
    "start again": Scenario(die_while_it_starts, come_back, {"running"}),
    "stop again": Scenario(die_while_it_stops, come_back, {"stopped"}),
    "settle again": Scenario(die_while_it_settles, come_back, {"failed"}),
    "resume": Scenario(run_and_stop, resume, {"stopped", "running"}, agent="marked"),
    "park": Scenario(create_and_start, park, {"running"}, agent="marked"),
    "bring back": Scenario(run_and_park, resume, {"running"}, agent="marked"),
    "stop a parked one": Scenario(run_and_park, stop, {"running", "stopped"}, agent="marked"),
    "adopt a parked one": Scenario(park_and_go, come_back, {"running"}, agent="marked"),
    "come next": Scenario(wait_for_another, come_next, {"running"}, in_slot=True),
    "restart and wait": Scenario(run_end_and_let_another_in, restart, {"failed", "running"}, in_slot=True),
    "be orphaned": Scenario(create_and_start, lose_the_directory, {"orphaned"}, in_slot=True),
    "be orphaned unwatched": Scenario(lose_the_directory_unwatched, come_back, {"orphaned"}, in_slot=True),
    "end well": Scenario(create_and_start, end_well, {"completed"}, every=3),
    "end well and stay": Scenario(create_and_start, end_and_stay, {"running"}, agent="staying"),
    "end while suspended": Scenario(end_suspended, come_back, {"failed"}),
    "not start": Scenario(create_and_lose_place, start, {"created", "failed"}),
    "restart a stopped one": Scenario(run_and_stop, restart, {"stopped", "running"}),
    "restart a suspended one": Scenario(run_and_reboot_and_begin, restart, {"suspended", "running"}),
    "archive a created one": Scenario(create, archive, {"created", "archived"}),
    "clean": Scenario(run_end_and_grow_old, clean, {"failed", "none"}, every=3),
    "reboot": Scenario(run_and_reboot, begin, {"suspended"}),
    "lose power": Scenario(run_and_lose_power, begin, {"suspended"}),
    "come back by itself": Scenario(run_for_ever_and_reboot, come_back_by_itself, {"running"}),
    "come back by itself after a power cut": Scenario(
        run_for_ever_and_lose_power, come_back_by_itself, {"running"}
    ),
    "come back by itself, an agent": Scenario(
        run_for_ever_and_reboot, come_back_by_itself, {"running"}, agent="marked"
    ),
}


SCENARIOS |= {
    f"{name}, in a slot": replace(SCENARIOS[name], in_slot=True)
    for name in (
        *("create and start", "start", "stop", "end", "restart", "remove", "remove while it runs"),
        *("suspend", "adopt", "end unwatched", "start again", "stop again", "settle again"),
        *("park", "bring back", "adopt a parked one"),
    )
}
