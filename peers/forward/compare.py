#!/usr/bin/env python3
"""Compares three forwarders of connections out of a TUN device: Millstream, netstack-smoltcp and ipstack.

Clients in one network namespace reach a server in another through the device and the forwarder, which is in the
server's. Rounds are interleaved. Python's standard library only; takes root.
"""

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILT = os.path.join(os.path.dirname(HERE), "target", "release")
CONTENDERS = ("millstream", "netstack", "ipstack")
# It makes its device itself, with what it sets there; "handed" is the same with a device that it is given.
MAKES_DEVICE = "millstream"
SERVER = "192.0.2.1:5001"
CLONE_NEWNET = 0x40000000
TUNSETIFF, TUN, NO_PI, VNET_HDR = 0x400454CA, 0x0001, 0x1000, 0x4000
LIBC = ctypes.CDLL(None, use_errno=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window", type=float, default=3.0, help="measured seconds of a run")
    parser.add_argument("--streams", default="1,128", help="with commas between")
    parser.add_argument("--mtu", default="1500,65520", help="with commas between")
    parser.add_argument("--ways", default="up,down", help="up: out of the device")
    parser.add_argument("--only", default=",".join(CONTENDERS), help="contenders, with commas between: also handed, Millstream with the device of the others")
    parser.add_argument("--offload", action="store_true",
                        help="a device with virtio-net headers, for Millstream alone: the others have none")
    parser.add_argument("--built", default=BUILT, help="the folder of the programs")
    parser.add_argument("--json", default="", help="where every run goes")
    return parser.parse_args()


def call(result, what):
    if result < 0:
        raise OSError(ctypes.get_errno(), what)
    return result


def elsewhere(work, namespace=None):
    """Returns what work returns in a thread of that namespace, or of a new one."""
    answer = []

    def body():
        if namespace is None:
            call(LIBC.unshare(CLONE_NEWNET), "make a network namespace")
        else:
            call(LIBC.setns(namespace, CLONE_NEWNET), "enter a network namespace")
        answer.append(work())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if not answer:
        sys.exit("error: no network namespaces: it takes root")
    return answer[0]


def ip(namespace, *commands):
    for command in commands:
        inside(namespace, subprocess.run, ["ip", *command.split()], check=True)


def inside(namespace, start, command, **how):
    """Starts a program there. It ends with this one."""
    def enter():
        LIBC.setns(namespace, CLONE_NEWNET)
        LIBC.prctl(1, signal.SIGKILL)
    return start(command, preexec_fn=enter, **how)


def open_device(mtu, offload):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = TUN | NO_PI | (VNET_HDR if offload else 0)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"ms0", flags))
    return device


@contextlib.contextmanager
def running(process):
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run(case, options):
    """One run in namespaces of its own; returns what the load printed."""
    contender, streams, way, mtu = case
    clients, servers = (elsewhere(lambda: os.open("/proc/thread-self/ns/net", os.O_RDONLY)) for _ in range(2))
    program = os.path.join(options.built, f"forward-{contender.replace('handed', 'millstream')}")
    forward, how, device = [program, str(mtu)], {"stdin": subprocess.DEVNULL}, None
    if contender == MAKES_DEVICE and not options.offload:
        forward.append(f"/proc/self/fd/{clients}")
        how["pass_fds"] = [clients]
    else:
        how["stdin"] = device = elsewhere(lambda: open_device(mtu, options.offload), clients)
        ip(clients, f"link set ms0 up mtu {mtu}", "addr add 10.70.0.1/24 dev ms0")
    try:
        ip(servers, "link set lo up", "addr add 192.0.2.1/32 dev lo")
        load = os.path.join(options.built, "forward-load")
        with running(inside(servers, subprocess.Popen, [load, "serve", SERVER])), \
                running(inside(servers, subprocess.Popen, forward, **how)) as forwarder:
            time.sleep(0.5)
            ip(clients, "route add 192.0.2.0/24 via 10.70.0.2 dev ms0")
            drive = [load, "drive", SERVER, way, str(streams), str(options.window), str(forwarder.pid)]
            done = inside(clients, subprocess.run, drive, capture_output=True, text=True, timeout=60)
            if done.returncode:
                return {"error": done.stderr.strip()}
            return {**json.loads(done.stdout), "ended_early": done.stderr.count("ended early")}
    except subprocess.TimeoutExpired:
        return {"error": "no end within a minute"}
    finally:
        for descriptor in filter(None, (device, clients, servers)):
            os.close(descriptor)


def settle():
    """Waits for two minutes at most until the kernel has given back most of what closed connections of former runs held.
    A thousand streams bring its TCP under memory pressure, which takes windows away from everybody, and which does not
    end while that alone is more than the first figure of tcp_mem: they hold it for minutes, also behind their namespaces."""
    low = int(open("/proc/sys/net/ipv4/tcp_mem").read().split()[0])
    end = time.monotonic() + 120
    while time.monotonic() < end:
        pages = next(line for line in open("/proc/net/sockstat") if line.startswith("TCP:")).split()[-1]
        if int(pages) < low / 2:
            return
        time.sleep(0.5)


def beside_fewest(runs, case):
    """Returns the CPU time for each GB over that with the fewest streams, round by round."""
    contender, _, way, mtu = case
    fewest = min(one["case"][1] for one in runs)
    cost = {(tuple(one["case"]), one["round"]): one["cpu_s_per_gb"] for one in runs if "error" not in one}
    one = (contender, fewest, way, mtu)
    return sorted(cost[case, turn] / cost[one, turn] for of, turn in cost if of == case and cost.get((one, turn)))


def table(runs):
    print(f"{'':44} {'Gb/s':>20} {'CPU s/GB':>20} {'over fewest streams':>20} {'MiB idle':>9} {'MiB most':>9}")
    for case in sorted({tuple(one["case"]) for one in runs}, key=lambda case: (case[3], case[2], case[1], case[0])):
        good = [one for one in runs if tuple(one["case"]) == case and "error" not in one]
        contender, streams, way, mtu = case
        name = f"{contender}, {streams} {'stream' if streams == 1 else 'streams'} {way}, MTU {mtu}"
        if not good:
            print(f"{name:44} {[one.get('error') for one in runs if tuple(one['case']) == case][0]}")
            continue

        def spread(values):
            values = sorted(values)
            return f"{statistics.median(values):.2f} ({values[0]:.2f}–{values[-1]:.2f})" if values else ""

        def column(key):
            return spread(one[key] for one in good)

        idle, high = (statistics.median(one[key] for one in good) / 1024 for key in ("idle_kib", "high_kib"))
        print(f"{name:44} {column('gbps'):>20} {column('cpu_s_per_gb'):>20} {spread(beside_fewest(runs, case)):>20} {idle:9.1f} {high:9.1f}")


def main():
    options = arguments()
    cases = [(contender, int(streams), way, int(mtu))
             for contender in options.only.split(",") for streams in options.streams.split(",")
             for way in options.ways.split(",") for mtu in options.mtu.split(",")]
    order, runs = random.Random(1), []
    for turn in range(options.rounds):
        for case in order.sample(cases, len(cases)):
            settle()
            runs.append({"case": case, "round": turn, **run(case, options)})
    table(runs)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(runs, out, indent=1)


if __name__ == "__main__":
    main()
