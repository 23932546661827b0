"""Every workload, and which contenders take part in it with which settings."""

from dataclasses import dataclass

from .build import PROGRAMS

# How the near end meets the far end.
TAP, VETH, PACKET, MEMORY, USER, IPERF = "tap", "veth", "packet", "memory", "user", "iperf3"

# What distinguishes a contender that asks the kernel not to halt idle CPUs while it runs.
AWAKE = ", CPUs kept awake"

# What distinguishes one whose link passes super-segments beyond 64 KiB, and how long they are there, in bytes.
BIG, BIG_BYTES = ", BIG TCP", 262_144

# Millstream's buffers where a sweep found better ones than its default (docs/peers.md).
OFFLOAD = ("--link", "offload")
LARGE = ("--buffer", str(4 << 20))

# Bytes that either end gives to its stack, or asks from it, in one call.
CALL, LARGE_CALL = 128 << 10, 1 << 20


@dataclass(frozen=True)
class Case:
    """One contender in one workload."""
    workload: str
    contender: str
    # Key of build.PROGRAMS: what must have been built.
    program: str
    kind: str
    role: str
    # Arguments of the near end after its role.
    near: tuple = ()
    mtu: int = 1500
    # veth: whether its offloads are on. For the proof: whether super-segments are expected.
    offload: bool = False
    one_core: bool = False
    far_spins: bool = False
    # USER: which tool.
    tool: str = ""
    # Idle CPUs of the machine are kept from halting while it runs.
    awake: bool = False
    # TAP: each packet of the kernel's lies in one piece of memory, as Millstream has it while data flow in bulk.
    whole: bool = False
    # veth: super-segments of so many bytes pass; 0: as the kernel makes it. A TAP device has what its user sets.
    super_bytes: int = 0
    # Bytes of a call at either end.
    call: int = CALL

    def command(self):
        """The near end's program and arguments."""
        size = ("--call", str(self.call)) if self.call != CALL else ()
        return [PROGRAMS[self.program].path, self.role, *self.near, *size]

    def two_cpus(self):
        """Whether both ends have a CPU each, so that the distance of the two matters."""
        return self.kind != MEMORY and not self.one_core

    def watched(self):
        """Whether that distance is looked at inside a run, too: each look wakes both CPUs, so not where how they sleep
        is what is measured."""
        return self.two_cpus() and (self.role != "echo" or self.far_spins)

    def rival(self):
        """The Millstream whose median is divided by this contender's."""
        is_other = self.program != "millstream"
        return "millstream" + (AWAKE if self.awake and is_other else "") + (BIG if self.super_bytes and is_other else "")


def bulk():
    """Bulk TCP with the kernel as the far end, both directions, with offloads and without."""
    for role in ("send", "receive"):
        load = f"bulk-{role}-offload"
        yield Case(load, "millstream", "millstream", TAP, role, OFFLOAD, offload=True)
        yield Case(load, "kernel, veth", "kernel", VETH, role, offload=True)
        yield from big(load, role, offload=True)
        yield Case(load, "iperf3, veth", "iperf3", IPERF, role, offload=True)
        yield Case(load, "smoltcp, TAP with TSO", "smoltcp", TAP, role, ("--link", "tso"), offload=True)
        yield Case(load, "gvisor, AF_PACKET with GSO", "gvisor", PACKET, role, ("--link", "packet"), offload=True)
        load = f"bulk-{role}-plain"
        yield Case(load, "millstream", "millstream", TAP, role, ("--link", "plain"))
        yield Case(load, "kernel, veth", "kernel", VETH, role)
        yield Case(load, "iperf3, veth", "iperf3", IPERF, role)
        yield Case(load, "smoltcp, own TAP", "smoltcp", TAP, role, ("--link", "own"))
        if role == "receive":
            yield Case(load, "smoltcp, own TAP without SG", "smoltcp", TAP, role, ("--link", "own"), whole=True)
        yield Case(load, "gvisor, TAP", "gvisor", TAP, role, ("--link", "tap"))
        yield Case(load, "lwip, TAP", "lwip", TAP, role)


def big(load, role, **size):
    """The kernel and Millstream once more, with the longest packets that they pass whole."""
    near = ("--link", "offload", "--super", str(BIG_BYTES))
    yield Case(load, f"millstream{BIG}", "millstream", TAP, role, near, super_bytes=BIG_BYTES, **size)
    yield Case(load, f"kernel, veth{BIG}", "kernel", VETH, role, super_bytes=BIG_BYTES, **size)


