//! Opening a packet socket (packet(7)) and setting its options.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::netdev;
use crate::sys::check;
use crate::{LinkError, limits};

/// Not in libc yet: leave out what this host sends.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// Ends a program of classic BPF with a constant.
pub(super) const RETURN: u16 = 0x06;

/// The EtherType that is nobody's (RFC 1701: reserved). A socket of protocol 0 would be told
/// nothing.
pub(crate) const NO_PROTOCOL: u16 = 0xffff;

/// A non-blocking packet socket on interface `name` that exchanges virtio-net headers and whole
/// link-layer frames.
pub(crate) fn open(name: &str) -> Result<OwnedFd, LinkError> {
    open_with(name, |_| Ok(()))
}

/// The same; `prepare` may set options before anything is received.
pub(super) fn open_with(
    name: &str,
    prepare: impl FnOnce(RawFd) -> io::Result<()>,
) -> Result<OwnedFd, LinkError> {
    let index = netdev::index(name)?;
    let what = |step: &str| format!("{step} a packet socket on {name}");
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes no pointers. With protocol 0 it receives nothing until it is bound.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })
        .map_err(|e| LinkError::needing("CAP_NET_RAW, as root has", what("open"), e))?;
    // SAFETY: `fd` was just opened and is owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set(fd.as_raw_fd(), libc::PACKET_VNET_HDR, &1_i32)
        .map_err(|e| LinkError::from_io(what("have virtio-net headers on"), e))?;
    prepare(fd.as_raw_fd()).map_err(|e| LinkError::from_io(what("prepare"), e))?;
    // Old kernels do not know it; their sockets see what this host sends.
    let _ = set(fd.as_raw_fd(), PACKET_IGNORE_OUTGOING, &1_i32);
    bind(&fd, index, libc::ETH_P_ALL as u16).map_err(|e| LinkError::from_io(what("bind"), e))?;
    Ok(fd)
}

/// A packet socket on interface `name` that receives nothing; poll(2) tells what happens to the
/// interface.
pub(crate) fn bind_closed(name: &str) -> Result<OwnedFd, LinkError> {
    let index = netdev::index(name)?;
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes no pointers. With protocol 0 it receives nothing until it is bound.
    let opened = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }).and_then(|fd| {
        // SAFETY: `fd` was just opened and is owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        close(fd.as_raw_fd())?;
        bind(&fd, index, NO_PROTOCOL)?;
        Ok(fd)
    });
    opened.map_err(|e| {
        LinkError::needing("CAP_NET_RAW, as root has", format!("open a packet socket on {name}"), e)
    })
}

/// Has `fd` receive nothing, until [`open_filter`].
pub(super) fn close(fd: RawFd) -> io::Result<()> {
    attach(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &mut [statement(RETURN, 0)])
}

/// Ends what [`close`] began.
pub(super) fn open_filter(fd: RawFd) -> io::Result<()> {
    let (unused, size) = (0_i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the pointer is to a live int.
    let result = unsafe {
        let value = (&raw const unused).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, value, size)
    };
    check(result).map(|_| ())
}

/// Attaches a program of classic BPF.
pub(super) fn attach(
    fd: RawFd,
    level: libc::c_int,
    option: libc::c_int,
    code: &mut [libc::sock_filter],
) -> io::Result<()> {
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the pointer is to a live program, which points at so many live instructions; the
    // kernel only reads them.
    check(unsafe { libc::setsockopt(fd, level, option, (&raw const program).cast(), size) })
        .map(|_| ())
}

/// Returns an instruction without jumps.
pub(super) fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// Binds to the interface with `index`, for packets of `protocol`.
fn bind(fd: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: a sockaddr_ll is plain data, for which all zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index.cast_signed();
    let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointer is to a live address of that size.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) }).map(|_| ())
}

/// Sets an option of level `SOL_PACKET` to a plain value.
pub(super) fn set<T: Copy>(fd: RawFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the pointer is to a live value of that size, which the kernel only reads.
    check(unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, value, size) }).map(|_| ())
}

/// Reads an option of level `SOL_PACKET` into a plain value.
pub(super) fn get<T: Copy>(fd: RawFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut size = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: the pointers are to a live value and its size; the kernel writes no more than that.
    check(unsafe { libc::getsockopt(fd, libc::SOL_PACKET, option, value, &raw mut size) })
        .map(|_| ())
}

/// Lets the interface pass frames of every group, or (`promiscuous`) to every station, while the
/// socket is open.
pub(crate) fn join(fd: RawFd, name: &str, promiscuous: bool) -> Result<(), LinkError> {
    let kind = if promiscuous { libc::PACKET_MR_PROMISC } else { libc::PACKET_MR_ALLMULTI };
    let request = libc::packet_mreq {
        mr_ifindex: netdev::index(name)?.cast_signed(),
        mr_type: kind as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::PACKET_ADD_MEMBERSHIP, &request)
        .map_err(|e| LinkError::from_io(format!("receive groups on {name}"), e))
}

/// Packets that the kernel had no room for since this was last asked.
pub(super) fn take_overruns(fd: RawFd) -> u64 {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    match get(fd, libc::PACKET_STATISTICS, &mut stats) {
        Ok(()) => u64::from(stats.tp_drops),
        Err(_) => 0,
    }
}

/// Has the kernel queue up to `wanted` bytes towards us, or what this crate or the system takes for
/// enough. Answers what there is to be said where it queues less.
pub(crate) fn make_room(fd: RawFd, wanted: Option<usize>) -> io::Result<Option<String>> {
    let queued = || get_int(fd, libc::SO_RCVBUF).map(|bytes| bytes.cast_unsigned() as usize / 2);
    let wanted = match wanted {
        Some(bytes) => bytes,
        None => queued()?.max(limits::RAW_RECEIVE_BYTES),
    };
    let value = libc::c_int::try_from(wanted).unwrap_or(libc::c_int::MAX);
    // Beyond the system's limit only for the privileged.
    set_int(fd, libc::SO_RCVBUFFORCE, value).or_else(|_| set_int(fd, libc::SO_RCVBUF, value))?;
    let queued = queued()?;
    Ok((queued < wanted).then(|| {
        format!(
            "the kernel queues {queued} bytes, not {wanted} (net.core.rmem_max, or CAP_NET_ADMIN)"
        )
    }))
}

/// The error that waits in the socket, which forgets it; 0 when there is none.
pub(crate) fn take_error(fd: RawFd) -> libc::c_int {
    get_int(fd, libc::SO_ERROR).unwrap_or(0)
}

/// An option of level `SOL_SOCKET`.
fn get_int(fd: RawFd, option: libc::c_int) -> io::Result<libc::c_int> {
    let (mut value, mut size) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    let to = (&raw mut value).cast();
    // SAFETY: the pointers are to a live int and its size.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, to, &raw mut size) })?;
    Ok(value)
}

fn set_int(fd: RawFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    let from = (&raw const value).cast();
    // SAFETY: the pointer is to a live int.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, from, size) }).map(|_| ())
}
