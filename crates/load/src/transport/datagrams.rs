//! The calls for datagrams of both networks over Millstream, whose sockets have the same methods
//! and different types.

/// Datagrams of one call.
pub(super) const DATAGRAMS: usize = 32;

/// The methods of [`Network`](super::Network) for datagrams, of a type with the fields `stack`,
/// `datagrams` and `received`, beside a `UdpSocket` of its kind of stack.
macro_rules! datagram_calls {
    () => {
        fn bind_datagrams(&mut self, address: SocketAddr) -> io::Result<(DatagramId, SocketAddr)> {
            let socket = UdpSocket::bind(&self.stack, address)?;
            let taken = socket.local_addr()?;
            let id = self.datagrams.len();
            self.datagrams.insert(id, socket);
            Ok((id, taken))
        }

        fn connect_datagrams(&mut self, socket: DatagramId, peer: SocketAddr) -> io::Result<()> {
            self.datagrams(socket)?.connect(peer)
        }

        fn send_datagrams(&mut self, socket: DatagramId, list: &[&[u8]]) -> io::Result<usize> {
            let socket = self.datagrams(socket)?;
            let mut batch = [DatagramToSend { data: &[], to: None }; DATAGRAMS];
            let list = &list[..list.len().min(DATAGRAMS)];
            batch.iter_mut().zip(list).for_each(|(one, data)| one.data = data);
            Ok(unless_late(socket.send_many(&batch[..list.len()]))?.unwrap_or(0))
        }

        fn receive_datagram_from(
            &mut self,
            socket: DatagramId,
            buffer: &mut [u8],
            wait: Duration,
        ) -> io::Result<Option<(usize, SocketAddr)>> {
            let socket = self.datagrams(socket)?;
            socket.set_read_timeout(Some(wait.max(Duration::from_micros(1))))?;
            unless_late(socket.recv_from(buffer))
        }

        fn receive_datagrams(
            &mut self,
            socket: DatagramId,
            memory: &mut [u8],
            wait: Duration,
        ) -> io::Result<(usize, usize)> {
            let mut list = std::mem::take(&mut self.received);
            list.clear();
            let socket = self.datagrams(socket)?;
            socket.set_read_timeout(Some(wait.max(Duration::from_micros(1))))?;
            let came = unless_late(socket.recv_many(memory, &mut list));
            let bytes = list.iter().map(|one| one.len).sum();
            self.received = list;
            Ok(came?.map_or((0, 0), |count| (count, bytes)))
        }
    };
}

pub(super) use datagram_calls;
