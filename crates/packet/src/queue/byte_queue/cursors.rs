//! Where readers of a byte queue left off.

use crate::memory::Entry;

/// Places remembered. A sender in recovery goes on at three or four: new data, the hole it is
/// filling, a probe at the end.
const CURSORS: usize = 4;

/// An entry of the queue, and the position in the stream of its first byte.
#[derive(Clone, Copy)]
struct Cursor {
    entry: Entry,
    at: u64,
}

/// A survey that others have asked for more often than this, without its going on, has lost its
/// place.
const SURVEY_PATIENCE: u8 = 64;

/// Where somebody left off who only looks at the queue.
pub(crate) struct Survey {
    by: u64,
    cursor: Option<Cursor>,
    /// Requests of others since it went on.
    passed_over: u8,
}

/// The last few places in a queue, most recently used first. Each is an entry inside the queue:
/// whatever leaves it is forgotten. A survey has a place of its own, and takes none from readers.
pub(crate) struct Cursors {
    read: [Option<Cursor>; CURSORS],
    survey: Option<Box<Survey>>,
}

/// The end of a walk, and which cursor it had started from.
pub(crate) struct Walked {
    pub(crate) used: Option<usize>,
    pub(crate) entry: Entry,
    pub(crate) at: u64,
}

impl Cursors {
    pub(crate) const fn new() -> Self {
        Self { read: [None; CURSORS], survey: None }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Returns the cursor nearest before or at `offset` from `front`: which, its entry and offset.
    #[inline]
    pub(crate) fn nearest(&self, front: u64, offset: usize) -> Option<(usize, Entry, usize)> {
        let mut best = None;
        for (which, cursor) in self.read.iter().enumerate() {
            let Some(Cursor { entry, at }) = *cursor else { break };
            // Never before the front: entries that left are forgotten, the first one is trimmed.
            let start = at.wrapping_sub(front) as usize;
            if start <= offset && best.is_none_or(|(_, _, before)| start > before) {
                best = Some((which, entry, start));
            }
        }
        best
    }

    /// Returns true if the survey `by` somebody may go on. There is one at a time, or two would
    /// look for their places for ever; one that does not go on gives way.
    pub(crate) fn begin_survey(&mut self, by: u64) -> bool {
        let Some(survey) = &mut self.survey else {
            self.survey = Some(Box::new(Survey { by, cursor: None, passed_over: 0 }));
            return true;
        };
        if survey.by != by && survey.passed_over < SURVEY_PATIENCE {
            survey.passed_over += 1;
            return false;
        }
        (survey.by, survey.passed_over) = (by, 0);
        true
    }

    /// Returns the place nearest before or at `offset` from `front`, of the survey or of readers.
    pub(crate) fn nearest_to_survey(&self, front: u64, offset: usize) -> Option<(Entry, usize)> {
        let read = self.nearest(front, offset).map(|(_, entry, start)| (entry, start));
        let own = self.survey.as_ref().and_then(|survey| survey.cursor);
        let own = own.map(|Cursor { entry, at }| (entry, at.wrapping_sub(front) as usize));
        let own = own.filter(|(_, start)| *start <= offset);
        read.into_iter().chain(own).max_by_key(|(_, start)| *start)
    }

    /// Remembers how far the survey has come.
    pub(crate) fn keep_survey(&mut self, entry: Entry, at: u64) {
        if let Some(survey) = &mut self.survey {
            survey.cursor = Some(Cursor { entry, at });
        }
    }

    /// Ends the survey.
    pub(crate) fn end_survey(&mut self) {
        self.survey = None;
    }

    /// Takes the survey out, for a fault that takes the whole queue and puts the rest back.
    #[cfg(feature = "clogs")]
    pub(crate) fn take_survey(&mut self) -> Option<Box<Survey>> {
        self.survey.take()
    }

    /// Puts the survey back into a queue that begins at `front` now: its place is forgotten where
    /// that has left.
    #[cfg(feature = "clogs")]
    pub(crate) fn put_survey(&mut self, survey: Option<Box<Survey>>, front: u64) {
        self.survey = survey.map(|mut survey| {
            let is_inside = |cursor: &Cursor| cursor.at.wrapping_sub(front) <= i64::MAX as u64;
            survey.cursor = survey.cursor.filter(is_inside);
            survey
        });
    }

    /// Remembers where a walk ended, in the place of the cursor that it started from; a walk from
    /// the front takes the place of the one not used for longest.
    #[inline]
    pub(crate) fn keep(&mut self, walked: Option<Walked>) {
        let Some(Walked { used, entry, at }) = walked else { return };
        let mut gone = used.unwrap_or(CURSORS - 1).min(CURSORS - 1);
        while gone != 0 {
            self.read[gone] = self.read[gone - 1];
            gone -= 1;
        }
        self.read[0] = Some(Cursor { entry, at });
    }

    /// Forgets an entry, which leaves the queue.
    #[inline]
    pub(crate) fn forget(&mut self, entry: Entry) {
        if self.read[0].is_some() || self.survey.is_some() {
            self.forget_some(entry);
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_some(&mut self, entry: Entry) {
        if let Some(survey) = &mut self.survey {
            survey.cursor = survey.cursor.filter(|cursor| cursor.entry != entry);
        }
        let mut kept = 0;
        for i in 0..CURSORS {
            let Some(cursor) = self.read[i] else { break };
            if cursor.entry == entry {
                self.read[i] = None;
            } else {
                self.read.swap(i, kept);
                kept += 1;
            }
        }
    }

    /// Moves the places, when the first entry has lost its first `n` bytes.
    #[inline]
    pub(crate) fn trim(&mut self, first: Entry, n: usize) {
        let survey = self.survey.iter_mut().filter_map(|survey| survey.cursor.as_mut());
        for cursor in self.read.iter_mut().flatten().chain(survey) {
            if cursor.entry == first {
                cursor.at = cursor.at.wrapping_add(n as u64);
            }
        }
    }
}
