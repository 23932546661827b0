//! Opening `/dev/net/tun`: the descriptor, its name and what the kernel accepted.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use super::polling::Polling;
use super::send::Takes;
use super::{Napi, TapConfig, TapKind, first_queue};
use crate::LinkError;
use crate::limits::{BUSY_PAUSE, BUSY_TRIES};
use crate::netdev::{self, Namespace, NapiControl, ScatterGather, interface_request};
use crate::offload::vnet::HEADER_BYTES;
use crate::sys::{self, check};

pub(super) const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
pub(super) const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
pub(super) const TUN_F_USO4: libc::c_ulong = 0x20;
pub(super) const TUN_F_USO6: libc::c_ulong = 0x40;

const OFFLOADS: libc::c_ulong = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
const UDP_OFFLOADS: libc::c_ulong = TUN_F_USO4 | TUN_F_USO6;

/// The right that opening takes, for people.
const CAPABILITY: &str = "CAP_NET_ADMIN, as root has";

/// The kernel's TUN driver, as it is by default. A test may have it lack what older ones lack.
#[derive(Clone, Copy, Default)]
pub(super) struct Driver {
    /// Flags of TUNGETFEATURES that are not there.
    pub without_features: libc::c_uint,
    /// Flags of TUNSETOFFLOAD that are refused.
    pub refuses: libc::c_ulong,
    /// The features that are agreed to and not done.
    pub forgets: libc::c_ulong,
}

impl Driver {
    /// Returns what it can be asked for with `TUNSETIFF`; nothing when it does not tell.
    fn features(self, fd: RawFd) -> libc::c_uint {
        let mut features: libc::c_uint = 0;
        // SAFETY: TUNGETFEATURES writes one unsigned int.
        match check(unsafe { libc::ioctl(fd, libc::TUNGETFEATURES, &raw mut features) }) {
            Ok(_) => features & !self.without_features,
            Err(_) => 0,
        }
    }

    fn set_offload(self, fd: RawFd, flags: libc::c_ulong) -> io::Result<()> {
        if flags & self.refuses != 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        check(unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD, flags & !self.forgets) }).map(|_| ())
    }
}

/// An opened device, apart from its descriptors (one for each queue).
pub(super) struct Device {
    pub name: String,
    /// Its index in the namespace of a socket that answers questions about it.
    pub index: u32,
    pub socket: Arc<OwnedFd>,
    /// Packets carry virtio-net headers.
    pub vnet: bool,
    /// The kernel agreed to send checksums unsummed and super-segments whole.
    pub offload: bool,
    /// The kernel agreed to the same for UDP.
    pub udp_offload: bool,
    /// How the kernel polls it, if it does.
    pub napi: Option<Napi>,
    /// The work that packets may leave to it, once that has been checked.
    pub takes: Takes,
    /// Wishes that were not granted, for people.
    pub notes: Vec<String>,
    driver: Driver,
    /// Held by each of its queues.
    queues: Weak<()>,
}

/// Looks whether the device of `fd` is there: who only writes is told no more than that it takes
/// nothing.
///
/// # Errors
/// `EBADFD` when it was removed.
pub(super) fn look(queue: &Queue) -> io::Result<()> {
    flags(queue.as_raw_fd()).map(drop)
}

/// Returns how the device of `fd` was made.
fn flags(fd: RawFd) -> io::Result<libc::c_int> {
    Ok(identity(fd)?.1)
}

/// Returns the name of the device of `fd`, and how it was made.
fn identity(fd: RawFd) -> io::Result<(String, libc::c_int)> {
    let mut request = interface_request("any")?;
    // SAFETY: TUNGETIFF fills in one ifreq, which is alive.
    check(unsafe { libc::ioctl(fd, libc::TUNGETIFF, &raw mut request) })?;
    // SAFETY: the flags are what it has filled in.
    Ok((name_in(&request), unsafe { request.ifr_ifru.ifru_flags }.into()))
}

fn name_in(request: &libc::ifreq) -> String {
    let name = sys::bytes_of(&request.ifr_name).take_while(|&b| b != 0);
    name.map(char::from).collect()
}

/// Returns the namespace of the device of `fd`, where this process may enter it (Linux 5.2).
fn namespace(fd: RawFd) -> Option<Namespace> {
    // SAFETY: TUNGETDEVNETNS takes no argument.
    let found = check(unsafe { libc::ioctl(fd, libc::TUNGETDEVNETNS) }).ok()?;
    // SAFETY: the descriptor was just opened and is owned by nobody else.
    let namespace = Namespace::from(unsafe { OwnedFd::from_raw_fd(found) });
    namespace.run(|| ()).is_ok().then_some(namespace)
}

