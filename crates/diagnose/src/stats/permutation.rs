//! Finds whether one of several levels is below the others, of rounds in which each level had its
//! turn: by exchanging the values of a round, which changes nothing but chance where no level
//! differs.

use super::{Bootstrap, Interval, RUNS_FOR_A_CLAIM, Rng, median};

/// Random exchanges of all rounds. The least p that they can give is 1 / 2,001.
const EXCHANGES: usize = 2_000;

/// A level is said to be below the others under this p.
const P_SHOWN: f64 = 0.05;

/// The distance of the lowest level from the best, and how often chance alone makes it as low.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lowest {
    /// The level whose median is the least, by its place in a round.
    pub level: usize,
    /// Its median as a share of the greatest.
    pub share: f64,
    /// Its interval, with whole rounds drawn again.
    pub interval: Interval,
    /// Share of the exchanges, and of what was seen, that have a least share as low or lower. The
    /// lowest of all levels is looked at on both sides, so having looked at many is counted in.
    pub p: f64,
    /// Rounds.
    pub rounds: usize,
}

impl Lowest {
    /// Finds it in rounds with the value of each level; the same seed gives the same answer. `None`
    /// with fewer than [`RUNS_FOR_A_CLAIM`] rounds or two levels, with rounds of unequal length, or
    /// when nothing is above zero.
    pub fn of(rounds: &[Vec<f64>], seed: u64) -> Option<Self> {
        let levels = rounds.first()?.len();
        let is_whole = |round: &Vec<f64>| round.len() == levels;
        if rounds.len() < RUNS_FOR_A_CLAIM || levels < 2 || !rounds.iter().all(is_whole) {
            return None;
        }
        let (level, share) = least(rounds)?;
        let bootstrap = Bootstrap { resamples: EXCHANGES, seed, ..Bootstrap::default() };
        let again = |drawn: &[Vec<f64>]| least(drawn).map_or(f64::NAN, |(_, share)| share);
        let interval = bootstrap.interval_of_rounds(rounds, again)?;
        Some(Self { level, share, interval, p: chance(rounds, share, seed), rounds: rounds.len() })
    }

    /// Returns whether the lowest level is shown to be below the others.
    pub fn is_shown(&self) -> bool {
        self.p < P_SHOWN
    }
}

/// Returns the level with the least median, and that as a share of the greatest.
fn least(rounds: &[Vec<f64>]) -> Option<(usize, f64)> {
    let levels = 0..rounds.first()?.len();
    let of_level =
        |level: usize| median(&rounds.iter().map(|round| round[level]).collect::<Vec<_>>());
    let medians: Vec<f64> = levels.filter_map(of_level).collect();
    let (level, least) = medians.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
    let greatest = medians.iter().max_by(|a, b| a.total_cmp(b))?;
    (*greatest > 0.0).then(|| (level, least / greatest))
}

/// Returns how often exchanging the values within each round gives a least share of at most
/// `share`.
fn chance(rounds: &[Vec<f64>], share: f64, seed: u64) -> f64 {
    let mut rng = Rng::new(seed);
    let mut exchanged = rounds.to_vec();
    let as_low = (0..EXCHANGES).filter(|_| {
        exchanged.iter_mut().for_each(|round| rng.shuffle(round));
        least(&exchanged).is_some_and(|(_, by_chance)| by_chance <= share)
    });
    (as_low.count() + 1) as f64 / (EXCHANGES + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of six levels with noise of each value and of each round; the third level has `third`
    /// of the rest.
    fn rounds(count: usize, third: f64, seed: u64) -> Vec<Vec<f64>> {
        let mut rng = Rng::new(seed);
        let mut noise = |width: f64| 1.0 + width * (rng.below(2_001) as f64 / 1_000.0 - 1.0);
        let mut round = || {
            let whole = 50.0 * noise(0.2);
            (0..6).map(|level| whole * noise(0.1) * if level == 2 { third } else { 1.0 }).collect()
        };
        (0..count).map(|_| round()).collect()
    }

    #[test]
    fn a_level_that_is_slower_is_shown() {
        let found = Lowest::of(&rounds(20, 0.8, 1), 7).unwrap();
        assert!(found.is_shown() && found.p < 0.01, "{found:?}");
        let Interval { low, high } = found.interval;
        assert!(low <= found.share && found.share <= high && high < 0.95, "{found:?}");
        assert_eq!((found.rounds, found.level), (20, 2));
        assert_eq!(Lowest::of(&rounds(20, 0.8, 1), 7), Some(found), "seeded");
    }

    #[test]
    fn noise_is_shown_no_more_often_than_chance_says() {
        let shown =
            (0..60).filter(|&seed| Lowest::of(&rounds(8, 1.0, seed), seed).unwrap().is_shown());
        let shown = shown.count();
        assert!(shown <= 9, "{shown} of 60");
    }

    #[test]
    fn equal_values_show_nothing_and_few_rounds_say_nothing() {
        let equal = Lowest::of(&vec![vec![3.0; 5]; 6], 0).unwrap();
        assert_eq!((equal.share, equal.p, equal.is_shown()), (1.0, 1.0, false));
        assert_eq!(Lowest::of(&rounds(RUNS_FOR_A_CLAIM - 1, 0.5, 1), 0), None);
        assert_eq!(Lowest::of(&vec![vec![1.0]; 9], 0), None);
        assert_eq!(Lowest::of(&[], 0), None);
        assert_eq!(Lowest::of(&vec![vec![0.0; 3]; 9], 0), None);
        let mut ragged = rounds(9, 1.0, 1);
        ragged[4].pop();
        assert_eq!(Lowest::of(&ragged, 0), None);
    }
}
