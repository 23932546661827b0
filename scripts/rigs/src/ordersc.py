# ordersc.py PORT CONNECTIONS: asyncio streams
import asyncio, sys, time
async def one(port, end):
    r, w = await asyncio.open_connection("127.0.0.1", port); n = 0
    while time.monotonic() < end:
        w.write(b"order 3 pumps\n"); await r.readline(); n += 1
    w.close(); return n
async def main():
    start = time.monotonic()
    got = await asyncio.gather(*(one(int(sys.argv[1]), start + 1.2) for _ in range(int(sys.argv[2]))))
    print(f"rate={sum(got) / (time.monotonic() - start):.1f}")
asyncio.run(main())