/// The descriptor of a queue. The last one of a device that outlives its users takes back what was
/// agreed with it: who has it next, without virtio-net headers perhaps, would be given packets
/// unsummed and uncut.
pub(super) struct Queue {
    fd: OwnedFd,
    all: Option<Arc<()>>,
}

#[cfg(test)]
impl Queue {
    /// As if `fd` were a queue's.
    pub fn posing(fd: OwnedFd) -> Self {
        Self { fd, all: None }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let is_last = self.all.take().and_then(Arc::into_inner).is_some();
        let fd = self.as_raw_fd();
        if is_last && flags(fd).is_ok_and(|flags| flags & libc::IFF_PERSIST != 0) {
            let _ = Driver::default().set_offload(fd, 0);
        }
    }
}

impl Device {
    /// Opens the device of `config` in the calling thread's namespace and negotiates.
    pub fn open(
        config: &TapConfig,
        multi_queue: bool,
        driver: Driver,
    ) -> Result<(Queue, Self), LinkError> {
        let mut notes = Vec::new();
        let all = Arc::new(());
        let queues = Arc::downgrade(&all);
        let fd = Queue { fd: open_clone()?, all: Some(all) };
        let mut vnet = config.vnet_hdr;
        let features = driver.features(fd.as_raw_fd());
        let lacks = |flag: libc::c_int| features & flag.cast_unsigned() == 0;
        if vnet && lacks(libc::IFF_VNET_HDR) {
            notes
                .push("the kernel's TUN driver has no virtio-net headers: plain frames".to_owned());
            vnet = false;
        }
        let mut napi = config.napi.choose(vnet && config.offload);
        if napi.is_some() && lacks(libc::IFF_NAPI) {
            notes
                .push("the kernel's TUN driver has no NAPI: it receives packets singly".to_owned());
            napi = None;
        }
        let mode = Mode { kind: config.kind, vnet, napi: napi.is_some(), multi_queue };
        let name = attach(fd.as_raw_fd(), config.name.as_deref(), mode)?;
        let mut device = Self { vnet, napi, notes, ..Self::of(name, driver, queues)? };
        match vnet {
            true => device.negotiate(fd.as_raw_fd(), config.offload)?,
            false => device.refuse_offload(fd.as_raw_fd()),
        }
        if !multi_queue {
            // Only the cost of packets depends on it.
            let _ = first_queue::always(fd.as_raw_fd());
        }
        Ok((fd, device))
    }

    /// The device `name` of the calling thread's namespace, made otherwise, whose queue `fd` is: it
    /// negotiates.
    pub fn adopt(fd: OwnedFd, name: &str, offload: bool) -> Result<(Queue, Self), LinkError> {
        let mut device = Self::of(name.to_owned(), Driver::default(), Weak::new())?;
        device.vnet = true;
        // As a TAP device has it: less than a super-segment's would let one pass at a time.
        let unlimited = libc::c_int::MAX;
        // SAFETY: TUNSETSNDBUF reads one int.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETSNDBUF, &raw const unlimited) })
            .map_err(|e| LinkError::from_io(format!("set the send buffer of {name}"), e))?;
        device.negotiate(fd.as_raw_fd(), offload)?;
        Ok((Queue { fd, all: None }, device))
    }

    /// The device whose queue `fd` somebody else has opened, and its kind. It negotiates where
    /// packets have virtio-net headers.
    pub fn handed_in(fd: OwnedFd, offload: bool) -> Result<(Queue, Self, TapKind), LinkError> {
        let refuse = |e| LinkError::from_io("use the descriptor of a TUN or TAP device", e);
        let raw = fd.as_raw_fd();
        let (name, flags) = identity(raw).map_err(refuse)?;
        if flags & libc::IFF_NO_PI == 0 {
            let what =
                format!("{name} has packet information before each packet: open it with IFF_NO_PI");
            return Err(LinkError::Invalid(what));
        }
        let nonblocking: libc::c_int = 1;
        // SAFETY: FIONBIO reads one int.
        check(unsafe { libc::ioctl(raw, libc::FIONBIO, &raw const nonblocking) })
            .map_err(refuse)?;
        let all = Arc::new(());
        let queues = Arc::downgrade(&all);
        let mut device = match namespace(raw) {
            Some(home) => home.run(|| Self::of(name, Driver::default(), queues))??,
            None => Self::unseen(name, Driver::default(), queues)?,
        };
        device.vnet = flags & libc::IFF_VNET_HDR != 0;
        match device.vnet {
            true => device.negotiate(raw, offload)?,
            false => device.refuse_offload(raw),
        }
        let kind = if flags & libc::IFF_TUN != 0 { TapKind::Tun } else { TapKind::Tap };
        Ok((Queue { fd, all: Some(all) }, device, kind))
    }

