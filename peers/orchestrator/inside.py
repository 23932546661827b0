"""The inside of one run, alone in fresh network and PID namespaces: makes devices, starts the far end and the
near end on their CPUs, and prints one line of JSON. Runs as a script and imports nothing of the others.

    far end  10.70.0.2:5001, kernel, this namespace      near end  10.70.0.1
"""

import json
import math
import os
import subprocess
import sys
import time

NEAR, FAR, PORT = "10.70.0.1", "10.70.0.2", "5001"
DEVICE = "ms-tap"
# What connecting and ending may take beside warm-up and window.
PATIENCE_S = 6
# What the far device may have carried less than the payload, as a share of it: the counters are read one after the other.
LACK = 0.03
# Headers and repeated segments that may come upon the payload, as a share of it.
OVERHEAD = 0.12
# What may lie in queues when the window begins and ends: bytes, and the share of the payload that it is at most. Of a
# slow path in a short window the bytes alone would be all there is, and nothing would be proved.
QUEUED_BYTES = 8 << 20
QUEUED_SHARE = 0.25
# Largest frame that is no super-segment.
FRAME_BYTES = 1514
# Longest ordinary super-segment.
ORDINARY_BYTES = 65_549


# Largest send buffer of the near end's socket behind pasta, by MTU. This pasta says that it has what it wrote to a
# socket on the same host, advertises a window that does not shrink as that socket fills, and forgets what the socket
# does not take: whoever has more under way loses it, and waits for one retransmission timeout after the other. The
# best of a sweep (docs/peers.md).
PASTA_SEND_BYTES = {1500: 256 << 10, 65_520: 2 << 20}


class Failed(Exception):
    """Why the run says nothing."""


class Said(dict):
    """What a program printed."""

    def __missing__(self, key):
        raise Failed(f"a program does not say \"{key}\": it is of another version; build it again (no --no-build)")


def main():
    job = json.loads(sys.argv[1])
    try:
        result = measure(job)
    except Failed as why:
        result = {"error": str(why)}
    print(json.dumps(result))


def measure(job):
    """Sets up, runs, and returns the measured values."""
    tune()
    kind = job["kind"]
    if kind == "memory":
        return memory(job)
    holder = None
    if kind == "tap":
        command("ip", "tuntap", "add", DEVICE, "mode", "tap")
        if job["whole"]:
            command("ethtool", "-K", DEVICE, "sg", "off")
        up(DEVICE, job["mtu"], FAR)
        device = DEVICE
    else:
        holder = Holder(job)
        device = "lo" if kind == "user" else veth(holder, job)
    if kind == "iperf3":
        return iperf3(job, holder)
    if kind == "user":
        return user_mode(job, holder)
    return far_and_near(job, holder, device)


# The kernel at its best in a namespace: large buffers, no IPv6 chatter.
SETTINGS = (("ipv4/tcp_rmem", "4096 131072 67108864"), ("ipv4/tcp_wmem", "4096 65536 67108864"),
            ("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1"),
            ("ipv4/ping_group_range", "0 2147483647"))


# For sockets that choose none: a system's default of BBR would pace them, and goes on to where one is chosen for a
# connection that is there. Which a namespace may have as its default is the system's choice
# (`tcp_allowed_congestion_control`); on a path that loses nothing NewReno does what cubic does.
CONGESTION = "for name in cubic reno; do echo $name >/proc/sys/net/ipv4/tcp_congestion_control && break; done"


