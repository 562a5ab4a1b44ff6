import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from harness.waiting import until

from amuxd.errors import LaunchFailed
from amuxd.terminals import AsProcess, Terminals


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
    asyncio.run(Terminals(recorder, configured).open(["amux", "ls"]))
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


def test_without_systemd_it_is_a_process_that_nobody_waits_for(tmp_path: Path) -> None:
    done = tmp_path / "done"

    async def main() -> None:
        launcher = AsProcess()
        assert "PATH" in await launcher.environment()
        await launcher.start(["/bin/sh", "-c", f"echo $PPID >{done}.new; mv {done}.new {done}"])

    asyncio.run(main())
    until(done.exists)
