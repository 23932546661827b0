//! A TAP device with virtio-net headers for smoltcp: checksums are left to the kernel and
//! super-segments pass whole, both ways.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::num::{NonZeroU16, NonZeroUsize};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use smoltcp::phy::{self, Checksum, Device, DeviceCapabilities, Medium, PacketMeta};
use smoltcp::time::Instant;

/// `struct virtio_net_hdr`, in the machine's byte order.
const HEADER: usize = 10;
const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const ETHERNET: usize = 14;
/// The largest Ethernet frame that holds an IPv4 packet.
const FRAME: usize = ETHERNET + 65_535;
const TCP: u8 = 6;

const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;

/// See the module's promise.
pub struct OffloadTap {
    file: File,
    mtu: usize,
    rx: Vec<u8>,
    tx: Vec<u8>,
}

impl OffloadTap {
    /// Opens the device called `name`, whose IP packets are at most `mtu` long where they are no
    /// super-segments.
    pub fn open(name: &str, mtu: usize) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        attach(&file, name)?;
        Ok(Self { file, mtu, rx: vec![0; HEADER + FRAME], tx: vec![0; HEADER + FRAME] })
    }
}

impl AsRawFd for OffloadTap {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Makes `file` the descriptor of the device, with headers and offloads.
fn attach(file: &File, name: &str) -> io::Result<()> {
    let check = |result| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let fd = file.as_raw_fd();
    // SAFETY: an ifreq of zeros is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq.
    check(unsafe { libc::ioctl(fd, libc::TUNSETIFF, &raw mut request) })?;
    let size = HEADER as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one int.
    check(unsafe { libc::ioctl(fd, libc::TUNSETVNETHDRSZ, &raw const size) })?;
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check(unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) })
}

impl Device for OffloadTap {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = TxToken<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = ETHERNET + self.mtu;
        capabilities.checksum.tcp = Checksum::None;
        capabilities.segmentation.tcpv4 = NonZeroUsize::new(FRAME);
        capabilities
    }

    fn receive(&mut self, _: Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        match (&self.file).read(&mut self.rx) {
            Ok(len) if len > HEADER => Some((
                RxToken(&self.rx[HEADER..len]),
                TxToken { file: &self.file, buffer: &mut self.tx, segment: None },
            )),
            Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("read: {error}"),
            _ => None,
        }
    }

    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_>> {
        Some(TxToken { file: &self.file, buffer: &mut self.tx, segment: None })
    }
}

/// A frame that the kernel sent.
pub struct RxToken<'a>(&'a [u8]);

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// Room for a frame to send.
pub struct TxToken<'a> {
    file: &'a File,
    buffer: &'a mut [u8],
    segment: Option<NonZeroU16>,
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(mut self, len: usize, f: F) -> R {
        let (header, frame) = self.buffer[..HEADER + len].split_at_mut(HEADER);
        let result = f(frame);
        header.copy_from_slice(&leave_to_kernel(frame, self.segment));
        match self.file.write(&self.buffer[..HEADER + len]) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("write: {error}"),
            _ => result,
        }
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size;
    }
}

/// The header for `frame`; if that is TCP, its checksum field gets the pseudo-header's sum, as
/// whoever completes it expects.
fn leave_to_kernel(frame: &mut [u8], segment: Option<NonZeroU16>) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let is_tcp = frame.len() >= ETHERNET + 40
        && frame[12..14] == [8, 0]
        && frame[ETHERNET] == 0x45
        && frame[ETHERNET + 9] == TCP;
    if !is_tcp {
        return header;
    }
    let start = ETHERNET + 20;
    let mut sum = u32::from(TCP) + (frame.len() - start) as u32;
    for pair in frame[ETHERNET + 12..ETHERNET + 20].chunks_exact(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    frame[start + 16..start + 18].copy_from_slice(&(sum as u16).to_be_bytes());
    header[0] = NEEDS_CSUM;
    if let Some(size) = segment {
        let headers = start + usize::from(frame[start + 12] >> 4) * 4;
        header[1] = GSO_TCPV4;
        header[2..4].copy_from_slice(&(headers as u16).to_ne_bytes());
        header[4..6].copy_from_slice(&size.get().to_ne_bytes());
    }
    header[6..8].copy_from_slice(&(start as u16).to_ne_bytes());
    header[8..10].copy_from_slice(&16_u16.to_ne_bytes());
    header
}
