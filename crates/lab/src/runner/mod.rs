//! Carrying out an experiment: every run of the plan in new processes on new
//! hosts, kept as soon as it is finished.

mod access;
mod again;
mod describe;
mod distance;
mod given_back;
mod machine;
mod one;
mod overruns;
mod places;
mod results;
mod soak;
mod still;

use std::time::Duration;

pub use access::Access;
use distance::Distances;
use machine::MachineTime;
pub use millstream_testbed::guard::WorkerProgram;
pub use millstream_testbed::interrupt::{Interrupt, survive_file_limit};
pub use places::{Addresses, Places};

use crate::limits;
use millstream_plan::{Definition, PlannedRun, plan, shuffle_seed};
use millstream_record::error::Error;
use millstream_record::{ExperimentRecord, RunRecord, Timestamp};
use millstream_testbed::leftovers::StateDir;

/// An observer of the progress that keeps the records.
pub trait Observer {
    /// The experiment is about to begin, with this plan.
    fn begin(&mut self, experiment: &ExperimentRecord, plan: &[PlannedRun]) -> Result<(), Error>;
    /// A run is about to begin.
    fn run_begins(&mut self, run: &PlannedRun);
    /// A run has ended; it must be on the disk when this returns.
    fn run_ended(&mut self, run: &RunRecord) -> Result<(), Error>;
    /// The experiment is over: all runs, or as many as an interrupt left.
    fn end(&mut self, experiment: &ExperimentRecord) -> Result<(), Error>;
}

/// Everything that the runner needs besides the definition.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The command line of workers.
    pub program: WorkerProgram,
    /// The folder of the markers of running experiments.
    pub state: StateDir,
    /// The access that this process has.
    pub access: Access,
    /// The places of the two ends.
    pub places: Places,
    /// Raised when the user has had enough.
    pub interrupt: Interrupt,
    /// The words of the command, for the record.
    pub command_line: Vec<String>,
}

/// The remark of a build for debugging, before its numbers.
const UNOPTIMIZED: &str = "This `millstream` was built without optimization, as cargo does without --release: what it \
    measures of Millstream is no figure of the stack's.";

/// Runs an experiment to its end, or until an interrupt: then what is finished
/// has been kept and the error is [`Error::Interrupted`]. A run that fails is
/// kept as invalid with its reason, and the next one follows.
pub fn run(
    definition: &Definition,
    setting: &Setting,
    observer: &mut dyn Observer,
) -> Result<(ExperimentRecord, Vec<RunRecord>), Error> {
    let seed = definition.seed.unwrap_or_else(shuffle_seed);
    let mut notes = match &setting.places {
        Places::Made => setting.access.notes(),
        Places::There(addresses) => addresses.notes(),
    };
    for other in setting.state.running() {
        notes.push(format!("Another experiment ({other}) was running; they disturb each other."));
    }
    if cfg!(debug_assertions) {
        notes.push(UNOPTIMIZED.to_owned());
    }
    let planned = plan(definition, seed);
    let runs = match &setting.places {
        Places::Made => possible(planned, &setting.access, &mut notes)?,
        Places::There(addresses) => addresses.possible(planned, &mut notes)?,
    };
    let mut experiment = ExperimentRecord::new(&definition.name, seed, Timestamp::now());
    describe::fill(&mut experiment, definition, setting, runs.len(), notes);
    note_other_work(&mut experiment);
    given_back::at_start(&mut experiment.environment, one::two_cpus());
    let label = format!("ms-{:04x}{:02x}", std::process::id() & 0xffff, seed & 0xff);
    // Before it is kept, so that one that is kept and has no marker does not run.
    let mut claim = setting.state.claim(&label, &experiment.id)?;
    observer.begin(&experiment, &runs)?;
    let mut records = Vec::with_capacity(runs.len());
    let mut distances = Distances::new(runs.len());
    let mut ending = Ok(());
    for planned in &runs {
        ending = setting.interrupt.check();
        if ending.is_err() {
            break;
        }
        observer.run_begins(planned);
        let experiment = &experiment;
        let order = one::Order { planned, definition, experiment, setting, label: &label };
        match one::execute(&order, &mut distances, &mut claim) {
            Ok(mut record) => {
                note_company(&mut record, setting, &label);
                ending = observer.run_ended(&record);
                records.push(record);
            }
            Err(error) => ending = Err(error),
        }
        ending = ending.and_then(|()| claim.forget_workers());
        if ending.is_err() {
            break;
        }
    }
    if ending.is_ok() {
        experiment.finished_at = Some(Timestamp::now());
    }
    // The user must hear of the first error.
    let ended = observer.end(&experiment);
    ending.and(ended).map(|()| (experiment, records))
}

