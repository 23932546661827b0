//! Page faults of every CPU, by the software events of perf.

use std::io;

use perf_event::events::Software;
use perf_event::{Builder, Counter};

use crate::{Absent, in_one_line};

/// Counters that are kept open, two for each CPU.
pub struct Faults {
    cpus: Vec<(u32, Counter, Counter)>,
}

impl Faults {
    /// Opens the counters of `cpus`. Needs CAP_PERFMON, or `kernel.perf_event_paranoid` of 0 at
    /// most.
    pub fn open(cpus: &[u32]) -> Result<Self, Absent> {
        let open = |&cpu: &u32| -> io::Result<(u32, Counter, Counter)> {
            let one = |kind| {
                let mut builder = Builder::new().kind(kind).any_pid().one_cpu(cpu as usize);
                // Page faults of the kernel while it copies for a program count, too.
                builder.include_kernel();
                builder.build()
            };
            let (mut minor, mut major) =
                (one(Software::PAGE_FAULTS_MIN)?, one(Software::PAGE_FAULTS_MAJ)?);
            minor.enable()?;
            major.enable()?;
            Ok((cpu, minor, major))
        };
        let cpus = cpus.iter().map(open).collect::<Result<_, _>>().map_err(because)?;
        Ok(Self { cpus })
    }

    /// Returns for each CPU its number, the faults without a disk read and those with one, since
    /// the counters were opened.
    pub fn read(&mut self) -> Result<Vec<(u32, u64, u64)>, Absent> {
        let read = |(cpu, minor, major): &mut (u32, Counter, Counter)| {
            Ok((*cpu, minor.read()?, major.read()?))
        };
        self.cpus.iter_mut().map(read).collect::<Result<_, _>>().map_err(because)
    }
}

fn because(error: io::Error) -> Absent {
    let text = in_one_line(&error);
    let rights = match error.kind() {
        io::ErrorKind::PermissionDenied => "; it takes CAP_PERFMON, or root",
        _ => "",
    };
    Absent(format!("perf page-faults: {text}{rights}"))
}
