# stock.py PORT: asyncio; each line is answered after 2 ms (as a remote store would)
import asyncio, sys
async def serve(r, w):
    while await r.readline():
        await asyncio.sleep(0.002)
        w.write(b"in stock: 12\n")
async def main():
    s = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    print("ready", flush=True)
    await s.serve_forever()
asyncio.run(main())
