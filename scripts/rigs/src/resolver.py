# resolver.py ADDRESS MS ANSWER: DNS over UDP; each question is answered after MS milliseconds
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 53))
ms, ip = float(sys.argv[2]), socket.inet_aton(sys.argv[3])
print("ready", flush=True)
while True:
    q, peer = s.recvfrom(1500)
    if ms: time.sleep(ms / 1000)
    i = 12
    while q[i]: i += q[i] + 1
    end = i + 5; a = q[i + 1:i + 3] == b"\0\1"
    r = q[:2] + b"\x85\x80" + b"\0\1" + (b"\0\1" if a else b"\0\0") + b"\0\0\0\0" + q[12:end]
    if a: r += b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + ip
    s.sendto(r, peer)
