//! The reader's end of a segment.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_foreign::lines;

use crate::error::Damage;
use crate::file::{SOCKET, open_regular};
use crate::layout::{HEADER_USED_BYTES, Header, SLOT_HEAD_BYTES, SlotHead, sum, u64_at};
use crate::record::Record;
use crate::schema::{Entry, Kind, parse};

/// Number of times that a snapshot is read which was changed meanwhile. Each slot is written every
/// 20 ms at most, and read in microseconds.
const TRIES: usize = 100;

/// Between tries, from the second on.
const PAUSE: Duration = Duration::from_micros(200);

/// A segment, open for reading. It can be read as long as this exists, also when its engine has
/// removed it. Or one that was kept ([`Kept`]): then it says what it said at that time.
#[derive(Debug)]
pub struct Segment {
    source: Source,
    path: PathBuf,
    header: Header,
}

/// Where a segment is read.
#[derive(Debug)]
enum Source {
    File(Published),
    Kept(Kept),
}

/// An engine at one time: what it published, and its answers.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its values.
    pub snapshot: Snapshot,
    /// Its answers, by question: their lines, or why there is none.
    pub answers: BTreeMap<String, Result<Vec<Record>, String>>,
}

/// The file of a segment.
#[derive(Debug)]
struct Published {
    file: File,
    header: Header,
    schema: Option<Known>,
    /// Memory for a slot.
    slot: Vec<u8>,
}

/// The schema read last.
#[derive(Debug)]
struct Known {
    bytes: usize,
    sum: u64,
    entries: Arc<[Entry]>,
}

/// All values of an engine at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its number.
    pub sequence: u64,
    /// When it was written, in ns since 1970.
    pub time_ns: u64,
    /// The same by the engine's clock, in ns since a little before the engine began.
    pub engine_ns: u64,
    entries: Arc<[Entry]>,
    values: Vec<u64>,
}

impl Segment {
    /// Opens the segment of an engine of user `uid`.
    ///
    /// # Errors
    /// When it is not there, is not a regular file of that user, or does not begin as a segment.
    pub fn open(path: &Path, uid: u32) -> Result<Self, Damage> {
        let file = open_regular(path, uid)?;
        let mut bytes = [0; HEADER_USED_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(short)?;
        let header = Header::decode(&bytes)?;
        let published = Published { file, header: header.clone(), schema: None, slot: Vec::new() };
        Ok(Self { source: Source::File(published), path: path.to_owned(), header })
    }

    /// Returns the segment of an engine that was kept in the file at `path`.
    pub(crate) fn of_kept(path: PathBuf, header: Header, kept: Kept) -> Self {
        Self { source: Source::Kept(kept), path, header }
    }

    /// Returns what was kept; `None` of an engine that is read where it publishes.
    pub fn kept(&self) -> Option<&Kept> {
        match &self.source {
            Source::File(_) => None,
            Source::Kept(kept) => Some(kept),
        }
    }

    /// Returns its header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the control socket of its engine.
    pub fn socket_path(&self) -> PathBuf {
        self.path.with_extension(SOCKET)
    }

    /// Returns true while its engine lives, which holds the file's lock as long as it does. (A
    /// child that the engine's process has forked, and that has not called `exec`, holds it, too.)
    /// One that was kept did.
    pub fn is_running(&self) -> bool {
        let Source::File(Published { file, .. }) = &self.source else { return true };
        match file.try_lock_shared() {
            Ok(()) => {
                let _ = file.unlock();
                false
            }
            Err(_) => true,
        }
    }

    /// Returns the newest snapshot, which is of one moment: one that was changed while it was read
    /// is read again, at most 100 times.
    ///
    /// # Errors
    /// [`Damage::Unsettled`] when it was changed each time, or neither slot has a whole snapshot;
    /// what is wrong with the file, otherwise.
    pub fn read(&mut self) -> Result<Snapshot, Damage> {
        match &mut self.source {
            Source::File(published) => published.read(),
            Source::Kept(kept) => Ok(kept.snapshot.clone()),
        }
    }
}

impl Published {
    fn read(&mut self) -> Result<Snapshot, Damage> {
        let (mut before, mut last) = (None, Damage::Unsettled);
        for attempt in 0..TRIES {
            if attempt > 1 {
                std::thread::sleep(PAUSE);
            }
            let sequences = self.sequences()?;
            match self.try_read(sequences) {
                Ok(Some(snapshot)) => return Ok(snapshot),
                Ok(None) => last = Damage::Unsettled,
                Err(Damage::Io(error)) => return Err(Damage::Io(error)),
                Err(damage) => last = damage,
            }
            // Nobody writes it.
            if attempt > 2 && before == Some(sequences) {
                break;
            }
            before = Some(sequences);
        }
        Err(last)
    }

    /// Returns the numbers of the snapshots in the two slots.
    fn sequences(&self) -> Result<[u64; 2], Damage> {
        let mut sequences = [0; 2];
        for (slot, sequence) in sequences.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            self.file.read_exact_at(&mut bytes, self.header.slot_at(slot as u64)).map_err(short)?;
            *sequence = u64_at(&bytes, 0);
        }
        Ok(sequences)
    }

