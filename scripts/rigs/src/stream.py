# stream.py IP PORT SNDBUF: sends as fast as it can to whoever connects (a thread each); SNDBUF=0: the kernel's own choice
import socket, sys, threading
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if int(sys.argv[3]): l.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, int(sys.argv[3]))
l.bind((sys.argv[1], int(sys.argv[2]))); l.listen(16); film = bytes(65536)
def play(s):
    try:
        while True: s.sendall(film)
    except OSError: s.close()
print("ready", flush=True)
while True: threading.Thread(target=play, args=(l.accept()[0],), daemon=True).start()