/// Notes in a run which other experiments have begun meanwhile.
fn note_company(record: &mut RunRecord, setting: &Setting, own: &str) {
    for other in setting.state.running().iter().filter(|label| *label != own) {
        record.notes.push(format!("Another experiment ({other}) ran beside this run."));
    }
}

/// Looks for a moment how busy the machine is before anything runs: that load
/// would count as the stacks' own.
fn note_other_work(experiment: &mut ExperimentRecord) {
    let before = MachineTime::now();
    std::thread::sleep(Duration::from_millis(limits::LOOK_BEFORE_MS));
    let Some((then, now)) = before.zip(MachineTime::now()) else { return };
    let used = now.since(&then);
    let cpus = used.busy_s / used.elapsed_s;
    experiment.environment.set("machine.busy_before_cpus", format!("{cpus:.2}"));
    if cpus > limits::BUSY_BEFORE_CPUS {
        experiment.notes.push(format!(
            "The machine was not idle before the first run: other work used {cpus:.1} CPUs. \
             Throughput, latency and CPU per byte include its effect."
        ));
    }
}

/// Leaves out what cannot run here, with a note for each kind.
fn possible(
    runs: Vec<PlannedRun>,
    access: &Access,
    notes: &mut Vec<String>,
) -> Result<Vec<PlannedRun>, Error> {
    let is_impaired = |run: &PlannedRun| run.configuration.level("path") == "impaired";
    let is_kernel = |run: &PlannedRun| run.configuration.stack == "kernel";
    let is_routed = |run: &PlannedRun| run.configuration.workload.is_routed();
    let has_tap = |run: &PlannedRun| {
        is_routed(run) && !is_kernel(run) && run.configuration.level("router_link") == "tap"
    };
    let (planned, mut kept, mut wanting) = (runs.len(), runs, None);
    // Devices first: who may make none may have no hosts either, and both ends are to be told the
    // path.
    if let Err(why) = &access.tap {
        kept.retain(|run| !is_impaired(run));
        if kept.len() < planned {
            let what = "the impaired path needs TAP devices";
            notes.push(format!("Runs over path=impaired were left out: {what}."));
            wanting = Some(format!("{what}, and {why}"));
        }
    }
    if let Err(why) = &access.tap {
        let before = kept.len();
        kept.retain(|run| !has_tap(run));
        if kept.len() < before {
            let what = "a router over TAP needs TAP devices";
            notes.push(format!("Runs with router_link=tap were left out: {what}."));
            wanting = Some(format!("{what}, and {why}"));
        }
    }
    if let Err(why) = &access.hosts {
        let before = kept.len();
        kept.retain(|run| !is_kernel(run) && !is_routed(run));
        if kept.len() < before {
            notes.push(
                "Runs on the kernel's stack, and by way of a router, were left out: they need hosts of their own.".into(),
            );
            wanting = Some(format!("the kernel's stack needs hosts of its own, and {why}"));
        }
    }
    if let Some(why) = wanting.filter(|_| kept.is_empty()) {
        return Err(Error::Refused(format!("nothing can run here: {why}")));
    }
    if kept.len() < planned {
        for (order, run) in kept.iter_mut().enumerate() {
            run.order = order as u32;
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_look() -> Vec<PlannedRun> {
        plan(&millstream_plan::builtin("first-look").unwrap(), 3)
    }

    #[test]
    fn without_hosts_the_kernel_is_left_out_and_that_is_said() {
        let access = Access::nothing("it is forbidden");
        let mut notes = Vec::new();
        let kept = possible(first_look(), &access, &mut notes).unwrap();
        assert_eq!(kept.len(), first_look().len() / 2);
        assert!(kept.iter().enumerate().all(|(at, run)| run.order as usize == at));
        assert_eq!(notes.len(), 1);
        let kernel = first_look().into_iter().filter(|r| r.configuration.stack == "kernel");
        let error = possible(kernel.collect(), &access, &mut notes).unwrap_err().to_string();
        assert!(error.contains("it is forbidden"), "{error}");
    }

    #[test]
    fn without_tap_devices_nothing_runs_over_the_impaired_path() {
        let access = Access { hosts: Ok(()), ..Access::nothing("no /dev/net/tun") };
        let judge = plan(&millstream_plan::builtin("judge-quick").unwrap(), 3);
        let mut notes = Vec::new();
        let error = possible(judge.clone(), &access, &mut notes).unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("no /dev/net/tun") && text.lines().count() == 1, "{text}");
        notes.clear();
        let (direct, mixed) = (first_look(), [first_look(), judge].concat());
        let kept = possible(mixed, &access, &mut notes).unwrap();
        assert_eq!((kept.len(), notes.len()), (direct.len(), 1), "{notes:?}");
        assert!(kept.iter().enumerate().all(|(at, run)| run.order as usize == at));
    }
}
