"""What happens to a session while amuxd is killed, and what may have become of it then."""

import contextlib
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.bus import CallFailed
from harness.kill_subject import SHELL_OPEN, Subject
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
    in_shell: bool = False
    # Who asks for it is told that it did not work.
    is_refused: bool = False


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


def remove_by_force(subject: Subject) -> None:
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
    subject.why_failed = "could not start: "


def run_end_and_grow_old(subject: Subject) -> None:
    run_and_end(subject)
    go(subject)
    subject.rewrite(state_changed_at=1_000_000, known_at=0, uptime_at_change=0)
    subject.amux.start()


def clean(subject: Subject) -> None:
    subject.amux.manager.call("Clean", "a{sv}", {})


def run_and_end_well(subject: Subject) -> None:
    create_and_start(subject)
    end_well(subject)


def end_well_suspended(subject: Subject) -> None:
    run_and_go(subject)
    subject.end(0)


def run_and_obstruct(subject: Subject) -> None:
    create_and_start(subject)
    subject.obstruct()
    subject.why_failed = "could not be stopped: "


def run_and_be_orphaned(subject: Subject) -> None:
    create_and_start(subject)
    lose_the_directory(subject)


def be_orphaned_and_find_it_again(subject: Subject) -> None:
    assert subject.slot is not None
    run_and_be_orphaned(subject)
    subject.slot.directory.mkdir()


def lose_the_directory_as_it_starts(subject: Subject) -> None:
    """Where nothing obstructs the next amuxd, it tries to begin it first, and that fails."""
    assert subject.slot is not None
    die_while_it_starts(subject)
    subject.obstruct()
    subject.why_failed = "could not start: "
    shutil.rmtree(subject.slot.directory)


def run_end_and_leave_created(subject: Subject) -> None:
    """As an amuxd did that took two steps to begin a run."""
    run_and_end(subject)
    go(subject)
    at = subject.stored["state_changed_at"] + 1
    subject.rewrite(
        state="created",
        previous="failed",
        run=2,
        end=None,
        reason="restart was asked for",
        state_changed_at=at,
    )
    subject.why_failed = "could not start: "


def run_end_and_go(subject: Subject) -> None:
    run_and_end(subject)
    go(subject)


def end_suspended_and_reboot(subject: Subject) -> None:
    end_suspended(subject)
    subject.reboot()


def leave_shell(subject: Subject) -> None:
    subject.leave_shell()
    until(lambda: subject.amux.has_ended or not subject.amux.units(), timeout=60)


def run_with_logind(subject: Subject) -> None:
    subject.hear_of_shutdowns()
    go(subject)
    subject.amux.start()
    create_and_start(subject)
    assert subject.logind is not None
    until(subject.logind.is_delayed)


