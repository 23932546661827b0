//! The subjects of investigations: commands and the laboratory's workloads.

use millstream_diagnose::causes::Force;
use millstream_observe::probe::kernel;
use millstream_plan::{Definition, FACTORS, Factor, Overrides};
use millstream_record::error::Error;
use millstream_record::{ExperimentRecord, RunRecord};
use millstream_testbed::priority;

/// The level of a factor that leaves it as it was in the observed runs.
pub const KEEP: &str = "keep";

/// Something that can be run again and again, and whose causes can be forced.
pub trait Subject {
    /// Returns its name, as the user would say it.
    fn name(&self) -> String;
    /// The key of its result, and whether more of it is better.
    fn result(&self) -> (String, bool);
    /// Equal runs with everything left as it comes, and one more that does not count, beside which
    /// the budget of its ends is taken.
    fn observe(&mut self, runs: u32) -> Result<Vec<RunRecord>, Error>;
    /// Refuses a factor that cannot be set here, with the reason.
    fn may_force(&self, force: &Force) -> Result<(), String>;
    /// Makes as many runs of each level, in blocks of random order. Each run has the level
    /// among its factors.
    fn force(&mut self, force: &Force, runs: u32) -> Result<Vec<RunRecord>, Error>;
    /// Ids of the experiments that hold the runs so far.
    fn experiments(&self) -> Vec<String>;
    /// Names of the ends in whose network namespaces a factor is set; none where it is set here.
    fn set_at(&self, _force: &Force) -> Vec<String> {
        vec![]
    }
}

/// Carries out an experiment and keeps it.
pub type WorkloadRuns<'a> =
    dyn FnMut(&Definition) -> Result<(ExperimentRecord, Vec<RunRecord>), Error> + 'a;

/// An experiment of the laboratory's own workloads: one configuration, whose placement is free
/// unless it is forced.
pub struct WorkloadSubject<'a> {
    definition: Definition,
    is_one_machine: bool,
    run: &'a mut WorkloadRuns<'a>,
    experiments: Vec<String>,
}

impl<'a> WorkloadSubject<'a> {
    /// Returns the subject of `definition`, which must have one workload, one stack and one level
    /// of each factor. `is_one_machine` says whether both ends are of one kernel.
    pub fn new(
        definition: Definition,
        is_one_machine: bool,
        run: &'a mut WorkloadRuns<'a>,
    ) -> Result<Self, Error> {
        let refuse = |why: String| Error::Refused(format!("{}: {why}", definition.name));
        if definition.workloads.len() != 1 || definition.stacks.len() != 1 {
            return Err(refuse("an investigation has one workload and one stack".to_owned()));
        }
        let own = definition.own_factors.values().flatten();
        let several = definition.factors.iter().chain(own).find(|(_, levels)| levels.len() != 1);
        if let Some((name, _)) = several {
            return Err(refuse(format!("factor {name}: an investigation has one level of each")));
        }
        Ok(Self { definition, is_one_machine, run, experiments: vec![] })
    }

    /// The level of a factor in the observed runs.
    fn observed_level(&self, factor: &str) -> String {
        let workload = self.definition.workloads[0];
        let of = |factor| self.definition.levels(workload, factor).into_iter().next();
        Factor::of(factor).and_then(of).unwrap_or_default()
    }

    fn carry_out(
        &mut self,
        runs: u32,
        factor: &str,
        levels: &[String],
        is_observed: bool,
    ) -> Result<Vec<RunRecord>, Error> {
        let mut definition = self.definition.clone();
        definition.budget = is_observed && kernel().is_ok();
        definition.apply(&Overrides {
            repeats: Some(runs.saturating_add(u32::from(definition.budget))),
            // The host's moving of CPUs is one of the things to find.
            steady_cpus: Some(false),
            set: vec![(factor.to_owned(), levels.to_vec())],
            ..Overrides::default()
        })?;
        let (experiment, runs) = (self.run)(&definition)?;
        self.experiments.push(experiment.id);
        Ok(runs)
    }
}

impl Subject for WorkloadSubject<'_> {
    fn name(&self) -> String {
        let workload = self.definition.workloads[0].name();
        format!("{workload} over {}", self.definition.stacks[0])
    }

    fn result(&self) -> (String, bool) {
        let key = self.definition.workloads[0].result();
        (key.to_owned(), true)
    }

    fn observe(&mut self, runs: u32) -> Result<Vec<RunRecord>, Error> {
        self.carry_out(runs, "placement", &["free".to_owned()], true)
    }

    fn may_force(&self, force: &Force) -> Result<(), String> {
        if force.factor == "placement" && !self.is_one_machine {
            return Err("the far end is on another machine".to_owned());
        }
        if force.factor == "priority" {
            priority::may_raise(false)?;
        }
        let workload = self.definition.workloads[0];
        let is_known = |factor: &&millstream_plan::Factor| {
            factor.name == force.factor && factor.is_of(workload)
        };
        match FACTORS.iter().find(is_known) {
            Some(_) => Ok(()),
            None => Err(format!("{} has no factor {}", workload.name(), force.factor)),
        }
    }

    fn force(&mut self, force: &Force, runs: u32) -> Result<Vec<RunRecord>, Error> {
        let kept = self.observed_level(&force.factor);
        let levels: Vec<String> = force
            .levels
            .iter()
            .map(|level| if level == KEEP { kept.clone() } else { level.clone() })
            .collect();
        if levels.first() == levels.last() {
            let why = format!("{} was {kept} in the observed runs, too", force.factor);
            return Err(Error::Refused(why));
        }
        let mut found = self.carry_out(runs, &force.factor, &levels, false)?;
        // Set by the definition, and so the same for all: known to the caller as the level of each
        // run.
        for run in &mut found {
            let level = run.factors.entry(force.factor.clone()).or_insert(levels[0].clone());
            if let Some(at) = levels.iter().position(|one| one == level) {
                level.clone_from(&force.levels[at]);
            }
        }
        Ok(found)
    }

    fn experiments(&self) -> Vec<String> {
        self.experiments.clone()
    }
}
