//! What a script looks at beside the segments: the state, what is readable, what the connection
//! says of itself.

use super::Script;
use super::notation::number;

impl Script {
    pub(super) fn run_check(&mut self, first: &str, words: &[&str]) {
        match first {
            "state" => {
                if self.conn().state().name() != words[1] {
                    self.fail(format!("wanted {}", words[1]));
                }
            }
            "readable" => {
                let got = self.conn().receiving.rcv.queue().len();
                if got != number::<usize>(words[1]) {
                    self.fail(format!("{got} bytes readable"));
                }
            }
            "error" => {
                let got = self.conn().error().map_or("none", |e| e.name());
                if got != words[1..].join(" ") {
                    self.fail(format!("error {got}"));
                }
            }
            "learnt" => {
                let got = format!("{:?}", self.conn().take_fast_open_outcome());
                if !words[1..].iter().all(|word| got.contains(word)) {
                    self.fail(got);
                }
            }
            "info" => {
                let text = format!("{:?}", self.conn().info());
                let wanted = format!("{}: {},", words[1], words[2..].join(" "));
                if !text.contains(&wanted) {
                    self.fail(format!("no {wanted}"));
                }
            }
            _ if first.starts_with('+') => self.pass(number(&first[1..])),
            _ => self.fail(format!("unknown: {first}")),
        }
    }
}
