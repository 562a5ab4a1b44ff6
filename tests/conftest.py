"""The fixtures that give a test a machine of its own; see tests/harness."""

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("cli_fixtures", "ends_fixtures", "events_fixtures", "server_fixtures")
pytest.register_assert_rewrite("mortal_amuxd", "person_at_work", "worktree_work")
pytest.register_assert_rewrite("harness.killable", "harness.kill_subject", "harness.kill_points")

from harness import debian13  # noqa: E402
from harness.client import Client  # noqa: E402
from harness.daemon import Amux, Embedded  # noqa: E402
from harness.machine import Machine  # noqa: E402

pytest.register_assert_rewrite("harness.witnesses")

REPORTED_LINES = 200

# For what a test may be skipped where nothing may be left out: what no package brings to this kernel, machine
# or Python. That no machine can boot here is none of these: too much is proven in it and nowhere else.
BEYOND_HELP = {
    "it waits for processes without threads",
    "one processor works alone",
    "the call's number is not known here",
    "the controller of processes is not to be had here",
    "the kernel knows no turns of one's own before 6.12",
    "there is no /dev/fuse",
    "this file system has no ACLs",
    "this kernel forgets how a process ended when it is reaped",
    "this kernel has no btrfs",
}

# How long an example takes is a matter of what else the machine does.
settings.register_profile("amux", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("amux")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A script that starts the tests in the background has all that they start ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "nightly: slow, and run by make nightly")
    config.addinivalue_line("markers", "integration: on real parts, in a machine of its own; needs root")
    config.addinivalue_line(
        "markers", "booted: on a Debian that boots and loses its power; needs root and systemd-nspawn"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    real = Path(__file__).parent / "integration"
    for item in items:
        if real in item.path.parents:
            item.add_marker(pytest.mark.integration)


def _fail_what_is_left_out(report: pytest.TestReport | pytest.CollectReport) -> None:
    """A skipped test counts as passed and proves nothing; as a failure, every runner tells of it."""
    if not os.environ.get("AMUX_TEST_EVERYTHING") or not report.skipped:
        return
    # What is expected to fail is called skipped as well, and was run.
    if isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason not in BEYOND_HELP:
            report.outcome = "failed"
            report.longrepr = f"skipped, and nothing may be left out: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, object, None]:
    outcome = yield
    _fail_what_is_left_out(outcome.get_result())  # type: ignore[attr-defined]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, object, None]:
    outcome = yield
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]
    if not report.failed:
        _fail_what_is_left_out(report)
        return
    for machine in Machine.alive:
        if not machine.manager:
            continue
        try:
            lines = machine.journal_text(f"--since=@{call.start:.6f}", f"--lines={REPORTED_LINES}")
        except Exception as error:
            lines = f"it could not be read: {error}"
        if lines:
            report.sections.append((f"journal of {machine.base.name}", lines))


@pytest.fixture
def machine() -> Iterator[Machine]:
    """systemd --user, its bus, a journal and tmux, for this test alone."""
    with Machine() as machine:
        yield machine


@pytest.fixture(scope="session")
def shared_machine() -> Iterator[Machine]:
    """The same for all tests of a worker that leave it as they found it."""
    with Machine() as machine:
        yield machine


def _amux(machine: Machine) -> Iterator[Amux]:
    amux = Amux(machine)
    try:
        amux.start()
        yield amux
    finally:
        amux.close()


@pytest.fixture
def amux(shared_machine: Machine) -> Iterator[Amux]:
    """A fresh amuxd without sessions; what a session leaves behind after the test is an error."""
    yield from _amux(shared_machine)


@pytest.fixture
def machine13() -> Iterator[Machine]:
    """As machine, with what Debian 13 ships: systemd 257, tmux 3.5a, Python 3.13."""
    with debian13.machine() as machine:
        yield machine


@pytest.fixture(scope="session")
def shared_machine13() -> Iterator[Machine]:
    with debian13.machine() as machine:
        yield machine


@pytest.fixture
def amux13(shared_machine13: Machine) -> Iterator[Amux]:
    """As amux, on Debian 13."""
    yield from _amux(shared_machine13)


@pytest.fixture(params=["amux", "amux13"])
def amux_everywhere(request: pytest.FixtureRequest) -> Amux:
    """The same test on this system and on Debian 13."""
    amux = request.getfixturevalue(request.param)
    assert isinstance(amux, Amux)
    return amux


@pytest.fixture(params=["amux", "amux13", "embedded"])
def anywhere(request: pytest.FixtureRequest) -> Client:
    """On this system, on Debian 13, and without systemd."""
    client = request.getfixturevalue(request.param)
    assert isinstance(client, Client)
    if isinstance(client, Embedded):
        client.cli("ls")
    return client


@pytest.fixture
def embedded() -> Iterator[Embedded]:
    """The CLI where there is neither systemd nor a bus; every process that it started ends with the test."""
    with Machine(manager=False) as machine:
        embedded = Embedded(machine)
        try:
            yield embedded
        finally:
            embedded.close()
