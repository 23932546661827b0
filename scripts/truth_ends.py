"""Two ends in Python for `make truth`, whose requests cost what a cause says.

  truth_ends.py serve -a ADDRESS [--does WHAT] [-d FOLDER]   the other end; ends when it is killed
  truth_ends.py ask -a ADDRESS [--before WHAT] [-n THREADS]  prints `figure N`: requests/s
  truth_ends.py names -a ADDRESS     a name server that takes its time; each name is 127.0.0.1
  truth_ends.py fill -a ADDRESS      sends datagrams that nobody takes, as many as go

--does: hash (computes), sync (a file written through to the disk), lock (rests while it holds the lock of all), child (starts a
program), rest (sleeps), poll (waits for two pipes that nobody writes), collect (has the garbage collector look at all that
lives). --before: connect (opens a connection), hash, name (looks up a name).
--workers N: so many processes, each with a listening socket of its own (SO_REUSEPORT) and one thread; each answers with its
number. --of WORKER: each connection is opened anew until it is that worker's; -1: of each worker in turn.
"""
import argparse
import gc
import hashlib
import os
import select
import selectors
import socket
import subprocess
import threading
import time

PORT, REST_S, ANSWER_S = 5998, 0.002, 0.005
ALIVE = []
LOCK = threading.Lock()


def hash_order():
    hashlib.pbkdf2_hmac("sha256", b"order", b"salt", 1000)


def served(what, folder):
    """What a request costs."""
    if what == "hash":
        return hash_order
    if what == "sync":
        journal = open(os.path.join(folder, "journal"), "wb", buffering=0)
        return lambda: (journal.write(b"x" * 512), os.fdatasync(journal.fileno()))
    if what == "child":
        return lambda: subprocess.run(["true"])
    if what == "collect":
        ALIVE.extend([number] for number in range(20_000))
        return gc.collect
    if what == "rest":
        return lambda: time.sleep(REST_S)
    if what == "poll":
        pipes = [os.pipe() for _ in range(2)]
        return lambda: select.select([one for one, _ in pipes], [], [], REST_S)
    if what == "lock":
        def locked():
            with LOCK:
                time.sleep(REST_S)
        return locked
    return lambda: None


def serve_one(connection, work):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while connection.recv(64):
        work()
        connection.sendall(b"done")
    connection.close()


def serve(options):
    work = served(options.does, options.d)
    with socket.create_server((options.a, PORT), backlog=128) as listener:
        while True:
            threading.Thread(target=serve_one, args=[listener.accept()[0], work], daemon=True).start()


def serve_alone(options, number):
    """One worker: its listening socket and all its connections in one thread."""
    work, ready = served(options.does, options.d), selectors.DefaultSelector()
    listener = socket.create_server((options.a, PORT), backlog=128, reuse_port=True)
    ready.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is listener:
                ready.register(listener.accept()[0], selectors.EVENT_READ)
            elif key.fileobj.recv(64):
                work()
                key.fileobj.sendall(b"done%d" % number)
            else:
                ready.unregister(key.fileobj)
                key.fileobj.close()


def names(options):
    """Answers as RFC 1035 says: the question again, an address where one of IPv4 is asked for, nothing where one of IPv6 is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((options.a, 53))
        while True:
            asked, client = server.recvfrom(512)
            time.sleep(ANSWER_S)
            end = asked.index(b"\0", 12) + 5
            is_ipv4 = asked[end - 4:end - 2] == b"\0\1"
            address = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\x7f\0\0\1" if is_ipv4 else b""
            counts = b"\0\1" + (b"\0\1" if is_ipv4 else b"\0\0") + b"\0\0\0\0"
            server.sendto(asked[:2] + b"\x81\x80" + counts + asked[12:end] + address, client)


def fill(options):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        while True:
            sender.sendto(b"x" * 1400, (options.a, 9))


def ask(options, counts, end, number):
    def connected():
        while True:
            made = socket.create_connection((options.a, PORT))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if options.of is None:
                return made
            made.sendall(b"whose")
            if int(made.recv(64)[4:]) == (options.of if options.of >= 0 else number % 2):
                return made
            made.close()

    connection, count = connected(), 0
    while time.monotonic() < end:
        if options.before == "connect":
            connection.close()
            connection = connected()
        elif options.before == "hash":
            hash_order()
        elif options.before == "name":
            socket.getaddrinfo("orders.test", PORT, type=socket.SOCK_STREAM)
        connection.sendall(b"order")
        connection.recv(64)
        count += 1
    counts.append(count)


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("mode", choices=["serve", "ask", "names", "fill"])
    parse.add_argument("-a", default="127.0.0.1")
    parse.add_argument("-d", default="/tmp")
    parse.add_argument("-n", type=int, default=1)
    parse.add_argument("-t", type=float, default=1)
    parse.add_argument("--does", default="")
    parse.add_argument("--before", default="")
    parse.add_argument("--workers", type=int, default=0)
    parse.add_argument("--of", type=int)
    options = parse.parse_args()
    if options.mode in ("names", "fill"):
        return {"names": names, "fill": fill}[options.mode](options)
    if options.mode == "serve" and options.workers:
        for number in range(1, options.workers):
            if os.fork() == 0:
                return serve_alone(options, number)
        return serve_alone(options, 0)
    if options.mode == "serve":
        return serve(options)
    counts, began = [], time.monotonic()
    threads = [threading.Thread(target=ask, args=[options, counts, began + options.t, at]) for at in range(options.n)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    print("figure %.1f" % (sum(counts) / (time.monotonic() - began)))


if __name__ == "__main__":
    main()
