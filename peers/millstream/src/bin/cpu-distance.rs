//! Prints how many nanoseconds a cache line takes from one CPU to another and back: `cpu-distance 0 1`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use millstream::link::sys::cpu_distance;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let [one, other] = numbers[..] else {
        eprintln!("error: give the numbers of two CPUs: cpu-distance 0 1");
        return ExitCode::FAILURE;
    };
    match cpu_distance(one, other) {
        Ok(distance) => println!("{}", distance.as_nanos()),
        Err(error) => {
            eprintln!("error: CPU {one} to CPU {other}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
