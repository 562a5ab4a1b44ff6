"""What is neither Python nor tested by use: scripts, units, interfaces, versions."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BOUNDARIES = {"build", "dist", ".git", ".venv"}


def files(pattern: str) -> list[Path]:
    found = [path.relative_to(REPOSITORY) for path in REPOSITORY.rglob(pattern)]
    return sorted(path for path in found if path.parts[0] not in BOUNDARIES)


def shell(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euc", script, "bash", *arguments],
        cwd=REPOSITORY,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("script", [*files("*.sh"), Path(".ci/run")], ids=str)
@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_script_is_sound(script: Path) -> None:
    text = (REPOSITORY / script).read_text()
    # One that is run through "sh FILE" may not say which shell it is for.
    told = text.startswith("#!") or "# shellcheck shell=" in text
    finished = subprocess.run(
        ["shellcheck", "-x", "-S", "warning", *([] if told else ["-s", "sh"]), script],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_units_are_understood(tmp_path: Path) -> None:
    for name in ("amux", "amuxd"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    units = []
    for unit in sorted((REPOSITORY / "systemd").iterdir()):
        filled = tmp_path / unit.name
        filled.write_text(unit.read_text().replace("@BINDIR@", str(tmp_path)))
        units.append(filled)
    finished = subprocess.run(
        ["systemd-analyze", "--user", "--man=no", "verify", *units],
        env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in finished.stderr.splitlines() if "amux" in line]
    assert complaints == []


def test_bindir_is_filled_in_literally(tmp_path: Path) -> None:
    template = tmp_path / "a.service"
    template.write_text("ExecStart=@BINDIR@/amuxd\n")
    target = tmp_path / "made/a.service"
    shell('. packaging/lib.sh; fill_in "$@"', str(template), str(target), "/h/50%/a&b|c")
    assert target.read_text() == "ExecStart=/h/50%%/a&b|c/amuxd\n"
    refused = shell('. packaging/lib.sh; fill_in "$@"', str(template), str(target), "/with space")
    assert refused.returncode == 1
    assert "/with space" in refused.stderr


@pytest.mark.parametrize("file", files("*.xml"), ids=str)
def test_interface_is_complete(file: Path) -> None:
    for interface in ElementTree.parse(REPOSITORY / file).getroot().iter("interface"):
        for member in interface:
            if member.tag in ("method", "signal", "property") and interface.attrib["name"].startswith(
                "org.amux."
            ):
                annotations = {child.attrib["name"] for child in member.findall("annotation")}
                assert "org.gtk.GDBus.DocString" in annotations, member.attrib["name"]
            for argument in member.findall("arg"):
                assert argument.get("name"), member.attrib["name"]


def test_oldest_versions_are_the_ones_promised() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    promised = dict(requirement.split(">=") for requirement in project["dependencies"])
    lines = (REPOSITORY / "packaging/oldest.txt").read_text().splitlines()
    oldest = dict(line.split("==") for line in lines if "==" in line)
    assert oldest.keys() == promised.keys()
    for name, version in promised.items():
        assert (oldest[name] + ".0").startswith(version + "."), name


# A tree in which a package manager that only writes down what it was asked for brings all that is missing.
MANAGER = """#!/bin/bash
echo "${0##*/} $*" >>"$TREE/asked"
case "${0##*/} $*" in
    sudo*) exec "$@" ;;
    'apt-cache policy python3') echo "  Candidate: ${PYTHON_VERSION:-3.12.3-1}"; exit ;;
    'pacman -S '*) exit 1 ;;
    *install* | 'pacman -Sy '*) ;;
    *) exit ;;
esac
for tool in tmux dbus-daemon git systemd-nspawn debootstrap shellcheck unshare busctl ps xmllint python3 \\
    Xvfb dunst import gdbus mkfs.btrfs zsh fish dash busybox npm; do
    printf '#!/bin/bash\\necho "tmux %s"\\n' "${TMUX_VERSION:-3.4}" >"$TREE/bin/$tool"
    chmod +x "$TREE/bin/$tool"