    /// The device `name` of the calling thread's namespace, of which nothing is known yet.
    fn of(name: String, driver: Driver, queues: Weak<()>) -> Result<Self, LinkError> {
        Ok(Self { index: netdev::index(&name)?, ..Self::unseen(name, driver, queues)? })
    }

    /// The device `name`, which is in a namespace of others: the kernel tells nothing of it.
    fn unseen(name: String, driver: Driver, queues: Weak<()>) -> Result<Self, LinkError> {
        let socket = netdev::socket()
            .map_err(|e| LinkError::from_io(format!("open a socket to ask about {name}"), e))?;
        Ok(Self {
            index: 0,
            socket: Arc::new(socket),
            name,
            vnet: false,
            offload: false,
            udp_offload: false,
            napi: None,
            takes: Takes::default(),
            notes: Vec::new(),
            driver,
            queues,
        })
    }

    /// One more queue of this device, which must have been opened for several.
    pub fn another_queue(&self, kind: TapKind) -> Result<Queue, LinkError> {
        let fd = Queue { fd: open_clone()?, all: self.queues.upgrade() };
        let mode = Mode { kind, vnet: self.vnet, napi: self.napi.is_some(), multi_queue: true };
        attach(fd.as_raw_fd(), Some(&self.name), mode)?;
        Ok(fd)
    }

    /// Has the kernel poll all queues attached so far, if it is to, as long as what is returned
    /// lives; the device must be up. As data flow in bulk (`is_bulk`), or as they do not.
    pub fn poll(&self, is_bulk: bool) -> Result<Option<Polling>, LinkError> {
        let Some(napi) = self.napi else { return Ok(None) };
        let control = NapiControl::open(&self.name)?;
        // Super-segments come in pieces or not at all.
        let pieces = match self.offload {
            true => None,
            false => ScatterGather::open(Arc::clone(&self.socket), self.index).ok(),
        };
        Polling::new(control, napi, pieces, is_bulk).map(Some)
    }

    /// Agrees on the header's size and on what the kernel may leave undone in it.
    fn negotiate(&mut self, fd: RawFd, offload: bool) -> Result<(), LinkError> {
        let size = HEADER_BYTES as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one int.
        check(unsafe { libc::ioctl(fd, libc::TUNSETVNETHDRSZ, &raw const size) }).map_err(|e| {
            LinkError::from_io(format!("set the virtio-net header size of {}", self.name), e)
        })?;
        if !offload {
            self.refuse_offload(fd);
            return Ok(());
        }
        // One that was killed in the middle of bulk without offloads has left it so.
        let _ = netdev::allow_pieces(self.socket.as_raw_fd(), self.index);
        if self.driver.set_offload(fd, OFFLOADS | UDP_OFFLOADS).is_ok() {
            self.udp_offload = true;
        } else if let Err(error) = self.driver.set_offload(fd, OFFLOADS) {
            self.notes.push(format!(
                "{} refused checksum and segmentation offload ({error}): plain frames",
                self.name
            ));
            return Ok(());
        } else {
            self.notes
                .push(format!("{} has no UDP segmentation offload: cut in software", self.name));
        }
        self.offload = true;
        Ok(())
    }

    /// A device that outlives its users keeps the last one's agreement.
    fn refuse_offload(&self, fd: RawFd) {
        let _ = self.driver.set_offload(fd, 0);
    }

    /// Takes back what was agreed, after a failed self-check: from now on the kernel completes and
    /// cuts everything.
    pub fn withdraw_offload(&mut self, fd: RawFd) {
        let _ = self.driver.set_offload(fd, 0);
        self.offload = false;
        self.udp_offload = false;
    }

    /// Sets MTU, queue and addresses of the kernel's side and brings it up. Returns the MTU in
    /// force.
    ///
    /// An unprivileged user of a device that an administrator made may do none of it: then the
    /// device is used as it is, if it is up.
    pub fn configure(&mut self, config: &TapConfig) -> Result<usize, LinkError> {
        let name = self.name.as_str();
        let refused = match configure(name, config) {
            Ok(()) => return Ok(config.mtu),
            Err(error) if error.is_not_permitted() && netdev::is_up(name)? => error,
            Err(error) => return Err(error),
        };
        let mtu = netdev::mtu(name)?;
        self.notes.push(format!("{refused}: used as it is, MTU {mtu}"));
        Ok(mtu)
    }
}

