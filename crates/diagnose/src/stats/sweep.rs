//! The shape of a sweep of one numeric factor: from where on a result is as good as it gets, and
//! whether it stays so.

/// A result counts as the best from this share of it on.
pub const KNEE_SHARE: f64 = 0.95;

/// The shape of a sweep whose result is better when higher.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sweep {
    /// The highest value, and its level.
    pub best: (f64, f64),
    /// The lowest level from which on no level in the middle has to be passed to reach
    /// [`KNEE_SHARE`] of the best: the first that reaches it.
    pub knee: f64,
    /// The lowest value from the knee on, as a share of the best, and its level.
    pub lowest_after: (f64, f64),
}

impl Sweep {
    /// Finds it in points of level and value, in order of level; `None` with fewer than three, or
    /// when nothing is above zero.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        if points.len() < 3 {
            return None;
        }
        let higher = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let &(level, best) = points.iter().max_by(higher)?;
        if best <= 0.0 {
            return None;
        }
        let at = points.iter().position(|&(_, value)| value >= KNEE_SHARE * best)?;
        let &(low_level, low) = points[at..].iter().min_by(higher)?;
        Some(Self {
            best: (best, level),
            knee: points[at].0,
            lowest_after: (low / best, low_level),
        })
    }

    /// Returns whether the result stays at [`KNEE_SHARE`] of the best from the knee on.
    pub fn holds(&self) -> bool {
        self.lowest_after.0 >= KNEE_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_that_stays_up_holds_and_one_that_falls_does_not() {
        let up = [(64.0, 10.0), (128.0, 20.0), (256.0, 39.0), (512.0, 40.0), (1024.0, 38.5)];
        let sweep = Sweep::of(&up).unwrap();
        assert_eq!((sweep.best, sweep.knee), ((40.0, 512.0), 256.0));
        assert_eq!(sweep.lowest_after, (38.5 / 40.0, 1024.0));
        assert!(sweep.holds());
        let down = [(64.0, 5.7), (128.0, 5.6), (256.0, 2.2)];
        let sweep = Sweep::of(&down).unwrap();
        assert_eq!((sweep.knee, sweep.holds()), (64.0, false));
    }

    #[test]
    fn two_points_are_no_sweep() {
        assert_eq!(Sweep::of(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(Sweep::of(&[(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)]), None);
    }
}
