//! Captures, and what tshark says of them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use millstream::link::Link;
use millstream_capture::{Trace, TraceConfig};

use crate::host::Ip;
use crate::namespace::{Outcome, Stop, not_started, output_of, say};

/// Bytes of a capture's beginning that are kept in full.
const HEAD_BYTES: usize = 128 << 20;
/// Bytes of its end that are kept in full.
const TAIL_BYTES: usize = 4 << 20;
/// Between them one write in so many is kept.
const KEEP_ONE_IN: usize = 8;

/// A file that keeps the beginning and the end of what is written, and samples of the rest. A trace
/// writes whole packets at a time, so leaving out a write leaves out packets.
struct Sampled {
    file: BufWriter<File>,
    head: usize,
    tail: VecDeque<Vec<u8>>,
    tail_bytes: usize,
    passed: usize,
}

impl Sampled {
    fn new(file: File) -> Self {
        let file = BufWriter::with_capacity(1 << 20, file);
        Self { file, head: 0, tail: VecDeque::new(), tail_bytes: 0, passed: 0 }
    }
}

impl Write for Sampled {
    fn write(&mut self, blocks: &[u8]) -> io::Result<usize> {
        if self.head < HEAD_BYTES {
            self.head += blocks.len();
            self.file.write_all(blocks)?;
            return Ok(blocks.len());
        }
        self.tail_bytes += blocks.len();
        self.tail.push_back(blocks.to_vec());
        while self.tail_bytes > TAIL_BYTES {
            let Some(old) = self.tail.pop_front() else { break };
            self.tail_bytes -= old.len();
            self.passed += 1;
            if self.passed.is_multiple_of(KEEP_ONE_IN) {
                self.file.write_all(&old)?;
            }
        }
        Ok(blocks.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Sampled {
    fn drop(&mut self) {
        for blocks in self.tail.drain(..) {
            let _ = self.file.write_all(&blocks);
        }
    }
}

/// A capture in a file of its own, which goes with this value.
pub struct Capture {
    path: PathBuf,
}

impl Capture {
    /// A capture by this name.
    pub fn new(name: &str) -> Self {
        let kept = std::env::var_os("MILLSTREAM_JUDGE_KEEP").map(PathBuf::from);
        let directory = kept.unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
        let unique = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos());
        Self { path: directory.join(format!("judge-{name}-{unique}.pcapng")) }
    }

    /// Wraps a link so that what passes it is captured here.
    pub fn trace(&self, link: impl Link + 'static) -> io::Result<Box<dyn Link>> {
        let out = Sampled::new(File::create(&self.path)?);
        Ok(Box::new(Trace::new(link, out, TraceConfig::default())?))
    }

    /// Starts to capture what passes an interface of the kernel, where nothing is offloaded.
    pub fn live(&self, interface: &str) -> Result<Live, Stop> {
        let mut child = Command::new("dumpcap")
            .args(["-q", "-i", interface, "-w"])
            .arg(&self.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| not_started("dumpcap", &error))?;
        let said = BufReader::new(child.stderr.take().expect("a pipe"));
        // It names its file once it captures.
        let mut heard = String::new();
        for line in said.lines().map_while(Result::ok) {
            if line.starts_with("File:") {
                return Ok(Live(child));
            }
            heard += &line;
        }
        let _ = child.wait();
        Err(Stop::Failed(format!("dumpcap: {heard}")))
    }

    /// Panics if tshark sees a malformed packet or a bad checksum among those that `whose` selects.
    /// The link that was traced must be gone, so that all is written.
    pub fn judge(&self, whose: Whose) -> Result<(), Stop> {
        let (packets, bytes) = self.packets()?;
        assert!(packets > 0, "an empty capture: {}", self.path.display());
        // In packets beyond 64 KiB tshark loses a carry now and then, and calls a right sum bad.
        let wrong = "_ws.malformed || ip.checksum.status == 0 \
                     || (tcp.checksum.status == 0 && frame.len <= 65549) \
                     || udp.checksum.status == 0 || icmp.checksum.status == 0 \
                     || icmpv6.checksum.status == 0";
        // Out is what Millstream sent; what it received through faults is damaged on purpose. The
        // kernel writes a TCP checksum of zero as 0xffff (skb_checksum_help), which verifies, but
        // tshark calls it bad.
        let kernels = format!("ip.src == {} || ipv6.src == {}", Ip::V4.kernel(), Ip::V6.kernel());
        let filter = match whose {
            Whose::All => format!("({wrong}) && !(({kernels}) && tcp.checksum == 0xffff)"),
            Whose::Sent => format!("frame.packet_flags_direction == 2 && ({wrong})"),
        };
        let text = self.tshark(&filter)?;
        let first: Vec<&str> = text.lines().take(20).collect();
        assert!(
            text.is_empty(),
            "tshark finds wrong packets:\n{}\nin {}",
            first.join("\n"),
            self.path.display()
        );
        say(&format!("tshark: {packets} packets in {} MiB, none wrong", bytes >> 20));
        Ok(())
    }

    /// Returns the number of packets in the capture, and its size in bytes.
    fn packets(&self) -> io::Result<(usize, u64)> {
        const PACKET: u32 = 6;
        let mut file = BufReader::with_capacity(1 << 20, File::open(&self.path)?);
        let (mut packets, mut bytes) = (0, 0);
        let mut start = [0; 8];
        while file.read_exact(&mut start).is_ok() {
            let [a, b, c, d, lengths @ ..] = start;
            let len = u32::from_le_bytes(lengths);
            packets += usize::from(u32::from_le_bytes([a, b, c, d]) == PACKET);
            bytes += u64::from(len);
            file.seek_relative(i64::from(len) - 8)?;
        }
        Ok((packets, bytes))
    }

    /// Returns the text that tshark prints of the packets that a filter selects.
    fn tshark(&self, filter: &str) -> Result<String, Stop> {
        let output = Command::new("tshark")
            .arg("-r")
            .arg(&self.path)
            .args(["-n", "-Y", filter])
            // The bytes are a pattern: what some application makes of them on its port is nothing.
            .args(["-d", "tcp.port==1-65535,data", "-d", "udp.port==1-65535,data"])
            .args(["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"])
            .args(["-o", "udp.check_checksum:TRUE", "-o", "tcp.desegment_tcp_streams:FALSE"])
            // Nobody's own preferences.
            .env("WIRESHARK_CONFIG_DIR", env!("CARGO_TARGET_TMPDIR"))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| not_started("tshark", &error))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tshark {filter:?}: {errors}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if std::env::var_os("MILLSTREAM_JUDGE_KEEP").is_none() && !std::thread::panicking() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A capture under way.
pub struct Live(Child);

impl Live {
    /// Ends it with all that was captured written.
    pub fn end(mut self) -> Outcome {
        // What passed last may still be on its way to the file.
        std::thread::sleep(std::time::Duration::from_millis(500));
        output_of("kill", &["-INT", &self.0.id().to_string()])?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Which packets of a capture are judged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// All.
    All,
    /// Packets that Millstream sent.
    Sent,
}
