//! A check that the kernel gives packets back to the CPUs of an experiment, before its first run
//! and after each.

use millstream_observe::environment::{ALL_GIVEN_BACK, GIVEN_BACK, capture_give_back};
use millstream_record::{Environment, RunRecord};

use super::distance::Cpus;

/// Records the fact before the first run.
pub(super) fn at_start(environment: &mut Environment, cpus: Option<Cpus>) {
    if let Some(cpus) = cpus {
        capture_give_back(environment, cpus);
    }
}

/// Records the fact after a run. CPUs to which packets are not given back stay so: a run that ends
/// without such a CPU had none.
pub(super) fn after(record: &mut RunRecord, cpus: Option<Cpus>) {
    at_start(&mut record.environment, cpus);
    note(record);
}

fn note(record: &mut RunRecord) {
    let Some(found) = record.environment.get(GIVEN_BACK) else { return };
    if found != ALL_GIVEN_BACK {
        record.notes.push(format!(
            "Packets that were read are not given back to the CPU that allocated them ({GIVEN_BACK}: {found}): \
             sending over TAP is some 6 % slower so. docs/experiments.md, “Packets that are not given back”, says how \
             to mend it."
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_says_only_what_is_not_in_order() {
        let mut record = RunRecord::default();
        note(&mut record);
        record.environment.set(GIVEN_BACK, ALL_GIVEN_BACK);
        note(&mut record);
        assert_eq!(record.notes, [""; 0]);
        record.environment.set(GIVEN_BACK, "not to CPU 0");
        note(&mut record);
        assert_eq!(record.notes.len(), 1);
        assert!(record.notes[0].contains("cpus.packets_given_back: not to CPU 0"));
    }

    #[test]
    fn without_two_cpus_nothing_is_looked_at() {
        let mut record = RunRecord::default();
        after(&mut record, None);
        assert_eq!(record, RunRecord::default());
    }
}
