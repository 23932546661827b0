//! Two interfaces joined in memory, in one thread. Checksums are computed and verified in software.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::rc::Rc;

use peers_common::{Options, measure_in_memory};
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;

/// Frames under way in one direction; a sender that finds none free waits. Few, so that they stay
/// in the cache.
const FRAMES: usize = 64;
const ETHERNET: usize = 14;
const PORT: u16 = 9;

/// One direction: frames under way, and frames free.
struct Lane {
    full: VecDeque<(Box<[u8]>, usize)>,
    free: Vec<Box<[u8]>>,
}

type Shared = Rc<RefCell<Lane>>;

/// One end.
struct End {
    rx: Shared,
    tx: Shared,
    mtu: usize,
}

/// Both ends of a link.
fn pair(mtu: usize) -> (End, End) {
    let lane = || {
        let frame = || vec![0; ETHERNET + mtu].into_boxed_slice();
        let free = std::iter::repeat_with(frame).take(FRAMES).collect();
        Rc::new(RefCell::new(Lane { full: VecDeque::with_capacity(FRAMES), free }))
    };
    let (there, back) = (lane(), lane());
    let near = End { rx: Rc::clone(&back), tx: Rc::clone(&there), mtu };
    (near, End { rx: there, tx: back, mtu })
}

impl Device for End {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = TxToken<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = ETHERNET + self.mtu;
        capabilities
    }

    fn receive(&mut self, _: Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        if self.tx.borrow().free.is_empty() {
            return None;
        }
        let frame = self.rx.borrow_mut().full.pop_front()?;
        Some((RxToken { lane: &self.rx, frame }, TxToken(&self.tx)))
    }

    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_>> {
        (!self.tx.borrow().free.is_empty()).then_some(TxToken(&self.tx))
    }
}

/// A frame that arrived; its memory goes back to the lane.
struct RxToken<'a> {
    lane: &'a RefCell<Lane>,
    frame: (Box<[u8]>, usize),
}

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let (bytes, len) = self.frame;
        let result = f(&bytes[..len]);
        self.lane.borrow_mut().free.push(bytes);
        result
    }
}

/// Room for one frame.
struct TxToken<'a>(&'a RefCell<Lane>);

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut bytes = self.0.borrow_mut().free.pop().expect("a token means a free frame");
        let result = f(&mut bytes[..len]);
        self.0.borrow_mut().full.push_back((bytes, len));
        result
    }
}

/// An end with everything that belongs to it.
struct Host {
    device: End,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl Host {
    fn new(mut device: End, last: u8, options: &Options) -> Self {
        let address = Ipv4Addr::new(10, 0, 0, last);
        let (interface, sockets, handle) = crate::host(&mut device, address, options);
        Self { device, interface, sockets, handle }
    }

    fn poll(&mut self) {
        self.interface.poll(Instant::now(), &mut self.device, &mut self.sockets);
    }

    fn send_out(&mut self) {
        self.interface.poll_egress(Instant::now(), &mut self.device, &mut self.sockets);
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }
}

/// Two hosts with one open connection.
fn connected(options: &Options) -> (Host, Host) {
    let (near, far) = pair(options.mtu);
    let (mut near, mut far) = (Host::new(near, 1, options), Host::new(far, 2, options));
    far.socket().listen(PORT).expect("a fresh socket listens");
    let to = (std::net::IpAddr::from([10, 0, 0, 2]), PORT);
    let socket = near.sockets.get_mut::<tcp::Socket>(near.handle);
    socket.connect(near.interface.context(), to, 49_152).expect("a fresh socket connects");
    while !(near.socket().may_send() && far.socket().may_send()) {
        near.poll();
        far.poll();
    }
    (near, far)
}

/// Bulk from the near to the far end.
pub fn bulk(options: &Options) {
    let (mut near, mut far) = connected(options);
    let data = vec![7; options.call];
    let mut sink = vec![0; options.call];
    measure_in_memory(options, "bytes", || {
        let mut moved = 0;
        for _ in 0..16 {
            while near.socket().can_send() && near.socket().send_slice(&data) == Ok(data.len()) {}
            near.poll();
            far.poll();
            while let Ok(len @ 1..) = far.socket().recv_slice(&mut sink) {
                moved += len as u64;
            }
        }
        moved
    });
}

/// One byte to and fro.
pub fn rr(options: &Options) {
    let (mut near, mut far) = connected(options);
    let mut byte = [0];
    measure_in_memory(options, "transactions", || {
        for _ in 0..256 {
            assert_eq!(near.socket().send_slice(&byte), Ok(1));
            near.send_out();
            while far.socket().recv_slice(&mut byte) != Ok(1) {
                far.poll();
            }
            assert_eq!(far.socket().send_slice(&byte), Ok(1));
            far.send_out();
            while near.socket().recv_slice(&mut byte) != Ok(1) {
                near.poll();
            }
        }
        256
    });
}
