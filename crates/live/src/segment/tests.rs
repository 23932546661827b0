//! Both ends, and what is done to the file between them.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use crate::layout::{HEADER_BYTES, SLOT_BYTES};
use crate::{Damage, Directory, Kind, LiveError, SchemaText, Segment, Writer};

/// A directory that is removed with all that is in it.
struct Temporary(Directory);

impl Temporary {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = format!("millstream-live-{}-{number}", std::process::id());
        Self(Directory::at(std::env::temp_dir().join(path), uid()).expect("a directory"))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.path());
    }
}

fn uid() -> u32 {
    fs::metadata("/proc/self").expect("itself").uid()
}

/// A schema of so many counters.
fn counters(count: usize) -> SchemaText {
    let mut schema = SchemaText::default();
    for at in 0..count {
        schema.line(Kind::Counter, "count", 1, &format!("c{at}"), &[]);
    }
    schema
}

fn writer(directory: &Directory, values: usize) -> Writer {
    let mut writer = Writer::create(directory, "test", Duration::ZERO).expect("a segment");
    writer.set_schema(counters(values)).expect("room");
    writer
}

/// Publishes a snapshot all of whose values are its number.
fn publish(writer: &mut Writer, values: usize) {
    writer.begin();
    let number = writer.sequence() + 1;
    (0..values).for_each(|_| writer.push(number));
    writer.publish(number).expect("published");
}

#[test]
fn what_is_published_is_read_and_gone_with_the_engine() {
    let there = Temporary::new();
    let mut writer = writer(&there.0, 2);
    assert!(there.0.engines().expect("a list").is_empty(), "nothing is published yet");
    publish(&mut writer, 2);
    let mut found = there.0.engines().expect("a list");
    let mut segment = found.pop().expect("one").segment.expect("readable");
    assert!(found.is_empty() && segment.is_running());
    assert_eq!(
        (segment.header().name.as_str(), segment.header().pid),
        ("test", std::process::id())
    );
    let snapshot = segment.read().expect("a snapshot");
    assert_eq!((snapshot.sequence, snapshot.total("c1"), snapshot.total("c2")), (1, Some(1), None));

    let mut schema = SchemaText::default();
    schema.line(Kind::Histogram, "us", 3, "sleep_us", &[]);
    schema.line(Kind::Gauge, "count", 1, "drops", &[("reason", &"no route")]);
    writer.set_schema(schema).expect("room");
    writer.begin();
    (5..9).for_each(|value| writer.push(value));
    writer.publish(9).expect("published");
    let snapshot = segment.read().expect("a snapshot");
    assert_eq!(snapshot.named("sleep_us").next().expect("it").1, [5, 6, 7]);
    assert_eq!(snapshot.labelled("drops", "reason", "no route"), Some(8));

    drop(writer);
    assert!(!segment.is_running());
    assert_eq!(segment.read().expect("its last words").engine_ns, 9);
    assert_eq!(fs::read_dir(there.0.path()).expect("a directory").count(), 0);
}

#[test]
fn no_snapshot_is_ever_read_in_part() {
    const VALUES: usize = 500;
    let there = Temporary::new();
    let mut writer = writer(&there.0, VALUES);
    publish(&mut writer, VALUES);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5_000 {
                publish(&mut writer, VALUES);
            }
            done.store(true, Ordering::Release);
        });
        let mut segment = open_one(&there.0);
        let mut last = 0;
        while !done.load(Ordering::Acquire) {
            // A writer without pauses may be faster than any reader.
            let Ok(snapshot) = segment.read() else { continue };
            assert!(snapshot.iter().all(|(_, values)| values == [snapshot.sequence]));
            assert!(snapshot.sequence >= last, "time goes on");
            last = snapshot.sequence;
        }
        assert_ne!(last, 0);
    });
}

fn open_one(directory: &Directory) -> Segment {
    directory.engines().expect("a list").pop().expect("one").segment.expect("readable")
}

#[test]
fn of_an_engine_that_was_killed_while_it_wrote_the_snapshot_before_is_read() {
    let there = Temporary::new();
    let mut writer = writer(&there.0, 100);
    (0..4).for_each(|_| publish(&mut writer, 100));
    let mut segment = open_one(&there.0);
    // Snapshot 5 goes into slot 1, and was written as far as its 10th value.
    let mut begun = [0; 64 + 80];
    begun[0] = 5;
    let file = fs::OpenOptions::new().write(true).open(writer.path()).expect("the file");
    file.write_all_at(&begun, (HEADER_BYTES + SLOT_BYTES) as u64).expect("written");
    assert_eq!(segment.read().expect("the one before").sequence, 4);
    file.write_all_at(&begun, HEADER_BYTES as u64).expect("written");
    assert!(matches!(segment.read(), Err(Damage::Unsettled)));
}

