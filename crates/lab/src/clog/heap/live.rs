//! The allocation for each frame over minutes: packets come at a steady rate, of which the cured
//! router forwards all but what a ring of 256 loses while its thread pauses.

use std::io;

use super::{CLOG, PAUSE, PAUSE_EVERY, load, router, turns};
use crate::clog::live::{LastPart, Living};
use crate::clog::nic::Arrivals;
use crate::clog::threads::pin;

const RING: usize = 256;

pub(super) fn live(living: &Living<'_>) -> io::Result<f64> {
    pin(0)?;
    let per_s = load()?;
    let name = Some(living.name(&CLOG));
    let mut engine = router(living.clogged, Arrivals::Paced { per_s, ring: RING }, name)?;
    (living.say)(&format!("{per_s:.0} packets come each second, into a ring of {RING}"));
    living.tell_published(engine.inspect());
    let (mut last_part, mut next_pause) = (LastPart::of(living), PAUSE_EVERY);
    while !last_part.is_over(living, engine.stats().forwarded) {
        turns(&mut engine);
        if last_part.now(engine.stats().forwarded) >= next_pause {
            std::thread::sleep(PAUSE);
            next_pause = last_part.now(engine.stats().forwarded) + PAUSE_EVERY;
        }
    }
    Ok(last_part.rate(engine.stats().forwarded))
}
