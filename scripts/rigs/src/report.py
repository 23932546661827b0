# report.py PORT WHOLE: another user of the same redis; WHOLE=1: KEYS over all, 0: one step of SCAN; then rests 5 ms. 100 s at most
import socket, sys, time
ask = b"KEYS order:*7:open\r\n" if sys.argv[2] == "1" else b"SCAN 0 MATCH order:*7:open COUNT 100\r\n"
start = time.monotonic()
while time.monotonic() - start < 100:
    try:
        s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        while True:
            s.sendall(ask)
            if not s.recv(65536): break
            time.sleep(0.005)
    except OSError: pass
    time.sleep(0.05)