    /// Returns the newest snapshot; `None` when it was changed meanwhile.
    fn try_read(&mut self, sequences: [u64; 2]) -> Result<Option<Snapshot>, Damage> {
        // The newest, or the one before where that is being written, or was when its engine was
        // killed.
        let newest_first = if sequences[0] >= sequences[1] { [0, 1] } else { [1, 0] };
        for slot in newest_first {
            if let Some(head) = self.read_slot(slot)? {
                return self.snapshot(slot, head);
            }
        }
        Ok(None)
    }

    /// Reads a slot's head and values; `None` when they were not written at once.
    fn read_slot(&mut self, slot: u64) -> Result<Option<SlotHead>, Damage> {
        let at = self.header.slot_at(slot);
        self.slot.resize(SLOT_HEAD_BYTES, 0);
        self.file.read_exact_at(&mut self.slot, at).map_err(short)?;
        let Ok(head) = SlotHead::decode(&self.header, &self.slot) else { return Ok(None) };
        self.slot.resize(SLOT_HEAD_BYTES + 8 * head.values, 0);
        self.file.read_exact_at(&mut self.slot, at).map_err(short)?;
        // The head that was read at first may have been that of another snapshot.
        let same = SlotHead::decode(&self.header, &self.slot).is_ok_and(|again| again == head);
        let is_whole = same && head.sequence % 2 == slot && head.sequence != 0;
        Ok((is_whole && SlotHead::is_whole(&self.slot)).then_some(head))
    }

    /// Returns the snapshot that was read, with its schema; `None` when the schema was replaced
    /// meanwhile.
    fn snapshot(&mut self, slot: u64, head: SlotHead) -> Result<Option<Snapshot>, Damage> {
        let is_known =
            |known: &&Known| (known.bytes, known.sum) == (head.schema_bytes, head.schema_sum);
        let entries = match self.schema.as_ref().filter(is_known) {
            Some(known) => Arc::clone(&known.entries),
            None => {
                let Some(entries) = self.read_schema(slot, head)? else { return Ok(None) };
                let (bytes, sum) = (head.schema_bytes, head.schema_sum);
                self.schema = Some(Known { bytes, sum, entries: Arc::clone(&entries) });
                entries
            }
        };
        let last = entries.last().map_or(0, |entry| entry.at + entry.width);
        if last > head.values {
            return Err(Damage::Broken("its schema is of other values"));
        }
        let (words, _) = self.slot[SLOT_HEAD_BYTES..].as_chunks::<8>();
        Ok(Some(Snapshot {
            sequence: head.sequence,
            time_ns: head.time_ns,
            engine_ns: head.engine_ns,
            entries,
            values: words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
        }))
    }

    fn read_schema(&self, slot: u64, head: SlotHead) -> Result<Option<Arc<[Entry]>>, Damage> {
        let behind = (SLOT_HEAD_BYTES + 8 * self.header.capacity) as u64;
        let mut text = vec![0; head.schema_bytes];
        self.file.read_exact_at(&mut text, self.header.slot_at(slot) + behind).map_err(short)?;
        if sum(0, &text) != head.schema_sum {
            return Ok(None);
        }
        Ok(Some(parse(&lines(&text), head.values)?.into()))
    }
}

/// Returns the damage that an error means: a file that ends too soon is cut short; everything else
/// is the system's answer.
fn short(error: io::Error) -> Damage {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Damage::Broken("it is cut short"),
        _ => Damage::Io(error),
    }
}

impl Snapshot {
    /// Returns a snapshot of `values`, which this schema describes.
    pub(crate) fn of(times: [u64; 3], schema: &str, values: Vec<u64>) -> Result<Self, Damage> {
        let [sequence, time_ns, engine_ns] = times;
        let entries = parse(schema, values.len())?.into();
        Ok(Self { sequence, time_ns, engine_ns, entries, values })
    }

    /// Returns all entries in the engine's order, each with its values (one; of a histogram one for
    /// each power of two).
    pub fn iter(&self) -> impl Iterator<Item = (&Entry, &[u64])> {
        let of = |entry: &Entry| &self.values[entry.at..entry.at + entry.width];
        self.entries.iter().map(move |entry| (entry, of(entry)))
    }

    /// Returns all entries of a name, with their values.
    pub fn named(&self, name: &str) -> impl Iterator<Item = (&Entry, &[u64])> {
        self.iter().filter(move |(entry, _)| entry.name == name)
    }

    /// Returns the sum of the counters or gauges of a name; `None` when the engine has none.
    pub fn total(&self, name: &str) -> Option<u64> {
        let found = self.named(name).filter(|(entry, _)| entry.kind != Kind::Histogram);
        found.map(|(_, values)| values[0]).reduce(u64::wrapping_add)
    }

    /// Returns the value of this name with this label; `None` when there is none.
    pub fn labelled(&self, name: &str, key: &str, value: &str) -> Option<u64> {
        let mut found = self.named(name).filter(|(entry, _)| entry.label(key) == Some(value));
        found.next().map(|(_, values)| values[0])
    }
}

#[cfg(test)]
mod tests;
