//! How the kernel polls the device, and lays out what it sends to it, as the traffic asks for it.
//!
//! A thread of the kernel's that merges what it receives makes bulk twice as fast, and costs a
//! packet that comes alone a thread's wake-up. So it works while data flow in bulk, and not before
//! and after.
//!
//! Where the kernel cuts and sums what it sends to us, it reads every byte anyway. As long as it
//! may leave packets in pieces, each is a head and one or two parts of pages that it shares with
//! its neighbours, and our read checks, gathers and gives back every one of them. Copied into one
//! piece while it is summed, a packet of a stream costs us a ninth less, and its sender as much as
//! before; one of a few bytes costs its sender more. So pieces are off while data flow in bulk
//! (docs/notes/tap-plain.md).

use std::time::Duration;

use super::Napi;
use crate::LinkError;
use crate::netdev::{NapiControl, ScatterGather};

/// Batches of bulk, with no others between, before the thread takes over: each counts two, and one
/// of another kind takes one away.
const BULK_BATCHES: u32 = 16;

/// Batches in a row without bulk before it rests again.
const CALM_BATCHES: u32 = 4096;

/// The polling of a device: dropped, it is as it was found.
#[derive(Debug)]
pub(super) struct Polling {
    control: NapiControl,
    /// How, while data flow in bulk.
    napi: Napi,
    /// The scatter-gather of a device whose packets the kernel cuts and sums.
    pieces: Option<ScatterGather>,
    is_bulk: bool,
    bulk: u32,
    calm: u32,
}

impl Polling {
    /// As data flow in bulk (`is_bulk`), or as they do not; packets lie in one piece while they do,
    /// if `pieces` can be had.
    ///
    /// # Errors
    /// See [`NapiControl::set`].
    pub fn new(
        control: NapiControl,
        napi: Napi,
        pieces: Option<ScatterGather>,
        is_bulk: bool,
    ) -> Result<Self, LinkError> {
        let mut polling = Self { control, napi, pieces, is_bulk, bulk: 0, calm: 0 };
        polling.change(is_bulk).map(|()| polling)
    }

    /// Has the device's queues that came since polled like the others.
    ///
    /// # Errors
    /// See [`NapiControl::set`].
    pub fn set(&self) -> Result<(), LinkError> {
        match self.is_bulk {
            true => self.control.set(self.napi.gro_flush, self.napi.threaded),
            false => self.control.set(Duration::ZERO, false),
        }
    }

    /// A batch went by, in either direction, that was bulk or not.
    ///
    /// # Errors
    /// When the polling was to be changed, and was not.
    #[inline]
    pub fn saw(&mut self, is_bulk: bool) -> Result<(), LinkError> {
        if is_bulk {
            self.calm = 0;
            self.bulk = self.bulk.saturating_add(2);
        } else {
            self.calm = self.calm.saturating_add(1);
            self.bulk = self.bulk.saturating_sub(1);
        }
        let is_bulk = match self.is_bulk {
            true => self.calm < CALM_BATCHES,
            false => self.bulk >= 2 * BULK_BATCHES,
        };
        if is_bulk == self.is_bulk { Ok(()) } else { self.change(is_bulk) }
    }

    #[cold]
    fn change(&mut self, is_bulk: bool) -> Result<(), LinkError> {
        (self.is_bulk, self.bulk, self.calm) = (is_bulk, 0, 0);
        if let Some(pieces) = &mut self.pieces {
            // Only the cost of packets depends on it.
            let _ = pieces.lay_whole(is_bulk);
        }
        self.set()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdev::{Namespace, setting};
    use crate::testing::permitted;
    use crate::{Link, NapiMode, Tap, TapConfig};

    /// A device without offloads that is polled as with bulk.
    fn config(namespace: &Namespace) -> TapConfig {
        TapConfig {
            netns: Some(namespace.path()),
            vnet_hdr: false,
            napi: NapiMode::On(Napi::default()),
            ..TapConfig::default()
        }
    }

    #[test]
    fn a_queue_that_ends_leaves_the_others_polled_as_they_were() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let opened = Tap::open_queues(&config(&namespace), 3);
        let Some(mut queues) = permitted(opened) else { return };
        if !queues[0].notes().is_empty() {
            return println!("skipped: {:?}", queues[0].notes());
        }
        let name = queues[0].name().to_owned();
        let flush = || namespace.run(|| setting(&name, "gro_flush_timeout")).unwrap().unwrap();
        let set = Napi::default().gro_flush.as_nanos().to_string();
        for _ in 0..2 {
            queues.remove(0);
            assert_eq!(flush(), set);
        }
    }

    #[test]
    fn a_thread_polls_while_data_flow_in_bulk_and_rests_when_they_do_not() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let Some(mut tap) = permitted(Tap::open(&config(&namespace))) else { return };
        // The device is as it came.
        tap.polled = None;
        if !tap.notes().is_empty() {
            return println!("skipped: {:?}", tap.notes());
        }
        let name = tap.name();
        let set = |file| namespace.run(|| setting(name, file)).unwrap().unwrap();
        let control = namespace.run(|| NapiControl::open(name)).unwrap().unwrap();
        let pieces = namespace.run(|| ScatterGather::of(name)).unwrap().unwrap();
        let in_pieces = || namespace.run(|| ScatterGather::of(name)).unwrap().unwrap().found();
        let mut polling = Polling::new(control, Napi::default(), Some(pieces), false).unwrap();
        assert_eq!((set("threaded"), set("gro_flush_timeout")), ("0".into(), "0".into()));
        for _ in 0..10_000 {
            // A request, its answer, a large answer now and then.
            polling.saw(true).unwrap();
            polling.saw(false).unwrap();
            polling.saw(false).unwrap();
        }
        assert_eq!((set("threaded"), in_pieces()), ("0".into(), true));
        for _ in 0..2 * BULK_BATCHES {
            polling.saw(true).unwrap();
            polling.saw(false).unwrap();
        }
        assert_eq!((set("threaded"), set("gro_flush_timeout")), ("1".into(), "500000".into()));
        assert!(!in_pieces());
        for _ in 0..CALM_BATCHES {
            polling.saw(false).unwrap();
        }
        assert_eq!((set("threaded"), set("gro_flush_timeout")), ("0".into(), "0".into()));
        assert!(in_pieces());
    }
}