def large_calls():
    """Bulk with offloads and calls of a megabyte at either end: where the kernel's sockets can be at their best."""
    for role in ("send", "receive"):
        load = f"bulk-{role}-large-calls"
        size = {"offload": True, "call": LARGE_CALL}
        yield Case(load, "millstream", "millstream", TAP, role, OFFLOAD, **size)
        yield Case(load, "kernel, veth", "kernel", VETH, role, **size)
        yield from big(load, role, **size)
        yield Case(load, "smoltcp, TAP with TSO", "smoltcp", TAP, role, ("--link", "tso"), **size)
        yield Case(load, "gvisor, AF_PACKET with GSO", "gvisor", PACKET, role, ("--link", "packet"), **size)


def memory():
    """Both ends in one thread over an in-memory link."""
    for mtu, name in ((1500, "1500"), (9000, "9000"), (65_535, "64k")):
        load = f"memory-bulk-{name}"
        size = ("--mtu", str(mtu))
        if mtu != 65_535:
            yield Case(load, "millstream", "millstream", MEMORY, "memory-bulk", ("--link", "plain", *size, *LARGE), mtu)
        else:
            yield Case(load, "millstream", "millstream", MEMORY, "memory-bulk", ("--link", "super", *LARGE), mtu)
            yield Case(load, "millstream, zero-copy", "millstream", MEMORY, "memory-bulk", ("--link", "packets", *LARGE),
                       mtu)
        yield Case(load, "smoltcp", "smoltcp", MEMORY, "memory-bulk", size, mtu)
        yield Case(load, "gvisor", "gvisor", MEMORY, "memory-bulk", size, mtu)
    yield Case("memory-rr", "millstream", "millstream", MEMORY, "memory-rr", ("--link", "plain"))
    yield Case("memory-rr", "smoltcp", "smoltcp", MEMORY, "memory-rr")
    yield Case("memory-rr", "gvisor", "gvisor", MEMORY, "memory-rr")


def rr():
    """One byte to and fro with the kernel as the far end."""
    for load, spin, settings in (
        ("rr-one-core", False, {"one_core": True}),
        ("rr-two-cores-sleeping", False, {}),
        ("rr-two-cores-spinning", True, {}),
        ("rr-two-cores-both-spin", True, {"far_spins": True}),
    ):
        words = ("--spin",) if spin else ()
        yield Case(load, "millstream", "millstream", TAP, "echo", ("--link", "offload", *words), **settings)
        yield Case(load, "kernel, veth", "kernel", VETH, "echo", words, offload=True, **settings)
        yield Case(load, "smoltcp, own TAP", "smoltcp", TAP, "echo", ("--link", "own", *words), **settings)
        yield Case(load, "lwip, TAP", "lwip", TAP, "echo", words, **settings)
        if not spin:
            yield Case(load, "gvisor, AF_PACKET", "gvisor", PACKET, "echo", ("--link", "packet"), **settings)
        if load == "rr-two-cores-spinning":
            yield from awake(load)


def awake(load):
    """The near end spins, and the far end's CPU polls instead of halting while its reader sleeps."""
    words = ("--spin", "--awake")
    yield Case(load, f"millstream{AWAKE}", "millstream", TAP, "echo", ("--link", "offload", *words), awake=True)
    yield Case(load, f"kernel, veth{AWAKE}", "kernel", VETH, "echo", words, offload=True, awake=True)
    yield Case(load, f"smoltcp, own TAP{AWAKE}", "smoltcp", TAP, "echo", ("--link", "own", *words), awake=True)


def user():
    """Out of a namespace through a user-mode network to a server outside; the kernel and Millstream beside."""
    for role in ("send", "receive"):
        load = f"user-mode-{role}"
        yield Case(load, "millstream", "millstream", TAP, role, OFFLOAD, offload=True)
        yield Case(load, "kernel, veth", "kernel", VETH, role, offload=True)
        for tool in ("pasta", "slirp4netns"):
            for mtu in (1500, 65_520):
                yield Case(load, f"{tool}, MTU {mtu}", tool, USER, role, mtu=mtu, tool=tool)


def all_cases():
    """In the order of the table."""
    return [*bulk(), *large_calls(), *memory(), *rr(), *user()]