done
mkdir -p "$TREE/usr/lib/systemd/user" "$TREE/usr/bin"
: >"$TREE/usr/lib/systemd/user/dbus.socket"
: >"$TREE/usr/lib/systemd/systemd"
chmod +x "$TREE/usr/lib/systemd/systemd"
ln -sf "$TREE/bin/python3" "$TREE/usr/bin/python3"
"""
COREUTILS = ["bash", "env", "cat", "sort", "sed", "id", "dirname", "mktemp", "rm", "mkdir", "chmod", "ln"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for directory in ("bin", "etc", "run/systemd/system"):
        (tmp_path / directory).mkdir(parents=True)
    for tool in COREUTILS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool, path="/usr/bin:/bin") or "missing")
    return tmp_path


def install(
    tree: Path, release: str, managers: list[str], purpose: str = "run", **environment: str
) -> subprocess.CompletedProcess[str]:
    (tree / "etc/os-release").write_text(release)
    (tree / "manager").write_text(MANAGER)
    (tree / "manager").chmod(0o755)
    for manager in managers:
        (tree / "bin" / manager).symlink_to(tree / "manager")
    return subprocess.run(
        ["/bin/bash", str(REPOSITORY / "packaging/system-packages.sh"), purpose],
        env={"PATH": str(tree / "bin"), "HOME": str(tree), "TREE": str(tree), "AMUX_ROOT": str(tree)}
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def asked(tree: Path) -> list[str]:
    lines = (tree / "asked").read_text().splitlines()
    return [line for line in lines if not line.startswith(("apt-cache", "sudo"))]


@pytest.mark.parametrize(
    ("release", "managers", "expected"),
    [
        (
            'ID="ubuntu"\nID_LIKE=debian\n',
            ["apt-get", "apt-cache"],
            [
                "apt-get update",
                "apt-get install -y --no-install-recommends "
                "dbus-daemon dbus-user-session git python3 python3-venv tmux",
            ],
        ),
        (
            "ID=fedora\n",
            ["dnf"],
            ["dnf install -y --setopt=install_weak_deps=False dbus-broker dbus-daemon git-core python3 tmux"],
        ),
        (
            "ID=manjaro\nID_LIKE=arch\n",
            ["pacman"],
            [
                "pacman -S --needed --noconfirm dbus git python tmux",
                "pacman -Sy --needed --noconfirm dbus git python tmux",
            ],
        ),
    ],
    ids=["debian", "fedora", "arch"],
)
def test_missing_packages_are_installed_once(
    tree: Path, release: str, managers: list[str], expected: list[str]
) -> None:
    managers = [*managers, "sudo"]
    first = install(tree, release, managers)
    assert first.returncode == 0, first.stderr
    assert asked(tree) == expected
    again = install(tree, release, [])
    assert (again.returncode, again.stdout) == (0, "")
    assert asked(tree) == expected


def test_an_ordinary_user_needs_sudo(tree: Path) -> None:
    (tree / "bin/id").unlink()
    (tree / "bin/id").write_text("#!/bin/bash\necho 1000\n")
    (tree / "bin/id").chmod(0o755)
    refused = install(tree, "ID=fedora\n", ["dnf"])
    assert refused.returncode == 1
    assert "there is no sudo to install them with" in refused.stderr
    assert not (tree / "asked").exists()

    (tree / "bin/sudo").symlink_to(tree / "manager")
    assert install(tree, "ID=fedora\n", []).returncode == 0
    words = (tree / "asked").read_text().splitlines()
    assert [line.split()[0:2] for line in words] == [["sudo", "dnf"], ["dnf", "install"]]


def test_tests_need_more_packages(tree: Path) -> None:
    finished = install(tree, "ID=fedora\n", ["dnf", "sudo"], "test")
    assert finished.returncode == 0, finished.stderr
    words = asked(tree)[0].split()
    assert {"systemd-container", "debootstrap", "ShellCheck", "util-linux", "busybox"} <= set(words)


@pytest.mark.parametrize(
    ("release", "managers", "expected"),
    [
        ("ID=debian\n", ["apt-get", "apt-cache"], {"nodejs", "npm"}),
        ("ID=fedora\n", ["dnf"], {"nodejs", "nodejs-npm"}),
        ("ID=arch\n", ["pacman"], {"nodejs", "npm"}),
    ],
    ids=["debian", "fedora", "arch"],
)
def test_the_real_agents_need_npm(tree: Path, release: str, managers: list[str], expected: set[str]) -> None:
    """However it came to be there: where it is, Node.js is left as it is as well."""
    stand_in(tree, "npm", "exit")
    assert install(tree, release, [*managers, "sudo"], "test").returncode == 0
    assert not expected & set(asked(tree)[-1].split())
    (tree / "bin/npm").unlink()
    assert install(tree, release, [], "test").returncode == 0
    assert set(asked(tree)[-1].split()) & {"nodejs", "npm", "nodejs-npm"} == expected


def test_old_python_gets_a_newer_one_beside_it_and_old_tmux_is_refused(
    tree: Path,
) -> None:
    finished = install(
        tree,
        "ID=ubuntu\nID_LIKE=debian\n",
        ["apt-get", "apt-cache", "sudo"],
        PYTHON_VERSION="3.10.6-1~22.04",
        TMUX_VERSION="3.2a",
    )
    assert "python3.11 python3.11-venv" in asked(tree)[-1]
    assert finished.returncode == 1
    assert "tmux 3.3 or newer is needed and this system has tmux 3.2a" in finished.stderr


def test_unknown_distribution_is_told_what_is_missing(tree: Path) -> None:
    finished = install(tree, "ID=opensuse\n", [])
    assert finished.returncode == 1
    assert "tmux" in finished.stderr
    assert not (tree / "asked").exists()


def stand_in(tree: Path, name: str, script: str) -> None:
    program = tree / "bin" / name
    program.unlink(missing_ok=True)
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)


def test_tests_without_a_way_to_root_are_refused_at_once(tree: Path) -> None:
    stand_in(tree, "id", "echo 1000")
    refused = install(tree, "ID=fedora\n", ["dnf"], "test")
    assert refused.returncode == 1
    assert "The tests need root" in refused.stderr.splitlines()[0]
    assert not (tree / "asked").exists()


@pytest.mark.parametrize("code", [0, 3])
def test_tests_of_an_ordinary_user_run_through_sudo(tree: Path, code: int) -> None:
    stand_in(tree, "id", "echo 1000")
    stand_in(tree, "sudo", 'echo "$*" >>"$TREE/asked"; [[ $1 == chown ]] || exec "$@"')
    script = f'. "$1"; tests_as_root bash -c "echo \\$PIP_INDEX_URL; exit {code}"'
    finished = subprocess.run(
        ["/bin/bash", "-euc", script, "bash", REPOSITORY / "packaging/lib.sh"],
        env={"PATH": str(tree / "bin"), "HOME": str(tree), "TREE": str(tree), "PIP_INDEX_URL": "a b"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stdout) == (code, "a b\n")
    ran, gave_back = (tree / "asked").read_text().splitlines()
    assert ran.startswith("env PIP_INDEX_URL=a b bash")
    assert gave_back == "chown -Rh --from=0 1000:1000 ."


def test_what_was_not_tested_is_named_at_the_end_and_fails_in_ci(tree: Path) -> None:
    """The script alone: what it would run says yes to everything."""
    source = tree / "source"
    (source / "tests/integration").mkdir(parents=True)
    shutil.copytree(REPOSITORY / "packaging", source / "packaging")
    for test_module in (REPOSITORY / "tests/integration").glob("test_*.py"):
        (source / "tests/integration" / test_module.name).touch()
    stand_in(tree, "python3.11", "exit")
    stand_in(tree, "python3.13", "exit")
    (tree / "bin/true").symlink_to("/bin/true")
    tools = 'mkdir -p "$1/bin"; for tool in ruff mypy pytest python; do ln -sf /bin/true "$1/bin/$tool"; done'
    (source / "packaging/venv.sh").write_text(f"#!/bin/bash\n{tools}\n")

    def test(**environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/bash", source / "packaging/test.sh"],
            env={"PATH": str(tree / "bin"), "HOME": str(tree)} | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    at_home = test()
    assert at_home.returncode == 0, at_home.stderr
    *_, last = at_home.stdout.splitlines()
    assert last.endswith("What was tested passed; not tested here: the scripts, Python 3.12")
    in_ci = test(AMUX_TEST_EVERYTHING="yes")
    assert in_ci.returncode == 1
    assert "was not tested: the scripts, Python 3.12" in in_ci.stderr
