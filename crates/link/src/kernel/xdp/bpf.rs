//! The few commands of bpf(2) that a redirecting XDP program needs, and the loading of any program.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::CAPABILITIES;
use super::program::{Instruction, Steer, assemble};
use crate::LinkError;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
pub(crate) const PROGRAM_LOAD: libc::c_int = 5;
/// Times that a program is loaded again because a signal came meanwhile.
const LOAD_ATTEMPTS: usize = 16;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROGRAM_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const FLAG_FRAGMENTS: u32 = 1 << 5;
const MODE_GENERIC: u32 = 1 << 1;
const MODE_DRIVER: u32 = 1 << 2;

/// `union bpf_attr`, as words of 32 bits; what a command does not use is zero.
#[repr(C, align(8))]
pub(crate) struct Attributes([u32; 32]);

impl Attributes {
    pub fn new(words: &[u32]) -> Self {
        let mut all = [0; 32];
        all[..words.len()].copy_from_slice(words);
        Self(all)
    }

    /// Stores a pointer in two words.
    pub fn pointer<T>(mut self, at: usize, to: *const T) -> Self {
        let bytes = (to as u64).to_ne_bytes();
        for (i, word) in bytes.chunks_exact(4).enumerate() {
            self.0[at + i] = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        }
        self
    }

    /// # Safety
    /// Pointers stored are to live memory of the kind and length that the command takes.
    unsafe fn call(&self, command: libc::c_int) -> io::Result<RawFd> {
        // SAFETY: the pointer is to that many bytes; what they point to is the caller's promise.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), size_of::<Self>()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as RawFd) }
    }

    /// The same for a command that returns a new descriptor.
    ///
    /// # Safety
    /// As for [`call`](Self::call).
    pub unsafe fn open(&self, command: libc::c_int) -> io::Result<OwnedFd> {
        // SAFETY: passed on.
        let mut result = unsafe { self.call(command) };
        for _ in 0..LOAD_ATTEMPTS {
            match result.as_ref().map_err(io::Error::raw_os_error) {
                // The verifier gives up when a signal comes, be it that the process is stopped and
                // goes on. SAFETY: passed on.
                Err(Some(libc::EAGAIN)) => result = unsafe { self.call(command) },
                _ => break,
            }
        }
        let fd = result?;
        // SAFETY: the descriptor is new and owned by nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// A program on an interface with its map of sockets. Everything is held by descriptors: when the
/// process ends, however it does, the kernel detaches.
#[derive(Debug)]
pub(super) struct Attachment {
    link: OwnedFd,
    map: OwnedFd,
    has_fragments: bool,
    /// The driver runs it; otherwise the kernel's generic hook behind the driver does.
    pub is_native: bool,
}

impl Attachment {
    /// Attaches to the interface with `index`, with `queues` places for sockets.
    pub fn new(
        index: u32,
        queues: u32,
        steer: &Steer,
        has_fragments: bool,
    ) -> Result<Self, LinkError> {
        // map_type, key_size, value_size, max_entries.
        let map = Attributes::new(&[MAP_TYPE_XSKMAP, 4, 4, queues]);
        // SAFETY: no pointers.
        let map = unsafe { map.open(MAP_CREATE) }
            .map_err(|e| LinkError::needing(CAPABILITIES, "make a map of AF_XDP sockets", e))?;
        let program = load(steer, &map, has_fragments)?;
        let attach = |mode| {
            let program = program.as_raw_fd().cast_unsigned();
            let attributes = Attributes::new(&[program, index, ATTACH_TYPE_XDP, mode]);
            // SAFETY: no pointers.
            unsafe { attributes.open(LINK_CREATE) }
        };
        let (link, is_native) = match attach(MODE_DRIVER) {
            Ok(link) => (link, true),
            Err(_) => match attach(MODE_GENERIC) {
                Ok(link) => (link, false),
                Err(error) => {
                    let what = format!("attach an XDP program{}", why(&error, has_fragments));
                    return Err(LinkError::needing(CAPABILITIES, what, error));
                }
            },
        };
        Ok(Self { link, map, has_fragments, is_native })
    }

    /// Makes `socket` the receiver of `queue`.
    pub fn insert(&self, queue: u32, socket: RawFd) -> Result<(), LinkError> {
        let socket = socket.cast_unsigned();
        let attributes = Attributes::new(&[self.map.as_raw_fd().cast_unsigned()])
            .pointer(2, &raw const queue)
            .pointer(4, &raw const socket);
        // SAFETY: key and value are live and of the map's sizes.
        unsafe { attributes.call(MAP_UPDATE) }
            .map_err(|e| LinkError::from_io(format!("receive from queue {queue}"), e))?;
        Ok(())
    }

    /// Puts a program for `steer` in the place of the one there; no packet passes in between.
    pub fn replace(&self, steer: &Steer) -> Result<(), LinkError> {
        let program = load(steer, &self.map, self.has_fragments)?;
        let words = [&self.link, &program].map(|fd| fd.as_raw_fd().cast_unsigned());
        // SAFETY: no pointers.
        unsafe { Attributes::new(&words).call(LINK_UPDATE) }
            .map_err(|e| LinkError::from_io("replace an XDP program", e))?;
        Ok(())
    }
}

/// Returns what most likely stands behind a refusal.
fn why(error: &io::Error, has_fragments: bool) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => " (the interface has another one)",
        Some(libc::EPERM | libc::EACCES) => "",
        _ if has_fragments => {
            " (an MTU beyond one frame needs the multi-buffer of Linux 5.18, and of the driver)"
        }
        _ => "",
    }
}

fn load(steer: &Steer, map: &OwnedFd, has_fragments: bool) -> Result<OwnedFd, LinkError> {
    let code: Vec<Instruction> = assemble(steer, map.as_raw_fd());
    let mut attributes = Attributes::new(&[PROGRAM_TYPE_XDP, code.len() as u32])
        .pointer(2, code.as_ptr())
        .pointer(4, c"Apache-2.0 OR MIT".as_ptr());
    let mut name = [0; 16];
    name[..10].copy_from_slice(b"millstream");
    for (i, bytes) in name.chunks_exact(4).enumerate() {
        attributes.0[12 + i] = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    attributes.0[11] = if has_fragments { FLAG_FRAGMENTS } else { 0 };
    attributes.0[17] = ATTACH_TYPE_XDP;
    // SAFETY: the instructions, so many of them, and the licence live through the call.
    unsafe { attributes.open(PROGRAM_LOAD) }.map_err(|error| {
        let hint = if has_fragments { why(&error, has_fragments) } else { "" };
        LinkError::needing(CAPABILITIES, format!("load an XDP program{hint}"), error)
    })
}