fn configure(name: &str, config: &TapConfig) -> Result<(), LinkError> {
    if netdev::mtu(name)? != config.mtu {
        netdev::set_mtu(name, config.mtu)?;
    }
    if let Some(packets) = config.queue_packets {
        netdev::set_queue_len(name, packets)?;
    }
    netdev::set_up(name)?;
    for &(address, prefix_len) in &config.host_addresses {
        netdev::set_address(name, address, prefix_len)?;
    }
    Ok(())
}

fn open_clone() -> Result<OwnedFd, LinkError> {
    let path = c"/dev/net/tun";
    // SAFETY: the path ends in zero and is static.
    let fd =
        unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(not_opened(io::Error::last_os_error()));
    }
    // SAFETY: `fd` was just opened and is owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn not_opened(error: io::Error) -> LinkError {
    let why = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            " (the driver is absent: `modprobe tun` loads it)"
        }
        // A matter of the file, whatever capabilities a user namespace gives.
        Some(libc::EACCES | libc::EPERM) => {
            " (who opens it needs the file's permission to read and write)"
        }
        _ => "",
    };
    LinkError::from_io(format!("open /dev/net/tun{why}"), error)
}

/// Why the device of this name was refused.
fn not_attached(wanted: &str, error: io::Error) -> LinkError {
    let why = match error.raw_os_error() {
        Some(libc::EBUSY) => " (another program has it)",
        Some(libc::EINVAL) => {
            " (there is one of that name: of another kind, or of several queues where one is wanted, or the reverse)"
        }
        _ => "",
    };
    let wanted = wanted.replace("%d", "N");
    LinkError::needing(CAPABILITY, format!("make or open the device {wanted}{why}"), error)
}

/// Has `call` try again, with a `pause` before, while the device is busy, as often as
/// [`BUSY_TRIES`]: the kernel ends what a process had open with io_uring after the process, so that
/// a device may be taken for a moment yet when the same program has been killed and starts again.
fn while_busy<T>(
    mut call: impl FnMut() -> io::Result<T>,
    mut pause: impl FnMut(),
) -> io::Result<T> {
    for _ in 0..BUSY_TRIES {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => pause(),
            result => return result,
        }
    }
    call()
}

/// How to attach a descriptor.
#[derive(Clone, Copy)]
struct Mode {
    kind: TapKind,
    vnet: bool,
    napi: bool,
    multi_queue: bool,
}

/// Attaches `fd` to a new device, or to the existing one of that name, and returns the name.
fn attach(fd: RawFd, name: Option<&str>, mode: Mode) -> Result<String, LinkError> {
    let Mode { kind, vnet, napi, multi_queue } = mode;
    let wanted = name.unwrap_or(match kind {
        TapKind::Tap => "mstap%d",
        TapKind::Tun => "mstun%d",
    });
    let mut request = interface_request(wanted).map_err(|e| not_attached(wanted, e))?;
    let mut flags = libc::IFF_NO_PI;
    flags |= match kind {
        TapKind::Tap => libc::IFF_TAP,
        TapKind::Tun => libc::IFF_TUN,
    };
    if vnet {
        flags |= libc::IFF_VNET_HDR;
    }
    if napi {
        flags |= libc::IFF_NAPI;
    }
    if multi_queue {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    let set = || {
        // SAFETY: TUNSETIFF reads and writes one ifreq.
        check(unsafe { libc::ioctl(fd, libc::TUNSETIFF, &raw mut request) })
    };
    while_busy(set, || std::thread::sleep(BUSY_PAUSE)).map_err(|e| not_attached(wanted, e))?;
    Ok(name_in(&request))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the answer to a call that the device refuses `busy` times and then with `last`, and
    /// the pauses.
    fn answer(busy: u32, last: io::Result<u32>) -> (io::Result<u32>, u32) {
        let (mut last, mut calls, mut pauses) = (Some(last), 0, 0);
        let call = || {
            calls += 1;
            match calls > busy {
                true => last.take().expect("no call follows"),
                false => Err(io::Error::from_raw_os_error(libc::EBUSY)),
            }
        };
        let answer = while_busy(call, || pauses += 1);
        (answer, pauses)
    }

    #[test]
    fn a_device_that_is_busy_is_asked_for_again_and_not_for_ever() {
        for busy in [0, 1, 3, BUSY_TRIES] {
            let (opened, pauses) = answer(busy, Ok(7));
            assert_eq!((opened.expect("opened"), pauses), (7, busy));
        }
        let (refused, pauses) = answer(BUSY_TRIES + 1, Ok(7));
        assert_eq!(refused.expect_err("busy").raw_os_error(), Some(libc::EBUSY));
        assert_eq!(pauses, BUSY_TRIES);
        let (refused, pauses) = answer(2, Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert_eq!(refused.expect_err("refused").raw_os_error(), Some(libc::EPERM));
        assert_eq!(pauses, 2);
    }
}
