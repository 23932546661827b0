//! An AF_XDP socket: options, rings, binding.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use millstream_packet::{Extent, FRAME_SIZE_BYTES};

use super::CAPABILITIES;
use super::ring::Ring;
use crate::LinkError;
use crate::sys::check;

/// Not in libc: packets that one call may send in copy mode.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// The packets that a call sends at least where that cannot be set, if the device takes them:
/// before Linux 5.16 so many, 32 since.
const TX_BUDGET: u32 = 16;

/// A socket with its four rings, bound or about to be.
pub(super) struct Socket {
    // Unmapped before the descriptor is closed.
    pub fill: Ring<u64>,
    pub completion: Ring<u64>,
    pub rx: Ring<libc::xdp_desc>,
    pub tx: Ring<libc::xdp_desc>,
    /// Packets that one call sends in copy mode, if the device takes them.
    pub tx_budget: u32,
    pub fd: OwnedFd,
}

fn not_registered(error: io::Error) -> LinkError {
    let why = match error.raw_os_error() {
        Some(libc::ENOBUFS | libc::ENOMEM) => " (`ulimit -l` is to hold it all, or CAP_IPC_LOCK)",
        _ => "",
    };
    LinkError::from_io(format!("register the memory of an AF_XDP socket{why}"), error)
}

/// The memory that a socket uses.
#[derive(Clone, Copy)]
pub(super) enum Memory {
    /// Registered by this one.
    Own(Extent),
    /// Registered by the socket that it will be bound with.
    Shared,
}

impl Socket {
    /// A socket with rings of `size` entries each, not bound yet.
    pub fn open(memory: Memory, size: u32) -> Result<Self, LinkError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_XDP, kind, 0) })
            .map_err(|e| LinkError::needing(CAPABILITIES, "open an AF_XDP socket", e))?;
        // SAFETY: `fd` was just opened and is owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let raw = fd.as_raw_fd();
        let option = |what: &str, result: io::Result<()>| {
            result.map_err(|e| LinkError::from_io(format!("{what} of an AF_XDP socket"), e))
        };
        if let Memory::Own(extent) = memory {
            let request = libc::xdp_umem_reg {
                addr: extent.base.as_ptr() as u64,
                len: extent.len as u64,
                chunk_size: FRAME_SIZE_BYTES as u32,
                headroom: 0,
                flags: 0,
                tx_metadata_len: 0,
            };
            set(raw, libc::XDP_UMEM_REG, &request).map_err(not_registered)?;
        }
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            option("size the rings", set(raw, ring, &size))?;
        }
        // Kernels before 6.17 do not know it.
        let tx_budget = set(raw, XDP_MAX_TX_SKB_BUDGET, &size).map_or(TX_BUDGET, |()| size);
        let libc::xdp_mmap_offsets { rx, tx, fr, cr } = layouts(raw)
            .map_err(|e| LinkError::from_io("lay out the rings of an AF_XDP socket", e))?;
        Ok(Self {
            fill: Ring::map(raw, fr, libc::XDP_UMEM_PGOFF_FILL_RING, size, true)?,
            completion: Ring::map(raw, cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING, size, false)?,
            rx: Ring::map(raw, rx, libc::XDP_PGOFF_RX_RING as u64, size, false)?,
            tx: Ring::map(raw, tx, libc::XDP_PGOFF_TX_RING as u64, size, true)?,
            tx_budget,
            fd,
        })
    }

    /// Binds to a queue of an interface.
    pub fn bind(&self, index: u32, queue: u32, flags: u16, shared: RawFd) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared.cast_unsigned(),
        };
        let size = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        let fd = self.fd.as_raw_fd();
        // SAFETY: the pointer is to a live address of that size.
        check(unsafe { libc::bind(fd, (&raw const address).cast(), size) }).map(|_| ())
    }

    /// Has the kernel send what is in the tx ring.
    pub fn wake_tx(&self) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: no bytes are passed; without an address there is none to read.
        let n = unsafe {
            libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Has the driver take the frames of the fill ring.
    pub fn wake_rx(&self) {
        let fd = self.fd.as_raw_fd();
        let (none, flags) = (std::ptr::null_mut(), libc::MSG_DONTWAIT);
        // SAFETY: no bytes are asked for, nor an address. The result says nothing of use.
        unsafe { libc::recvfrom(fd, none, 0, flags, std::ptr::null_mut(), std::ptr::null_mut()) };
    }

    /// Has the kernel poll the device within our calls, for so long and so many packets. Where that
    /// is refused it does not poll at all.
    pub fn set_busy_poll(&self, time: Duration, packets: u32) -> io::Result<()> {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let options = [
            (SO_PREFER_BUSY_POLL, 1),
            (libc::SO_BUSY_POLL, micros),
            (SO_BUSY_POLL_BUDGET, packets),
        ];
        let fd = self.fd.as_raw_fd();
        let set =
            |(option, value): &(libc::c_int, u32)| set_at(fd, libc::SOL_SOCKET, *option, value);
        options.iter().try_for_each(set).inspect_err(|_| {
            for (option, _) in &options[..2] {
                let _ = set(&(*option, 0));
            }
        })
    }

    /// The kernel's counters of this socket.
    pub fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        // SAFETY: plain counters, for which all zero is valid.
        let mut value: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        get(self.fd.as_raw_fd(), libc::XDP_STATISTICS, &mut value)?;
        Ok(value)
    }

    /// True when frames go to and from the device without a copy.
    pub fn is_zero_copy(&self) -> bool {
        let mut value = libc::xdp_options { flags: 0 };
        get(self.fd.as_raw_fd(), libc::XDP_OPTIONS, &mut value).is_ok()
            && value.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
    }
}

fn layouts(fd: RawFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: plain numbers, for which all zero is valid.
    let mut value: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    get(fd, libc::XDP_MMAP_OFFSETS, &mut value)?;
    Ok(value)
}

fn set<T: Copy>(fd: RawFd, option: libc::c_int, value: &T) -> io::Result<()> {
    set_at(fd, libc::SOL_XDP, option, value)
}

fn set_at<T: Copy>(
    fd: RawFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the pointer is to a live value of that size, which the kernel only reads.
    check(unsafe { libc::setsockopt(fd, level, option, value, size) }).map(|_| ())
}

/// Reads an option into a plain structure of numbers.
fn get<T: Copy>(fd: RawFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut size = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: the pointers are to a live value and its size; the kernel writes no more than that.
    check(unsafe { libc::getsockopt(fd, libc::SOL_XDP, option, value, &raw mut size) }).map(|_| ())
}
