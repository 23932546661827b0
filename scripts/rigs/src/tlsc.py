# tlsc.py PORT EACH(1: a connection for each request; 0: one for all)
import socket, ssl, sys, time
port, each = int(sys.argv[1]), sys.argv[2] == "1"
ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); ctx.check_hostname = False; ctx.verify_mode = ssl.CERT_NONE
q = b"GET / HTTP/1.1\r\nHost: rig\r\n\r\n"
def dial(): return ctx.wrap_socket(socket.create_connection(("127.0.0.1", port)))
start = time.monotonic(); n = 0; s = None
while time.monotonic() - start < 1.2:
    if s is None: s = dial()
    s.sendall(q); b = b""
    while not b.endswith(b"hello\n"): b += s.recv(4096)
    n += 1
    if each: s.close(); s = None
print(f"rate={n / (time.monotonic() - start):.1f}")
