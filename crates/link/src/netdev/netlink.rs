//! Just enough rtnetlink to set an interface up and to ask for an attribute of it: one request, one answer.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::sys::check;

/// Longest request built here: the headers and a handful of small attributes.
const REQUEST_BYTES: usize = 256;
const HEADER_BYTES: usize = size_of::<libc::nlmsghdr>();
/// Longest answer read here: all attributes of an interface are some 2 KiB.
const ANSWER_BYTES: usize = 16 * 1024;

/// Attributes of an interface that is to be made (rtnetlink(7)): the namespace it goes into, and within
/// `IFLA_LINKINFO` of what kind it is and what only that kind has.
pub(super) const IFLA_NET_NS_FD: u16 = 28;
pub(super) const INFO_KIND: u16 = 1;
pub(super) const INFO_DATA: u16 = 2;

/// Appends an attribute, padded to four.
pub(super) fn put(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    to.extend_from_slice(&kind.to_ne_bytes());
    to.extend_from_slice(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// A request under construction: header, family message, attributes.
pub(super) struct Request {
    bytes: [u8; REQUEST_BYTES],
    len: usize,
}

impl Request {
    /// A request of `kind` (`RTM_*`) with `flags` beside `NLM_F_REQUEST | NLM_F_ACK`, and the
    /// family's fixed part.
    pub fn new(kind: u16, flags: i32, body: &[u8]) -> Self {
        let mut request = Self { bytes: [0; REQUEST_BYTES], len: HEADER_BYTES };
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
        request.bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        request.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        request.put(body);
        request
    }

    /// Adds an attribute.
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let len = (4 + value.len()) as u16;
        self.put(&len.to_ne_bytes());
        self.len -= 2;
        self.put_raw(&kind.to_ne_bytes());
        self.put(value);
        self
    }

    /// Appends `bytes` and pads to four.
    fn put(&mut self, bytes: &[u8]) {
        self.put_raw(bytes);
        self.len = self.len.next_multiple_of(4);
    }

    fn put_raw(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Sends the request and waits for the kernel's verdict.
    pub fn send(self) -> io::Result<()> {
        verdict(&self.exchange()?)
    }

    /// Sends a request for a message with a fixed part of `body` bytes, and gives the value of the first attribute of
    /// `kind` in the answer, if there is one.
    pub fn ask(self, body: usize, kind: u16) -> io::Result<Option<Vec<u8>>> {
        let answer = self.exchange()?;
        if is_verdict(&answer) {
            verdict(&answer)?;
        }
        let mut rest = answer.get(HEADER_BYTES + body..).unwrap_or(&[]);
        while let [len_low, len_high, kind_low, kind_high, ..] = *rest {
            let len = usize::from(u16::from_ne_bytes([len_low, len_high]));
            let Some(value) = rest.get(4..len) else { break };
            if u16::from_ne_bytes([kind_low, kind_high]) == kind {
                return Ok(Some(value.to_vec()));
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(None)
    }

    /// Sends the request and reads the first answer.
    fn exchange(mut self) -> io::Result<Vec<u8>> {
        let len = self.len as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        // SAFETY: socket takes no pointers.
        let fd = check(unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
        })?;
        // SAFETY: `fd` was just opened and is owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the pointer is to `self.len` readable bytes.
        let sent = unsafe { libc::send(fd.as_raw_fd(), self.bytes.as_ptr().cast(), self.len, 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut answer = vec![0_u8; ANSWER_BYTES];
        // SAFETY: the pointer is to that many writable bytes.
        let got =
            unsafe { libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        answer.truncate(got.cast_unsigned());
        Ok(answer)
    }
}

fn is_verdict(answer: &[u8]) -> bool {
    let kind = answer.get(4..6).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    kind.is_some_and(|kind| i32::from(kind) == libc::NLMSG_ERROR)
}

/// The error number of an NLMSG_ERROR answer; zero is success.
fn verdict(answer: &[u8]) -> io::Result<()> {
    let code = answer
        .get(HEADER_BYTES..HEADER_BYTES + 4)
        .map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
    match code.filter(|_| is_verdict(answer)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::Error::from_raw_os_error(libc::EBADMSG)),
    }
}
