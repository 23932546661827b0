//! The programs that count who opens connections, and who asks for names.

use aya::maps::{HashMap, MapData};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};

use super::budget::{failed, none, odd};
use super::refused;
use crate::bpf::Opener;
use crate::{Absent, in_one_line};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/opened.bpf.o");

/// Tracepoints that tell of connections, and of datagrams.
const TRACEPOINTS: [&str; 2] = ["inet_sock_set_state", "net_dev_queue"];

/// Counts that go on until they are dropped.
pub struct Opened {
    bpf: Ebpf,
}

impl Opened {
    /// Loads the programs and begins.
    pub fn begin() -> Result<Self, Absent> {
        let btf = Btf::from_sys_fs()
            .map_err(|error| Absent(format!("/sys/kernel/btf/vmlinux: {}", in_one_line(&error))))?;
        let mut loader = EbpfLoader::new();
        let loaded = loader.btf(Some(&btf)).load(OBJECT);
        let mut bpf = loaded.map_err(|error| Absent(refused(&in_one_line(&error))))?;
        for name in TRACEPOINTS {
            let program = bpf.program_mut(name).ok_or_else(|| none(name))?;
            let program: &mut BtfTracePoint =
                program.try_into().map_err(|error| failed(name, error))?;
            let done = program.load(name, &btf).and_then(|()| program.attach().map(drop));
            done.map_err(|error| failed(name, error))?;
        }
        Ok(Self { bpf })
    }

    /// Returns the counts so far.
    pub fn read(&self) -> Result<Vec<(Opener, u64)>, Absent> {
        let map = self.bpf.map("opened").ok_or_else(|| none("opened"))?;
        let map: HashMap<&MapData, u64, u64> = HashMap::try_from(map).map_err(odd)?;
        let opener = |key: u64| Opener {
            process: key as u32,
            port: (key >> 32) as u16,
            looks_up: key >> 48 != 0,
        };
        let each = map.iter().map(|entry| entry.map(|(key, count)| (opener(key), count)));
        each.collect::<Result<_, _>>().map_err(odd)
    }
}
