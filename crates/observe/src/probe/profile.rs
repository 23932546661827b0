//! The functions in which the CPUs are, by samples of the CPU clock.

use std::collections::HashMap;

use millstream_record::StackRecord;

use super::{limits, rise};
use crate::bpf::{Kernel, Sample};
use crate::names::{Asked, kernel_stacks};

/// Identity of a stack: process, kernel's part, program's part.
type Key = (u32, Vec<u64>, Vec<u64>);

#[derive(Default)]
pub(super) struct Profile {
    before: HashMap<Key, Vec<u64>>,
    now: Vec<Sample>,
    asked: Asked,
}

impl Profile {
    pub(super) fn begin(&mut self, kernel: &Kernel) {
        let samples = kernel.samples().unwrap_or_default();
        self.before = added(&samples);
    }

    /// Takes the samples so far, and asks for names of the stacks that are new, of processes that
    /// still live.
    pub(super) fn look(&mut self, kernel: &Kernel) {
        if let Ok(samples) = kernel.samples() {
            self.take(samples);
        }
    }

    fn take(&mut self, samples: Vec<Sample>) {
        self.asked.look(samples.iter().map(|one| (one.process, &one.user[..])));
        self.now = samples;
    }

    /// The stacks that were met since the beginning, the most first; `lost` are the samples that
    /// found no room, by CPU.
    pub(super) fn finish(self, cpus: &[u32], lost: Option<&Vec<f64>>) -> Vec<StackRecord> {
        let Self { before, now, asked } = self;
        let programs = asked.wait();
        let mut all: Vec<(Key, Vec<u64>)> = added(&now)
            .into_iter()
            .map(|(key, counts)| {
                let earlier = before.get(&key);
                let of = |cpu: u32| {
                    let at = |counts: &Vec<u64>| counts.get(cpu as usize).copied().unwrap_or(0);
                    rise(earlier.map_or(0, at), at(&counts))
                };
                (key, cpus.iter().map(|&cpu| of(cpu)).collect::<Vec<u64>>())
            })
            .filter(|(_, by_cpu)| by_cpu.iter().any(|count| *count > 0))
            .collect();
        all.sort_by_cached_key(|(_, by_cpu)| std::cmp::Reverse(by_cpu.iter().sum::<u64>()));
        let kept = all.iter().take(limits::PROFILE);
        let in_kernel = kernel_stacks(kept.map(|((_, kernel, _), _)| kernel.clone()).collect());
        let record = |(((process, _, user), by_cpu), kernel): ((Key, Vec<u64>), Vec<String>)| {
            let mut stack = vec![programs.process(process)];
            stack.extend(programs.functions(process, user).iter().rev().cloned());
            stack.extend(kernel.iter().rev().map(|name| format!("{name}_[k]")));
            StackRecord { stack, by_cpu }
        };
        // Stacks that become one are not asked for their names.
        let in_kernel = in_kernel.into_iter().chain(std::iter::repeat(vec![]));
        let mut all: Vec<StackRecord> = all.into_iter().zip(in_kernel).map(record).collect();
        StackRecord::keep_most(&mut all, limits::PROFILE);
        if let Some(lost) = lost.filter(|lost| lost.iter().any(|count| *count > 0.0)) {
            all.push(StackRecord::lost(lost.iter().map(|count| *count as u64).collect()));
        }
        all
    }
}

/// Samples by what they met, threads of a process together.
fn added(samples: &[Sample]) -> HashMap<Key, Vec<u64>> {
    let mut all: HashMap<Key, Vec<u64>> = HashMap::new();
    for one in samples {
        let key = (one.process, one.kernel.clone(), one.user.clone());
        let sums = all.entry(key).or_insert_with(|| vec![0; one.by_cpu.len()]);
        for (sum, count) in sums.iter_mut().zip(&one.by_cpu) {
            *sum += count;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Ask, Named};

    #[test]
    fn stacks_have_what_was_added_with_the_outermost_function_first() {
        let sample = |thread, kernel: &[u64], counts: [u64; 2]| Sample {
            process: 0,
            thread,
            kernel: kernel.to_vec(),
            user: vec![],
            by_cpu: counts.to_vec(),
        };
        let mut profile =
            Profile { before: added(&[sample(1, &[2, 1], [5, 0])]), ..Profile::default() };
        profile.now = vec![
            sample(1, &[2, 1], [6, 1]),
            sample(2, &[2, 1], [0, 4]),
            sample(3, &[3], [9, 0]),
            sample(3, &[], [0, 0]),
        ];
        let found = profile.finish(&[0, 1], Some(&vec![0.0, 3.0]));
        assert_eq!(found.len(), 3);
        assert!(found[2].is_lost() && found[2].by_cpu == [0, 3]);
        assert_eq!((found[0].count(), found[0].stack.last().unwrap().as_str()), (9, "0x3_[k]"));
        assert_eq!((&found[1].by_cpu[..], found[1].count()), (&[1, 5][..], 6));
        assert_eq!(found[1].stack[1..], ["0x1_[k]", "0x2_[k]"]);
    }

    #[test]
    fn stacks_beyond_the_limit_are_counted_by_process() {
        let sample = |process, kernel: u64, count| Sample {
            process,
            thread: 1,
            kernel: vec![kernel],
            user: vec![],
            by_cpu: vec![count],
        };
        let mut profile = Profile::default();
        // Processes that nobody has.
        let (a, b) = (u32::MAX - 1, u32::MAX);
        let each = (0..limits::PROFILE as u64).map(|kernel| sample(a, kernel, 9));
        profile
            .take(each.chain([sample(b, 1, 3), sample(b, 2, 4), sample(a, u64::MAX, 5)]).collect());
        let found = profile.finish(&[0], None);
        assert_eq!(found.len(), limits::PROFILE + 2);
        let [.., a, b] = found.as_slice() else { panic!() };
        assert_eq!(
            (a.stack[0].as_str(), a.count(), b.stack[0].as_str(), b.count()),
            ("process 4294967294", 5, "process 4294967295", 7)
        );
        assert_eq!(a.stack[1..], b.stack[1..]);
    }

    #[test]
    fn a_sample_does_not_wait_for_names_and_asks_for_each_once() {
        let (to_answer, asked) = std::sync::mpsc::channel();
        let ask: Ask = Box::new(move |process, stacks: Vec<Vec<u64>>| {
            let (back, answer) = std::sync::mpsc::channel();
            to_answer.send((process, stacks.clone(), back)).unwrap();
            Named::new(stacks, answer)
        });
        let mut profile = Profile { asked: Asked::by(ask), ..Profile::default() };
        let sample = |user: u64, count| Sample {
            process: u32::MAX,
            thread: 1,
            kernel: vec![],
            user: vec![user],
            by_cpu: vec![count],
        };
        profile.take(vec![sample(1, 5)]);
        profile.take(vec![sample(1, 6), sample(2, 3), sample(3, 1)]);
        // Only now is anything answered, and of the second question nothing.
        let (process, stacks, back) = asked.recv().unwrap();
        assert_eq!((process, stacks), (u32::MAX, vec![vec![1]]));
        back.send(vec![vec!["slow".to_owned()]]).unwrap();
        let (_, stacks, back) = asked.recv().unwrap();
        assert_eq!(stacks, [[2], [3]]);
        drop(back);
        let found = profile.finish(&[0], Some(&vec![0.0]));
        let names: Vec<&str> = found.iter().map(|one| one.stack.last().unwrap().as_str()).collect();
        assert_eq!(names, ["slow", "0x2", "0x3"]);
    }
}