def tune(enter=()):
    """Sets what of SETTINGS is permitted, in this namespace or the one that `enter` enters."""
    lines = [f"echo {value} >/proc/sys/net/{name}" for name, value in SETTINGS]
    subprocess.run([*enter, "sh", "-c", "\n".join([*lines, CONGESTION, "ip link set lo up"])],
                   stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def lifetime(job):
    """Seconds that everything around a run lasts, whatever its window: who waits for the run gives up before."""
    return math.ceil(job["warm"] + job["window"]) + 60


class Holder:
    """A second network namespace, which lives as long as the process that holds it."""

    def __init__(self, job):
        self.process = subprocess.Popen(["unshare", "--net", "sleep", str(lifetime(job))])
        mine = os.readlink("/proc/self/ns/net")
        path = f"/proc/{self.process.pid}/ns/net"
        for _ in range(500):
            if os.readlink(path) != mine:
                break
            time.sleep(0.002)
        else:
            raise Failed("no second namespace")
        self.enter = ["nsenter", "--net=" + path]
        self.pid = str(self.process.pid)
        tune(self.enter)

    def counters(self, device):
        """Bytes received and sent by a device of this namespace."""
        with open(f"/proc/{self.pid}/net/dev", encoding="ascii", errors="backslashreplace") as file:
            for line in file:
                name, _, rest = line.strip().partition(":")
                if name == device:
                    fields = rest.split()
                    return int(fields[0]), int(fields[8])
        return 0, 0


def veth(holder, job):
    """Joins the namespaces; returns the far end's device."""
    command("ip", "link", "add", "ms-near", "netns", holder.pid, "type", "veth", "peer", "name", "ms-far")
    if not job["offload"]:
        off = ["tso", "off", "gso", "off", "gro", "off", "tx", "off", "rx", "off", "sg", "off"]
        command("ethtool", "-K", "ms-far", *off)
        command(*holder.enter, "ethtool", "-K", "ms-near", *off)
    if job["super_bytes"]:
        lengthen("ms-far", job["super_bytes"])
        lengthen("ms-near", job["super_bytes"], holder.enter)
    up("ms-far", job["mtu"], FAR)
    # A stack of its own on AF_PACKET has the address; the kernel must not answer for it.
    up("ms-near", job["mtu"], None if job["kind"] == "packet" else NEAR, holder.enter)
    return "ms-far"


def up(device, mtu, address=None, enter=()):
    """Sets MTU and address, and brings the device up."""
    command(*enter, "ip", "link", "set", device, "mtu", str(mtu), "up")
    if address:
        command(*enter, "ip", "address", "add", f"{address}/24", "dev", device)


def lengthen(device, size, enter=()):
    """Has a device pass super-segments of IPv4 of `size` bytes. The `ip` of many distributions has no word for it."""
    done = subprocess.run([*enter, sys.executable, "-c", SUPER_SEGMENTS, device, str(size)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="backslashreplace", check=False)
    if done.returncode or done.stdout.strip() != "0":
        why = done.stdout.strip() or done.stderr.strip().splitlines()[-1]
        raise Failed(f"{device} passes no super-segments of {size} bytes (it takes Linux 6.3): {why}")


# RTM_NEWLINK with IFLA_GSO_IPV4_MAX_SIZE and IFLA_GRO_IPV4_MAX_SIZE; prints the error number of the answer.
SUPER_SEGMENTS = """
import socket, struct, sys
index, size = socket.if_nametoindex(sys.argv[1]), int(sys.argv[2])
body = struct.pack("=BxHiII", 0, 0, index, 0, 0) + b"".join(struct.pack("=HHI", 8, kind, size) for kind in (63, 64))
with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
    kernel.send(struct.pack("=IHHII", 16 + len(body), 16, 5, 1, 0) + body)
    print(-struct.unpack_from("=i", kernel.recv(4096), 16)[0])
"""


def command(*words):
    """Runs a command that must succeed."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="backslashreplace", check=False)
    if done.returncode:
        raise Failed(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


def start(words, cpu, enter=()):
    """Starts an end on a CPU."""
    pinned = ["taskset", "--cpu-list", str(cpu % (os.cpu_count() or 1))] if cpu is not None else []
    return subprocess.Popen([*enter, *pinned, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, errors="backslashreplace")


def finish(process, patience, what):
    """The last line of a process's output as JSON."""
    try:
        out, err = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Failed(f"{what} did not end") from None
    lines = [line for line in err.splitlines() if line.strip()]
    if process.returncode:
        raise Failed(f"{what}: {lines[-1] if lines else process.returncode}")
    notes = [line.removeprefix("note: ") for line in lines if line.startswith("note: ")]
    try:
        return Said(json.loads(out.strip().splitlines()[-1])), notes
    except (IndexError, TypeError, ValueError):
        raise Failed(f"{what}: said nothing") from None


class Watch:
    """Looks ten times a second how far apart the two CPUs are, where the job wants that."""

    def __init__(self, job):
        words = [job["watch"], "0", "1", "--watch", str(job["warm"] + job["window"] + PATIENCE_S)]
        self.process = start(words, None) if job["watch"] else None

    def seen(self, begin, end):
        """Ends it. What it saw between two moments of the monotonic clock, as a part of the result."""
        if not self.process:
            return {}
        why = "it did not look" if self.process.poll() is not None else ""
        self.process.terminate()
        out, err = self.process.communicate()
        if why:
            return {"cpu_distance_absent": (err.strip().splitlines() or [why])[-1]}
        looks = [line.split() for line in out.splitlines()]
        return {"inside_ns": [int(distance) for at, distance in looks if begin <= float(at) <= end]}


def far_and_near(job, holder, device, peer=FAR, near_command=None):
    """The common run: the far end drives and measures, the near end follows."""
    patience = job["warm"] + job["window"] + PATIENCE_S
    words = [job["far"], "far", job["role"], "--listen", f"0.0.0.0:{PORT}", "--device", device,
             "--warm", str(job["warm"]), "--window", str(job["window"]), "--call", str(job["call"])]
    watch = Watch(job)
    far = start(words + (["--spin"] if job["far_spins"] else []), 0 if job["one_core"] else 1)
    if far.stdout.readline().strip() != "ready":
        raise Failed(f"the far end does not start: {far.stderr.read().strip()}")
    near_words = near_command or job["command"]
    if job["program"] != "kernel" and near_command is None:
        near_words = near_words + ["--device", "ms-near" if job["kind"] == "packet" else DEVICE]
    near = start([*near_words, "--peer", f"{peer}:{PORT}", "--seconds", str(patience)], 0,
                 holder.enter if holder else ())
    try:
        measured, _ = finish(far, patience, "far end")
    except Failed as why:
        near.kill()
        words = near.communicate()[1].strip().splitlines()
        raise Failed(f"{why}; near end: {words[-1] if words else 'silent'}") from None
    try:
        said, notes = finish(near, 5, "near end")
    except Failed as why:
        said, notes = {}, [str(why)]
    result = values(job, measured) | watch.seen(measured["from_s"], measured["to_s"])
    result |= {"near": said, "notes": notes + proof(job, measured), "device": {
        key: measured[key] for key in ("device", "rx_bytes", "rx_packets", "tx_bytes", "tx_packets")}}
    return result


def values(job, measured):
    """The figures of the table."""
    seconds, cpu = measured["seconds"], measured["cpu_s"]
    if "transactions" in measured:
        count = measured["transactions"]
        return {"p50_us": measured["p50_ns"] / 1e3, "p99_us": measured["p99_ns"] / 1e3, "per_s": count / seconds,
                "us_cpu": cpu * 1e6 / count}
    gigabytes = of_payload(measured["bytes"])
    return {"gbps": gigabytes * 8 / seconds, "s_per_gb": cpu / gigabytes}


def of_payload(count):
    """So many bytes in gigabytes, where there are some: a path that stood still all the time has no figures."""
    if count <= 0:
        raise Failed("no payload in the window")
    return count * 1e-9


def proof(job, measured):
    """Doubts about the path: what the far device carried against the payload, and in which sizes."""
    if "bytes" not in measured or job["kind"] == "user":
        return []
    way = "rx" if job["role"] == "send" else "tx"
    carried, packets = measured[f"{way}_bytes"], max(1, measured[f"{way}_packets"])
    payload, notes = measured["bytes"], []
    queued = min(QUEUED_BYTES, payload * QUEUED_SHARE)
    if not payload * (1 - LACK) - queued <= carried <= payload * (1 + OVERHEAD) + queued:
        raise Failed(f"{measured['device']} carried {carried} bytes for {payload} of payload: another path, or loss")
    size = carried / packets
    if job["offload"] and size < 2 * FRAME_BYTES:
        notes.append(f"few super-segments: {size:.0f} bytes a packet")
    if job["super_bytes"] and (job["kind"] == "veth" or job["role"] == "send") and size < ORDINARY_BYTES:
        notes.append(f"few super-segments beyond 64 KiB: {size:.0f} bytes a packet")
    if not job["offload"] and size > FRAME_BYTES:
        raise Failed(f"packets of {size:.0f} bytes on a path without offloads")
    return notes


def memory(job):
    """Both ends in one process, which measures itself."""
    near = start([*job["command"], "--seconds", str(job["window"])], 0)
    measured, notes = finish(near, job["window"] * 2 + 10, job["program"])
    cpu, result = measured["cpu_s"], {"notes": notes, "near": measured}
    if "transactions" in measured:
        return result | {"ns_each": cpu * 1e9 / measured["transactions"]}
    gigabytes = measured["bytes"] * 1e-9
    packets = measured["bytes"] / (job["mtu"] - 40)
    return result | {"gbps": gigabytes * 8 / cpu, "s_per_gb": cpu / gigabytes, "ns_per_packet": cpu * 1e9 / packets}


def busy_seconds(path="/proc/stat"):
    """Processor time of the whole machine that was not idle, as `peer-kernel` counts it: without what a hypervisor
    took (column 7)."""
    with open(path, encoding="ascii", errors="backslashreplace") as file:
        ticks = [int(field) for field in file.readline().split()[1:]]
    return sum(ticks[column] for column in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def iperf3(job, holder):
    """iperf3 between the kernels; the machine's time counts from the client's start to its end."""
    server = start(["iperf3", "--server", "--one-off", "--port", PORT], 1)
    time.sleep(0.05)
    seconds = max(1, round(job["window"]))
    words = ["iperf3", "--client", FAR, "--port", PORT, "--time", str(seconds), "--length", "128K",
             "--congestion", "cubic", "--json"] + (["--reverse"] if job["role"] == "receive" else [])
    watch, begin, before = Watch(job), time.monotonic(), busy_seconds()
    client = start(words, 0, holder.enter)
    try:
        out, err = client.communicate(timeout=seconds + 8)
        total = json.loads(out)["end"]["sum_received"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        client.kill()
        server.kill()
        raise Failed("iperf3 says nothing") from None
    cpu = busy_seconds() - before
    seen = watch.seen(begin, time.monotonic())
    server.kill()
    gigabytes = of_payload(total["bytes"])
    return {"gbps": total["bits_per_second"] * 1e-9, "s_per_gb": cpu / gigabytes, "notes": []} | seen


def user_mode(job, holder):
    """The near end in a namespace whose only way out is the tool."""
    # The tools want a host with an interface and a way out; nothing goes there.
    command("ip", "link", "add", "ms-host", "type", "veth", "peer", "name", "ms-nowhere")
    up("ms-nowhere", 65_520)
    up("ms-host", 65_520, FAR)
    command("ip", "route", "add", "default", "via", "10.70.0.254", "dev", "ms-host")
    device = "ms-user"
    if job["tool"] == "slirp4netns":
        words = ["slirp4netns", "--configure", f"--mtu={job['mtu']}", holder.pid, device]
    else:
        # pasta drops the right to look into other processes: it gets the namespace as a file, on a file
        # system of this run's own mount namespace.
        command("mount", "-t", "tmpfs", "none", "/mnt")
        with open("/mnt/namespace", "wb"):
            pass
        command("mount", "--bind", f"/proc/{holder.pid}/ns/net", "/mnt/namespace")
        limit = f"echo 4096 65536 {PASTA_SEND_BYTES[job['mtu']]} >/proc/sys/net/ipv4/tcp_wmem"
        command(*holder.enter, "sh", "-c", limit)
        words = ["pasta", "--foreground", "--quiet", "--ipv4-only", "--runas", "0", "--netns-only", "--config-net",
                 "--mtu", str(job["mtu"]), "--ns-ifname", device, "--netns", "/mnt/namespace"]
    tool = start(words, None)
    await_route(holder, tool, job["tool"])
    peer = "10.0.2.2" if job["tool"] == "slirp4netns" else "10.70.0.254"
    before = holder.counters(device)
    result = far_and_near(job, holder, "lo", peer, [job["far"], job["role"]])
    after = holder.counters(device)
    carried = after[1] - before[1] if job["role"] == "send" else after[0] - before[0]
    payload = result["gbps"] / 8 * 1e9 * job["window"]
    if carried < payload:
        raise Failed(f"{device} carried {carried} bytes, less than the {payload:.0f} of payload: another path")
    with open(f"/proc/{tool.pid}/stat", encoding="ascii", errors="backslashreplace") as file:
        ticks = sum(int(field) for field in file.read().rsplit(")", 1)[1].split()[11:13])
    result["path"] = {"device": device, "bytes": carried, "tool_cpu_s": ticks / os.sysconf("SC_CLK_TCK")}
    tool.kill()
    return result


def await_route(holder, tool, name):
    """Until the namespace has a default route, which the tool sets last."""
    for _ in range(500):
        with open(f"/proc/{holder.pid}/net/route", encoding="ascii") as file:
            if any(line.split()[1] == "00000000" for line in file.readlines()[1:]):
                return
        if tool.poll() is not None:
            words = tool.stderr.read().strip().splitlines()
            raise Failed(f"{name}: {words[-1] if words else tool.returncode}")
        time.sleep(0.01)
    raise Failed(f"{name} sets no route")


if __name__ == "__main__":
    main()
