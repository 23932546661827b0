//! The ring over memory that the test writes as the kernel does.

use super::*;

const BLOCK_BYTES: usize = 4096;
const HEAD_BYTES: usize = size_of::<libc::tpacket3_hdr>();
/// Where a packet's bytes begin behind its head: room for its virtio-net header is before them.
const MAC: usize = HEAD_BYTES + vnet::HEADER_BYTES + 6;

/// A ring of two blocks that the kernel has.
fn ring() -> ReceiveRing {
    let len = 2 * BLOCK_BYTES;
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the system's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let map = NonNull::new(at.cast()).expect("memory");
    ReceiveRing {
        map,
        block_bytes: BLOCK_BYTES,
        blocks: 2,
        block: 0,
        left: 0,
        at: 0,
        is_ours: false,
        lost: 0,
    }
}

impl ReceiveRing {
    /// Writes into a block that is the kernel's.
    fn put(&self, block: usize, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= BLOCK_BYTES && block < 2);
        // SAFETY: inside the mapping; nobody has a reference into a block of the kernel's.
        unsafe {
            let to = self.map.add(block * BLOCK_BYTES + at);
            to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
    }

    fn status_of(&self, block: usize) -> &AtomicU32 {
        // SAFETY: as `status`.
        unsafe { self.map.add(block * BLOCK_BYTES + STATUS).cast::<AtomicU32>().as_ref() }
    }

    /// Fills a block with these packets, each `lost` bytes shorter than it was, and hands it over.
    fn hand_over(&self, block: usize, packets: &[&[u8]], lost: u32) {
        let mut at = 48;
        self.put(block, COUNT, &(packets.len() as u32).to_ne_bytes());
        self.put(block, FIRST, &(at as u32).to_ne_bytes());
        for bytes in packets {
            // An odd distance: heads need not be aligned for this side.
            let next = MAC + bytes.len() + 1;
            self.put_packet(block, at, bytes, bytes.len() as u32, lost, next as u32);
            at += next;
        }
        self.status_of(block).store(libc::TP_STATUS_USER, Ordering::Release);
    }

    fn put_packet(&self, block: usize, at: usize, bytes: &[u8], snap: u32, lost: u32, next: u32) {
        // SAFETY: a head is plain data, for which all zero is valid.
        let mut head: libc::tpacket3_hdr = unsafe { std::mem::zeroed() };
        (head.tp_next_offset, head.tp_snaplen, head.tp_len) = (next, snap, snap + lost);
        (head.tp_mac, head.hv1.tp_vlan_tci) = (MAC as u16, 7);
        head.tp_status = libc::TP_STATUS_USER;
        // SAFETY: all bytes of a head are written: it was zeroed whole.
        let head: [u8; HEAD_BYTES] = unsafe { std::mem::transmute(head) };
        self.put(block, at, &head);
        self.put(block, at + MAC - vnet::HEADER_BYTES, &[9; vnet::HEADER_BYTES]);
        self.put(block, at + MAC, bytes);
    }

    /// What is read until there is nothing.
    fn all(&mut self) -> Vec<(Vec<u8>, bool)> {
        let mut all = Vec::new();
        while let Some(packet) = self.peek() {
            assert_eq!((packet.header, packet.auxiliary.tag), ([9; vnet::HEADER_BYTES], 7));
            all.push((packet.bytes.to_vec(), packet.is_cut));
            self.advance();
        }
        all
    }
}

#[test]
fn blocks_are_read_in_order_and_given_back() {
    let mut ring = ring();
    assert!(ring.peek().is_none());
    for round in 0..3u8 {
        let packets: [&[u8]; 3] = [&[round; 60], &[round + 1; 1], &[round + 2; 333]];
        ring.hand_over(0, &packets, 0);
        ring.hand_over(1, &packets[..1], 5);
        let first = ring.peek().expect("a packet").bytes.to_vec();
        assert_eq!(ring.peek().expect("the same").bytes, first);
        let mut expected: Vec<_> = packets.iter().map(|bytes| (bytes.to_vec(), false)).collect();
        expected.push((packets[0].to_vec(), true));
        assert_eq!(ring.all(), expected);
        let statuses = [0, 1].map(|block| ring.status_of(block).load(Ordering::Acquire));
        assert_eq!(statuses, [libc::TP_STATUS_KERNEL; 2]);
    }
}

#[test]
fn an_empty_block_is_passed_over() {
    let mut ring = ring();
    ring.hand_over(0, &[], 0);
    ring.hand_over(1, &[b"behind it"], 0);
    assert_eq!(ring.all(), [(b"behind it".to_vec(), false)]);
}

/// Whatever a block says of its packets, nothing outside it is read.
#[test]
fn nonsense_ends_a_block() {
    for (snap, next) in [(5000, 100), (u32::MAX, 100), (4, 5000), (4, u32::MAX), (4, 4048)] {
        let mut ring = ring();
        ring.put(0, COUNT, &2u32.to_ne_bytes());
        ring.put(0, FIRST, &48u32.to_ne_bytes());
        ring.put_packet(0, 48, b"some", snap, 0, next);
        ring.status_of(0).store(libc::TP_STATUS_USER, Ordering::Release);
        ring.hand_over(1, &[b"whole"], 0);
        let got = ring.all();
        assert_eq!(got.last(), Some(&(b"whole".to_vec(), false)), "{snap} {next}");
        assert_eq!(got.len(), if snap == 4 { 2 } else { 1 }, "{snap} {next}");
        // Two were said to be there.
        assert_eq!(got.len() as u64 - 1 + ring.lost(), 2, "{snap} {next}");
    }
}

#[test]
fn a_block_that_begins_nowhere_is_passed_over() {
    for (count, first) in [(u32::MAX, 48), (1, u32::MAX), (u32::MAX, BLOCK_BYTES as u32 - 10)] {
        let mut ring = ring();
        ring.put_packet(0, 48, &[], 0, 0, BLOCK_BYTES as u32);
        ring.put(0, 48 + std::mem::offset_of!(libc::tpacket3_hdr, tp_mac), &[0xff; 2]);
        ring.put(0, COUNT, &count.to_ne_bytes());
        ring.put(0, FIRST, &first.to_ne_bytes());
        ring.status_of(0).store(libc::TP_STATUS_USER, Ordering::Release);
        ring.hand_over(1, &[b"whole"], 0);
        assert_eq!(ring.all(), [(b"whole".to_vec(), false)], "{count} {first}");
        assert_eq!(ring.lost(), count.into());
    }
}

#[test]
fn places_that_the_kernel_gave_up_are_passed_over() {
    for given_up in 0..3 {
        let mut ring = ring();
        let packets: [&[u8]; 3] = [b"one", b"two", b"three"];
        ring.hand_over(0, &packets, 0);
        let before: usize = packets[..given_up].iter().map(|bytes| MAC + bytes.len() + 1).sum();
        let status = std::mem::offset_of!(libc::tpacket3_hdr, tp_status);
        let at = 48 + before;
        ring.put(0, at + status, &0_u32.to_ne_bytes());
        // The place holds what the kernel wrote before it gave up, or what was there before.
        ring.put(0, at + std::mem::offset_of!(libc::tpacket3_hdr, tp_mac), &[0xff; 2]);
        let left = packets.iter().enumerate().filter(|(i, _)| *i != given_up);
        let left: Vec<_> = left.map(|(_, bytes)| (bytes.to_vec(), false)).collect();
        assert_eq!((ring.all(), ring.lost()), (left, 0));
        assert_eq!(ring.status_of(0).load(Ordering::Acquire), libc::TP_STATUS_KERNEL);
    }
}
