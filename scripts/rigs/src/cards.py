# cards.py PATH HOG: UNIX socket, a thread per connection; HOG=1: a thread rebuilds an index all the time (holds the GIL)
import os, socket, sys, threading
deck = {str(i): i * i for i in range(1000)}
def rebuild_index():
    while True: deck["0"] = sum(range(2_000_000)) % 97      # about 20 ms in one call of C code, which keeps the GIL
def serve(s):
    with s:
        while line := s.recv(512): s.sendall(b"%d\n" % deck[str(len(line))])
if os.path.exists(sys.argv[1]): os.unlink(sys.argv[1])
l = socket.socket(socket.AF_UNIX); l.bind(sys.argv[1]); l.listen(16)
if sys.argv[2] == "1": threading.Thread(target=rebuild_index, name="rebuild", daemon=True).start()
print("ready", flush=True)
while True: threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
