# udpd.py PORT RCVBUF(0: default): asyncio datagram echo
import asyncio, socket, sys
class Echo(asyncio.DatagramProtocol):
    def connection_made(self, t): self.t = t
    def datagram_received(self, data, addr): self.t.sendto(data, addr)
async def main():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if int(sys.argv[2]):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(sys.argv[2]))
    s.bind(("127.0.0.1", int(sys.argv[1]))); s.setblocking(False)
    await asyncio.get_running_loop().create_datagram_endpoint(Echo, sock=s)
    print("ready", flush=True)
    await asyncio.sleep(300)
asyncio.run(main())
