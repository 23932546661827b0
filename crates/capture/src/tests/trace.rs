use std::process::Command;

use millstream_link::testing::{Shape, bytes, pool};
use millstream_link::{Link, Medium, PairConfig, Placing, pair};
use millstream_packet::{Instant, Packet, PacketBatch};
use millstream_wire::tcp::TcpFlags;
use pcap_parser::{Block, EnhancedPacketBlock, OptionCode, parse_block_le};

use super::*;

/// Returns the packets of a capture as the library reads them, behind a section and an interface.
fn packets(file: &[u8]) -> Vec<EnhancedPacketBlock<'_>> {
    let (mut rest, mut packets, mut others) = (file, Vec::new(), 0);
    while let Ok((behind, block)) = parse_block_le(rest) {
        rest = behind;
        match block {
            Block::EnhancedPacket(packet) => packets.push(packet),
            _ => others += 1,
        }
    }
    assert_eq!((rest.len(), others), (0, 2));
    packets
}

/// Super-segments and single packets, both families and protocols, out of one end and into the
/// other.
fn capture(medium: Medium, snap_bytes: usize) -> Vec<u8> {
    let pool = pool();
    let sink = Sink::default();
    let (mut a, b) = pair(PairConfig { medium, ..PairConfig::default() }).unwrap();
    let config = TraceConfig { snap_bytes, epoch_ns: 1_700_000_000_000_000_000 };
    let mut b = Trace::new(b, sink.clone(), config).unwrap();
    let mut batch = PacketBatch::new();
    let shapes = || {
        [
            (false, true, 30_000),
            (true, true, 30_001),
            (false, false, 700),
            (true, false, 701),
            (false, true, 0),
            (false, true, 100_000),
            (true, true, 100_000),
        ]
        .map(|(is_v6, is_tcp, len)| Shape {
            medium,
            segment: (len > 1400).then_some(1400),
            flags: TcpFlags::ACK.union(TcpFlags::PSH),
            ..Shape::new(is_v6, is_tcp, (0..len).map(|i| (i / 11) as u8).collect())
        })
    };
    for shape in shapes() {
        batch.push(shape.build(&pool)).unwrap();
    }
    a.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
    b.receive(Instant::from_millis(1500), &pool, &mut batch).unwrap();
    assert_eq!(batch.len(), 7);
    let before: Vec<_> = batch.iter().map(bytes).collect();
    b.transmit(Instant::from_millis(1501), &pool, &mut batch).unwrap();
    a.receive(Instant::ZERO, &pool, &mut batch).unwrap();
    assert_eq!(batch.iter().map(bytes).collect::<Vec<_>>(), before, "capturing changed a packet");
    assert_eq!(b.captured(), 14);
    assert_eq!(b.stats().tx_packets, 7);
    sink.bytes.lock().unwrap().clone()
}

#[test]
fn blocks_carry_time_direction_and_lengths() {
    let file = capture(Medium::Ethernet, 100);
    let packets = packets(&file);
    assert_eq!(packets.len(), 14);
    for (i, packet) in packets.iter().enumerate() {
        let nanos = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
        let since = if i < 7 { 1_500_000_000 } else { 1_501_000_000 };
        assert_eq!(nanos, 1_700_000_000_000_000_000 + since);
        assert_eq!(packet.caplen, packet.origlen.min(100));
        let (flags, end) = (&packet.options[0], &packet.options[1]);
        assert_eq!((flags.code, end.code), (OptionCode(2), OptionCode::EndOfOpt));
        assert_eq!(flags.as_u32_le(), Ok(if i < 7 { 1 } else { 2 }));
    }
}

