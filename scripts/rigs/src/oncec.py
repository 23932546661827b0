# oncec.py NAME PORT: a connection for each request, by name; the server closes first
import socket, sys, time
start = time.monotonic(); n = 0
while time.monotonic() - start < 1.2:
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    s.sendall(b"price?\n")
    while s.recv(4096): pass
    s.close(); n += 1
print(f"rate={n / (time.monotonic() - start):.1f}")
