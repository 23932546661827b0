# httpc.py PORT THREADS: keep-alive GETs by http.client
import http.client, sys, threading, time
start = time.monotonic(); end = start + 1.2; got = []
def work():
    c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1])); n = 0
    while time.monotonic() < end:
        c.request("GET", "/"); c.getresponse().read(); n += 1
    c.close(); got.append(n)
t = [threading.Thread(target=work) for _ in range(int(sys.argv[2]))]
for x in t: x.start()
for x in t: x.join()
print(f"rate={sum(got) / (time.monotonic() - start):.1f}")
