# orders.py PORT DB EVERY: one thread, selectors; an order is a row; COMMIT after each EVERY orders
import os, selectors, socket, sqlite3, sys
port, path, every = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for p in (path, path + "-journal"):
    if os.path.exists(p): os.unlink(p)
db = sqlite3.connect(path, isolation_level=None)
db.execute("create table orders (id integer primary key, text)")
db.execute("begin")
l = socket.create_server(("127.0.0.1", port)); l.setblocking(False)
sel = selectors.DefaultSelector(); sel.register(l, selectors.EVENT_READ)
print("ready", flush=True)
n = 0
def store(line):
    global n
    db.execute("insert into orders (text) values (?)", (line.decode(),)); n += 1
    if n % every == 0:
        db.execute("commit"); db.execute("begin")
while True:
    for key, _ in sel.select():
        if key.fileobj is l:
            c, _ = l.accept(); sel.register(c, selectors.EVENT_READ); continue
        c = key.fileobj
        try: b = c.recv(4096)
        except OSError: b = b""
        if not b:
            sel.unregister(c); c.close(); continue
        store(b.strip())
        try: c.send(b"ok\n")
        except OSError: pass
