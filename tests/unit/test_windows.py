import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from harness.waiting import until

from amuxd.bus.connection import Bus, BusError
from amuxd.errors import LaunchFailed
from amuxd.paths import amux_program
from amuxd.windows import AsProcess, InUnit, Windows


class Recorder:
    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self.started: list[list[str]] = []

    async def environment(self) -> Mapping[str, str]:
        return self._environment

    async def start(self, argv: Sequence[str]) -> None:
        self.started.append(list(argv))


def opened(tmp_path: Path, present: list[str], configured: str = "", terminal: str = "") -> list[str]:
    for name in present:
        (tmp_path / name).touch(mode=0o755)
    recorder = Recorder({"PATH": str(tmp_path), "TERMINAL": terminal})
    asyncio.run(Windows(recorder, configured).open(["amux", "ls"]))
    return [word.removeprefix(f"{tmp_path}/") for word in recorder.started[0]]


@pytest.mark.parametrize(
    ("present", "configured", "terminal", "argv"),
    [
        (["xterm", "foot"], "", "", ["foot"]),
        (["xterm"], "", "", ["xterm", "-e"]),
        (["xterm", "xdg-terminal-exec"], "", "", ["xdg-terminal-exec"]),
        (["xterm", "kitty"], "", "kitty", ["kitty"]),
        (["mine", "xterm"], "", "mine", ["mine", "-e"]),
        (["mine", "xterm"], "", "mine --run", ["mine", "--run"]),
        (["mine", "xterm"], "mine 'a b' --", "xterm", ["mine", "a b", "--"]),
    ],
)
def test_which_terminal_opens(
    tmp_path: Path, present: list[str], configured: str, terminal: str, argv: list[str]
) -> None:
    assert opened(tmp_path, present, configured, terminal) == [*argv, "amux", "ls"]


def test_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match=r"sessions\.terminal"):
        opened(tmp_path, [])
    with pytest.raises(LaunchFailed, match="no terminal program mine"):
        opened(tmp_path, ["xterm"], "mine -e")


def test_one_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match=r"foot -T 'x.* cannot be read"):
        opened(tmp_path, ["foot"], terminal="foot -T 'x")


def test_without_systemd_it_is_a_process_that_nobody_waits_for(tmp_path: Path) -> None:
    done = tmp_path / "done"

    async def main() -> None:
        launcher = AsProcess()
        assert "PATH" in await launcher.environment()
        await launcher.start(["/bin/sh", "-c", f"echo $PPID >{done}.new; mv {done}.new {done}"])

    asyncio.run(main())
    until(done.exists)


class NoBus:
    async def call(self, *_arguments: object, **_options: object) -> list[object]:
        raise BusError("org.freedesktop.DBus.Error.Failed", "no")


def test_what_systemd_refuses_is_said() -> None:
    launcher = InUnit(cast(Bus, NoBus()))
    with pytest.raises(LaunchFailed, match="systemd did not answer: no"):
        asyncio.run(launcher.environment())
    with pytest.raises(LaunchFailed, match="foot could not be started: no"):
        asyncio.run(launcher.start(["foot"]))


def test_the_amux_that_belongs_to_amuxd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "bin/amuxd")])
    assert amux_program() == "amux"
    (tmp_path / "amux").touch(mode=0o755)
    assert amux_program() == str(tmp_path / "amux")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/amux").touch(mode=0o755)
    assert amux_program() == str(tmp_path / "bin/amux")
