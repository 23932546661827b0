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
