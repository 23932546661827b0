//! Makes a failing schedule small: what can be left out or set to its usual value without changing
//! the failure is.

use super::plan::*;
use crate::Config;

/// Runs tried at most.
const TRIES: u32 = 20_000;

/// The smallest schedule found for which `fails` holds, as it does for `schedule`.
pub fn minimise(schedule: Schedule, fails: impl Fn(&Schedule) -> bool) -> Schedule {
    let mut search = Search { best: schedule, fails: &fails, tries: 0 };
    loop {
        let before = search.size();
        search.drop_dooms();
        search.drop_actions();
        search.usual_way();
        search.usual_config();
        search.smaller_numbers();
        if search.size() >= before || search.tries >= TRIES {
            return search.best;
        }
    }
}

struct Search<'a> {
    best: Schedule,
    fails: &'a dyn Fn(&Schedule) -> bool,
    tries: u32,
}

impl Search<'_> {
    /// Characters of its text: what a reader has to read.
    fn size(&self) -> usize {
        super::text::write(&self.best).len()
    }

    fn attempt(&mut self, change: impl FnOnce(&mut Schedule)) -> bool {
        let mut candidate = self.best.clone();
        change(&mut candidate);
        self.tries += 1;
        if self.tries > TRIES || !(self.fails)(&candidate) {
            return false;
        }
        self.best = candidate;
        true
    }

    /// Delta debugging: leaves out halves, then quarters, ... then single ones (Zeller, 2002).
    fn drop_from<T>(&mut self, list: impl Fn(&mut Schedule) -> &mut Vec<T>) {
        let mut size = list(&mut self.best.clone()).len();
        while size > 0 {
            let mut from = 0;
            while from < list(&mut self.best).len() {
                let gone = self.attempt(|candidate| {
                    let list = list(candidate);
                    let to = (from + size).min(list.len());
                    list.drain(from..to);
                });
                if !gone {
                    from += size;
                }
            }
            size /= 2;
        }
    }

    fn drop_dooms(&mut self) {
        self.drop_from(|schedule| &mut schedule.dooms);
    }

    fn drop_actions(&mut self) {
        self.drop_from(|schedule| &mut schedule.actions);
    }

    fn usual_way(&mut self) {
        let usual = Way::default();
        self.attempt(|s| s.way = Way { delay_us: s.way.delay_us, ..usual });
        self.attempt(|s| s.way.delay_us = usual.delay_us);
        self.attempt(|s| s.way.kbit_per_s = 0);
        self.attempt(|s| s.way.hole_bytes = 0);
        self.attempt(|s| s.way.super_bytes = 0);
        self.attempt(|s| s.way.merge = false);
        self.attempt(|s| s.way.view = false);
        self.attempt(|s| s.way.v6 = false);
        self.attempt(|s| s.way.tick_us = 0);
        self.attempt(|s| s.way.batch_us = 0);
        self.attempt(|s| s.open = Open::Listen);
    }

    fn usual_config(&mut self) {
        for end in 0..2 {
            self.attempt(|s| s.ends[end].config = Config::default());
            self.attempt(|s| s.ends[end].eager = true);
            self.attempt(|s| s.ends[end].isn = 1000);
            for parameter in PARAMETERS {
                let usual = (parameter.get)(&Config::default());
                if (parameter.get)(&self.best.ends[end].config) != usual {
                    self.attempt(|s| (parameter.set)(&mut s.ends[end].config, usual));
                }
            }
        }
    }

    fn smaller_numbers(&mut self) {
        for index in 0..self.best.actions.len() {
            while self.best.actions[index].at_us > 0
                && self.attempt(|s| {
                    s.actions[index].at_us /= 2;
                    s.actions.sort_by_key(|action| action.at_us);
                })
            {}
            while let Deed::Write(n) | Deed::Read(n) = self.best.actions[index].deed
                && n > 1
                && self.attempt(|s| match &mut s.actions[index].deed {
                    Deed::Write(n) | Deed::Read(n) => *n /= 2,
                    _ => {}
                })
            {}
        }
        for index in 0..self.best.dooms.len() {
            self.attempt(|s| s.dooms[index].fate = Fate::Lost);
            while let Fate::Late(us) | Fate::Twice(us) = self.best.dooms[index].fate
                && us > 1
                && self.attempt(|s| match &mut s.dooms[index].fate {
                    Fate::Late(us) | Fate::Twice(us) => *us /= 2,
                    _ => {}
                })
            {}
        }
    }
}