#[test]
fn what_ended_engines_have_left_is_removed_and_nothing_else() {
    let there = Temporary::new();
    let mut writer = writer(&there.0, 1);
    publish(&mut writer, 1);
    let file = |name: &str| there.0.path().join(name);
    // As of an engine that was killed: nobody holds it.
    fs::copy(writer.path(), file("gone-1-0.live")).expect("copied");
    fs::write(file("gone-1-0.sock"), "").expect("written");
    fs::write(file("notes.txt"), "mine").expect("written");
    fs::write(file(".new-young-1-0"), "").expect("written");
    symlink("/etc/passwd", file("link-1-0.live")).expect("linked");
    fs::create_dir(file("folder-1-0.live")).expect("made");
    let swept = there.0.sweep().expect("swept");
    assert_eq!(swept.removed, [file("gone-1-0.live")]);
    for (name, stays) in [
        ("gone-1-0.live", false),
        ("gone-1-0.sock", false),
        ("notes.txt", true),
        (".new-young-1-0", true),
        ("link-1-0.live", true),
        ("folder-1-0.live", true),
    ] {
        assert_eq!(file(name).symlink_metadata().is_ok(), stays, "{name}");
    }
    assert!(writer.path().exists());
    let readable = there.0.engines().expect("a list").into_iter().filter(|one| one.segment.is_ok());
    assert_eq!(readable.count(), 1);
}

#[test]
fn a_directory_of_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let there = Temporary::new();
    let (path, other) = (there.0.path(), uid() + 1);
    let refused =
        |path: PathBuf, uid| matches!(Directory::at(path, uid), Err(LiveError::Unsafe { .. }));
    assert!(refused(path.into(), other));
    symlink("/tmp", path.join("link")).expect("linked");
    assert!(refused(path.join("link"), uid()));
    fs::set_permissions(path, fs::Permissions::from_mode(0o750)).expect("set");
    assert!(refused(path.into(), uid()));
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("set");
    assert!(Directory::at(path, uid()).is_ok());
}

#[test]
fn names_that_are_no_part_of_a_file_name_are_refused() {
    let there = Temporary::new();
    let long = "x".repeat(33);
    for name in ["", ".", "../x", "a/b", "-x", ".new", "a b", "ä", &long] {
        let made = Writer::create(&there.0, name, Duration::ZERO);
        assert!(matches!(made, Err(LiveError::Name(_))), "{name}");
    }
}

#[test]
fn a_segment_that_is_cut_short_while_its_engine_runs_harms_neither() {
    let there = Temporary::new();
    let mut writer = writer(&there.0, 10);
    publish(&mut writer, 10);
    let mut segment = open_one(&there.0);
    let file = fs::OpenOptions::new().write(true).open(writer.path()).expect("the file");
    file.set_len(10).expect("cut");
    assert!(matches!(segment.read(), Err(Damage::Broken(_))));
    publish(&mut writer, 10);
    assert!(Segment::open(writer.path(), uid()).is_err());
}

/// A whole segment, as bytes.
fn whole() -> Vec<u8> {
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    WHOLE.get_or_init(make_whole).clone()
}

fn make_whole() -> Vec<u8> {
    let there = Temporary::new();
    let mut writer = writer(&there.0, 20);
    (0..3).for_each(|_| publish(&mut writer, 20));
    let bytes = fs::read(writer.path()).expect("read");
    assert_eq!(bytes.len(), HEADER_BYTES + 2 * SLOT_BYTES);
    bytes
}

/// Where damage hits something: the header, heads, values and schemas.
fn place() -> impl Strategy<Value = usize> {
    let behind = 64 + 8 * crate::layout::CAPACITY;
    let starts = [0, HEADER_BYTES, HEADER_BYTES + SLOT_BYTES]
        .into_iter()
        .chain([HEADER_BYTES + behind, HEADER_BYTES + SLOT_BYTES + behind]);
    (proptest::sample::select(starts.collect::<Vec<_>>()), 0usize..256).prop_map(|(at, by)| at + by)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_damaged_file_harms_no_reader(
        edits in proptest::collection::vec((place(), any::<u8>()), 0..8),
        length in proptest::option::of(0usize..HEADER_BYTES + 2 * SLOT_BYTES),
        is_summed in any::<bool>(),
    ) {
        let mut bytes = whole();
        for (at, byte) in &edits {
            bytes[*at] = *byte;
        }
        if is_summed {
            // An attacker can compute sums.
            sum_again(&mut bytes);
        }
        bytes.truncate(length.unwrap_or(usize::MAX));
        let there = Temporary::new();
        let path = there.0.path().join("damaged");
        fs::write(&path, &bytes).expect("written");
        let read = Segment::open(&path, uid()).and_then(|mut segment| segment.read());
        if let Ok(snapshot) = read {
            prop_assert!(snapshot.iter().all(|(_, values)| !values.is_empty()));
            if !is_summed {
                prop_assert!(snapshot.iter().all(|(_, values)| values == [snapshot.sequence]));
            }
        }
    }
}

/// Makes the sums of a damaged segment right again, as far as its lengths let find them.
fn sum_again(bytes: &mut [u8]) {
    use crate::layout::{sum, u32_at};
    let total = sum(0, &bytes[..120]).to_le_bytes();
    bytes[120..128].copy_from_slice(&total);
    for at in [HEADER_BYTES, HEADER_BYTES + SLOT_BYTES] {
        let slot = &mut bytes[at..at + SLOT_BYTES];
        let (values, schema) = (u32_at(slot, 24) as usize, u32_at(slot, 28) as usize);
        let behind = 64 + 8 * crate::layout::CAPACITY;
        if let Some(text) = slot.get(behind..behind + schema) {
            let of_schema = sum(0, text).to_le_bytes();
            slot[32..40].copy_from_slice(&of_schema);
        }
        if let Some(of_values) = slot.get(64..64 + 8 * values) {
            let total = sum(sum(0, &slot[..40]), of_values).to_le_bytes();
            slot[40..48].copy_from_slice(&total);
        }
    }
}
