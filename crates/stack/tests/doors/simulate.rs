//! The example `simulate`.

#[path = "../../examples/simulate.rs"]
mod example;

#[test]
fn a_simulation_finds_the_bug_of_a_toy_protocol_again_and_again() {
    let seed = example::find(200, false).expect("a simulation").expect("an unlucky seed");
    assert_eq!(example::find(200, false).expect("a simulation"), Some(seed));
    assert_eq!(example::find(200, true).expect("a simulation"), None, "mended");
}
