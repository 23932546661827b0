# catalog.py PORT PARSE: fetches the catalogue (128 KiB, keep-alive) from nginx; PARSE=1 decodes it, 0 counts its bytes only
import json, socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
parse = sys.argv[2] == "1"; start = time.monotonic(); n = goods = 0
while time.monotonic() - start < 1.2:
    s.sendall(b"GET /catalog.json HTTP/1.1\r\nHost: x\r\n\r\n")
    b = s.recv(262144)
    while (at := b.find(b"\r\n\r\n")) < 0: b += s.recv(262144)
    size = int(b.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    parts, have = [b[at + 4:]], len(b) - at - 4
    while have < size: parts.append(s.recv(262144)); have += len(parts[-1])
    body = b"".join(parts); n += 1
    goods += len(json.loads(body)) if parse else len(body)
print(f"rate={n / (time.monotonic() - start):.1f}")
