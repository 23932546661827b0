# buyers.py PORT SAME: 8 connections to PostgreSQL (the protocol by hand); each buys in a transaction and asks its bank (2 ms) before COMMIT
# SAME=1: all the same article (one row), 0: each another one
import socket, struct, sys, threading, time
start = time.monotonic(); end = start + 1.2; got = []
def until_ready(f):
    while True:
        t = f.read(1); n, = struct.unpack("!i", f.read(4)); b = f.read(n - 4)
        if t == b"E": sys.exit(b.replace(b"\0", b" ").decode())
        if t == b"Z": return
def work(me):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1]))); f = s.makefile("rb")
    b = struct.pack("!i", 196608) + b"user\0postgres\0database\0postgres\0\0"
    s.sendall(struct.pack("!i", len(b) + 4) + b); until_ready(f)
    def ask(q): s.sendall(b"Q" + struct.pack("!i", len(q) + 5) + q.encode() + b"\0"); until_ready(f)
    row = 1 if sys.argv[2] == "1" else me; n = 0
    while time.monotonic() < end:
        ask(f"BEGIN; UPDATE stock SET n = n - 1 WHERE id = {row}")
        time.sleep(0.002)
        ask("COMMIT"); n += 1
    s.close(); got.append(n)
t = [threading.Thread(target=work, args=(i + 1,)) for i in range(8)]
for x in t: x.start()
for x in t: x.join()
print(f"rate={sum(got) / (time.monotonic() - start):.1f}")