def hear_of_a_shutdown_that_is_called_off(subject: Subject) -> None:
    assert subject.logind is not None
    for going_down, state in ((True, "suspended"), (False, "running")):
        subject.logind.announce(going_down)
        until(lambda: subject.amux.has_ended or subject.stored["state"] == state)  # noqa: B023


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
    "remove while it runs": Scenario(create_and_start, remove_by_force, {"running", "stopped", "none"}),
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
    "end well": Scenario(create_and_start, end_well, {"completed"}),
    "end well and stay": Scenario(create_and_start, end_and_stay, {"running"}, agent="staying"),
    "end while suspended": Scenario(end_suspended, come_back, {"failed"}),
    "not start": Scenario(create_and_lose_place, start, {"created", "failed"}, is_refused=True),
    "restart a stopped one": Scenario(run_and_stop, restart, {"stopped", "running"}),
    "restart a suspended one": Scenario(run_and_reboot_and_begin, restart, {"suspended", "running"}),
    "archive a created one": Scenario(create, archive, {"created", "archived"}),
    "clean": Scenario(run_end_and_grow_old, clean, {"failed", "none"}),
    "reboot": Scenario(run_and_reboot, begin, {"suspended"}),
    "lose power": Scenario(run_and_lose_power, begin, {"suspended"}),
    "come back by itself": Scenario(run_for_ever_and_reboot, come_back_by_itself, {"running"}),
    "come back by itself after a power cut": Scenario(
        run_for_ever_and_lose_power, come_back_by_itself, {"running"}
    ),
    "come back by itself, an agent": Scenario(
        run_for_ever_and_reboot, come_back_by_itself, {"running"}, agent="marked"
    ),
    "be suspended for a shutdown that is called off": Scenario(
        run_with_logind, hear_of_a_shutdown_that_is_called_off, {"running"}
    ),
    "end well while suspended": Scenario(end_well_suspended, come_back, {"completed"}),
    "not be stopped": Scenario(run_and_obstruct, stop, {"running", "stopped", "failed"}, is_refused=True),
    "not begin what was left created": Scenario(run_end_and_leave_created, come_back, {"failed"}),
    "be orphaned before it starts": Scenario(create, lose_the_directory, {"orphaned"}, in_slot=True),
    "be orphaned while suspended": Scenario(
        run_and_reboot_and_begin, lose_the_directory, {"orphaned"}, in_slot=True
    ),
    "be orphaned as it starts": Scenario(
        lose_the_directory_as_it_starts, come_back, {"failed", "orphaned"}, in_slot=True
    ),
    "archive a suspended one": Scenario(run_and_reboot_and_begin, archive, {"suspended", "archived"}),
    "archive a stopped one": Scenario(run_and_stop, archive, {"stopped", "archived"}),
    "archive a completed one": Scenario(run_and_end_well, archive, {"completed", "archived"}),
    "archive an orphaned one": Scenario(run_and_be_orphaned, archive, {"orphaned", "archived"}, in_slot=True),
    "restart a completed one": Scenario(run_and_end_well, restart, {"completed", "running"}),
    "restart an orphaned one": Scenario(
        be_orphaned_and_find_it_again, restart, {"orphaned", "running"}, in_slot=True
    ),
    "resume a suspended one": Scenario(
        run_and_reboot_and_begin, resume, {"suspended", "running"}, agent="marked"
    ),
    "resume a failed one": Scenario(run_and_end, resume, {"failed", "running"}, agent="marked"),
    "resume an orphaned one": Scenario(
        be_orphaned_and_find_it_again, resume, {"orphaned", "running"}, agent="marked", in_slot=True
    ),
}

# What stays open of a shell when the command in it has ended.
OPEN = f"failed{SHELL_OPEN}"

SCENARIOS |= {
    f"{name}, in a shell": replace(scenario, in_shell=True)
    for name, scenario in {
        "start": Scenario(create, start, {"created", "running"}),
        "end": Scenario(create_and_start, end, {OPEN}),
        "stop": Scenario(create_and_start, stop, {"running", "stopped"}),
        "adopt": Scenario(run_and_go, come_back, {"running"}),
        "end unwatched": Scenario(end_unwatched, come_back, {OPEN}),
        "adopt an open one": Scenario(run_end_and_go, come_back, {OPEN}),
        "stop an open one": Scenario(run_and_end, stop, {OPEN, "failed"}),
        "leave an open one": Scenario(run_and_end, leave_shell, {"failed"}),
        "restart an open one": Scenario(run_and_end, restart, {OPEN, "running"}),
        "remove an open one": Scenario(run_and_end, remove_by_force, {OPEN, "failed", "none"}),
        "end and reboot": Scenario(end_suspended_and_reboot, come_back, {"failed"}),
    }.items()
}


SCENARIOS |= {
    f"{name}, in a slot": replace(SCENARIOS[name], in_slot=True)
    for name in (
        *("create and start", "start", "stop", "end", "restart", "remove", "remove while it runs"),
        *("suspend", "adopt", "end unwatched", "start again", "stop again", "settle again"),
        *("park", "bring back", "adopt a parked one"),
    )
}
