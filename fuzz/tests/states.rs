//! The checked-in corpus of connections reaches every state; how often is printed.

use std::path::Path;

use millstream_fuzz::conversation::{STATES, Visits, run};

#[test]
fn the_corpus_reaches_every_state() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/tcp_segments");
    let (mut inputs, mut segments) = (Visits::default(), Visits::default());
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("a corpus") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("readable");
        for (index, visits) in run(&bytes).into_iter().enumerate() {
            inputs[index] += u32::from(visits > 0);
            segments[index] += visits;
        }
        count += 1;
    }
    println!("{count} inputs\nstate        inputs  segments");
    for (index, name) in STATES.iter().enumerate() {
        println!("{name:12} {:6} {:9}", inputs[index], segments[index]);
    }
    for (name, inputs) in STATES.iter().zip(inputs) {
        assert!(inputs >= 3, "{name} is reached by {inputs} inputs");
    }
}

/// Inputs made by chance, of connections that come from the SYN queue or open by Fast Open, which
/// the corpus has few of: they hold what `run` asserts, and get beyond the handshake.
#[test]
fn the_syn_queue_and_fast_open_stand_chance() {
    let mut state = 1u64;
    let mut byte = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for way in [13, 14] {
        let mut segments = Visits::default();
        for _ in 0..2000 {
            let mut bytes: Vec<u8> =
                (0..40 + 8 * usize::from(byte() & 31)).map(|_| byte()).collect();
            bytes[0] = way << 4;
            for (sum, visits) in segments.iter_mut().zip(run(&bytes)) {
                *sum += visits;
            }
        }
        for name in ["SYN-SENT", "SYN-RECV", "ESTAB"] {
            let at = STATES.iter().position(|state| *state == name).expect("a state");
            assert!(segments[at] > 100, "{name} heard {} segments", segments[at]);
        }
    }
}
