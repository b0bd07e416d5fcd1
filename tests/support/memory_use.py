"""How much memory processes of a running system have, as the kernel counts it."""

from pathlib import Path

from tests.support.system import System

MEGABYTE = 1_000_000


def resident_bytes(pid: int, figure: str = "VmRSS") -> int:
    """What a process has in memory now, or (``VmHWM``) had at the most."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == figure:
            return int(value.split()[0]) * 1024
    raise AssertionError(f"no {figure} of {pid}")


def peaks(system: System, prefix: str) -> dict[str, int]:
    """The most that each child with a name that begins so has had in memory so far."""
    return {name: resident_bytes(pid, "VmHWM") for name, pid in system.children.items() if name.startswith(prefix)}