#[test]
fn what_is_read_to_its_place_is_captured_as_what_is_received() {
    let pool = pool();
    for (head_len, room) in [(66, 2048), (66, 2049), (67, 4097), (128, 65_536)] {
        let files = [false, true].map(|places| {
            let sink = Sink::default();
            let (mut a, b) = pair(PairConfig { offload: true, ..PairConfig::default() }).unwrap();
            let mut b = Trace::new(Placing::new(b), sink.clone(), TraceConfig::default()).unwrap();
            assert!(b.places());
            let mut batch = PacketBatch::new();
            for len in [0, 61, 1001, 30_001] {
                let mut shape = Shape::new(len == 61, true, (0..len).map(|i| i as u8).collect());
                shape.segment = (len > 1400).then_some(1400);
                batch.push(shape.build(&pool)).unwrap();
            }
            a.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
            let now = Instant::from_millis(3);
            let mut memory = vec![0; room];
            let mut next = |b: &mut Trace<_, _>| b.receive_into(now, &pool, head_len, &mut memory);
            match places {
                true => {
                    for _ in 0..4 {
                        assert!(next(&mut b).unwrap().is_some());
                    }
                    assert!(next(&mut b).unwrap().is_none());
                }
                false => assert_eq!(b.receive(now, &pool, &mut batch).unwrap(), 4),
            }
            assert_eq!(b.captured(), 4);
            sink.bytes.lock().unwrap().clone()
        });
        assert!(files[0] == files[1], "{head_len} bytes, then {room}");
    }
}

#[test]
fn a_failed_writer_ends_the_capture_and_not_the_traffic() {
    let pool = pool();
    let sink = Sink::default();
    let (mut a, b) = pair(PairConfig::default()).unwrap();
    let mut b = Trace::new(b, sink.clone(), TraceConfig::default()).unwrap();
    *sink.fails.lock().unwrap() = true;
    for _ in 0..2 {
        let mut batch = PacketBatch::new();
        batch.push(Packet::from_slice(&pool, 0, &[0; 60]).unwrap()).unwrap();
        a.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
        assert_eq!(b.receive(Instant::ZERO, &pool, &mut batch).unwrap(), 1);
    }
    assert_eq!(b.error().unwrap().to_string(), "disk full");
    b.refresh();
    assert_eq!(b.notes(), [format!("the capture of {} ended: disk full", b.name())]);
    assert_eq!(b.captured(), 0);
}

#[test]
fn a_capture_is_whole_while_its_link_rests() {
    let pool = pool();
    let sink = Sink::default();
    let (mut a, b) = pair(PairConfig::default()).unwrap();
    let out = io::BufWriter::new(sink.clone());
    let mut b = Trace::new(b, out, TraceConfig::default()).unwrap();
    let mut batch = PacketBatch::new();
    for round in 1..=3 {
        batch.push(Shape::new(false, true, vec![1; 100]).build(&pool)).unwrap();
        a.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
        b.receive(Instant::ZERO, &pool, &mut batch).unwrap();
        batch.clear();
        b.prepare_sleep();
        assert_eq!(packets(&sink.bytes.lock().unwrap()).len(), round);
    }
    *sink.fails.lock().unwrap() = true;
    batch.push(Shape::new(false, true, vec![1; 100]).build(&pool)).unwrap();
    a.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
    b.receive(Instant::ZERO, &pool, &mut batch).unwrap();
    assert!(b.error().is_none(), "it is in the buffer");
    b.prepare_sleep();
    assert!(b.notes().iter().any(|note| note.contains("disk full")), "{:?}", b.notes());
}

/// Returns the lines of packets that match `filter`, as tshark prints them.
fn tshark(file: &std::path::Path, filter: &str) -> Option<String> {
    let mut command = Command::new("tshark");
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    match command.arg("-r").arg(file).args(["-Y", filter]).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            println!("skipped: tshark: {error}");
            None
        }
    }
}

#[test]
fn tshark_sees_no_malformed_packet_and_no_bad_checksum() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let file = std::env::temp_dir()
            .join(format!("millstream-trace-{}-{medium:?}.pcapng", std::process::id()));
        std::fs::write(&file, capture(medium, 262_144)).unwrap();
        let bad = "_ws.malformed || ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0";
        let good = "tcp.checksum.status == 1 || udp.checksum.status == 1";
        let answers = (tshark(&file, bad), tshark(&file, good));
        std::fs::remove_file(&file).unwrap();
        let (Some(bad), Some(good)) = answers else { return };
        assert_eq!(bad, "");
        assert_eq!(good.lines().count(), 14, "{good}");
    }
}
