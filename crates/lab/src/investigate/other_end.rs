//! The other end of a command: started before each run, here or at a far host, and ended after it.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use millstream_load::ready::{LEAD, Outlook, Ready};
use millstream_load::remote::{FarCommand, FarHost, FarOther, Machine};
use millstream_load::running::{Listening, Running, may_be_started};
use millstream_record::RunRecord;
use millstream_record::error::Error;
use millstream_testbed::guard::WorkerProgram;
use millstream_testbed::interrupt::Interrupt;

use crate::far;

/// Time between two looks for whether it can be used.
const LOOK: Duration = Duration::from_millis(10);

/// Longest time until it can be used.
const PATIENCE: Duration = Duration::from_secs(10);

/// Life of one at a far host beyond that of the command.
const BEYOND: Duration = Duration::from_secs(30);

/// The other end of a command.
#[derive(Clone, Debug)]
pub struct OtherEnd {
    words: Vec<String>,
    ready: Ready,
    far: Option<FarHost>,
    is_one_machine: bool,
    /// True once none of its processes was seen to listen in time.
    is_unseen: bool,
}

/// One that was started.
pub(super) enum Started {
    Here(Running, Listening),
    There(Box<FarOther>),
}

impl OtherEnd {
    /// Returns one of these words, which can be used when `ready` says so. It is started here, or
    /// at a far host, which is asked.
    pub fn new(words: Vec<String>, ready: Ready, far: Option<FarHost>) -> Result<Self, Error> {
        let machine = far.as_ref().map(FarHost::machine).transpose();
        let machine = machine.map_err(|error| Error::Refused(error.to_string()))?;
        let is_one_machine = machine.is_none_or(|machine| machine.is_same_kernel(&Machine::here()));
        Ok(Self { words, ready, far, is_one_machine, is_unseen: false })
    }

    /// Refuses one that cannot be started here.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.far {
            Some(_) => Ok(()),
            None => may_be_started(OsStr::new(self.words.first().map_or("", String::as_str))),
        }
    }

    /// Refuses to bind it to CPUs of this machine where it is on another.
    pub(super) fn may_bind(&self) -> Result<(), String> {
        match self.is_one_machine {
            true => Ok(()),
            false => Err("the other end is on another machine".to_owned()),
        }
    }

    /// Starts it, bound to a CPU where one is given and at a high priority where that is asked for,
    /// beside a command that lasts so long at most.
    pub(super) fn start(
        &self,
        (cpu, raised): (Option<usize>, bool),
        guard: Option<&WorkerProgram>,
        timeout: Duration,
    ) -> Result<Started, Error> {
        let Some(far) = &self.far else {
            let mut running = Running::start_server(&self.words, (cpu, raised), guard)?;
            let said = running.said();
            return Ok(Started::Here(running, said));
        };
        let (words, ready) = (self.words.clone(), self.ready.clone());
        let most_s = timeout.saturating_add(PATIENCE + BEYOND).as_secs_f64();
        let patience_ms = self.patience().as_millis() as u64;
        let command = FarCommand { words, cpu, raised, ready, patience_ms, most_s };
        far.command(command).map(|other| Started::There(Box::new(other)))
    }

    /// Returns the longest wait for it.
    fn patience(&self) -> Duration {
        if self.is_unseen { LEAD } else { PATIENCE }
    }

    /// Waits until it can be used. Returns why it cannot, as where its port is taken: the command
    /// would measure whoever has that.
    pub(super) fn wait(
        &mut self,
        started: &mut Started,
        interrupt: &Interrupt,
        record: &mut RunRecord,
    ) -> Result<Option<String>, Error> {
        let (begun, patience) = (Instant::now(), self.patience());
        loop {
            interrupt.check()?;
            let outlook = match started {
                Started::Here(running, said) => {
                    running.look((&self.ready, patience), begun.elapsed(), said)?
                }
                Started::There(other) => other.look(),
            };
            match outlook {
                Outlook::NotYet => std::thread::sleep(LOOK),
                Outlook::Usable => return Ok(None),
                Outlook::Failed(why) => return Ok(Some(why)),
                Outlook::Unseen => break,
            }
        }
        match &self.ready {
            Ready::Listens if self.is_unseen => {}
            Ready::Listens => {
                self.is_unseen = true;
                record.notes.push(format!(
                    "Nothing of the other end listened within {} s, and later runs wait {} ms: --ready says how \
                     it shows that it can be used.",
                    PATIENCE.as_secs(),
                    LEAD.as_millis()
                ));
            }
            Ready::Says(pattern) => {
                let seconds = PATIENCE.as_secs();
                return Ok(Some(format!(
                    "the other end (--server) has not written {pattern:?} (--ready) within {seconds} s"
                )));
            }
        }
        Ok(None)
    }
}

impl Started {
    /// Returns an error once a far host that it is at has gone or hangs.
    pub(super) fn still_there(&mut self) -> Result<(), Error> {
        match self {
            Self::Here(..) => Ok(()),
            Self::There(other) => other.failed().map_or(Ok(()), |why| Err(Error::Worker(why))),
        }
    }

    /// Returns its processes, where they have numbers of this host.
    pub(super) fn processes(&self) -> Vec<u32> {
        match self {
            Self::Here(running, _) => running.processes(),
            Self::There(other) => other.processes(),
        }
    }

    /// Ends it. What a far host saw goes into the record of the run that began at `origin_ns`.
    pub(super) fn end(self, origin_ns: u64, record: &mut RunRecord) {
        if let Self::There(other) = self {
            far::add(other.finish(), origin_ns, record);
        }
    }
}
