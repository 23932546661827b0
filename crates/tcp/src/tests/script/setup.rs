//! How a conversation begins: parameters, and a handshake that is over.

use super::Script;
use super::notation::number;
use crate::*;

impl Script {
    pub(super) fn established(&mut self, words: &[&str]) {
        let has = |w: &str| words.contains(&w);
        let window: u16 = words.iter().find_map(|w| w.strip_prefix("win=")).map_or(65_535, number);
        self.timestamps = !has("nots");
        let mut options = String::from("mss 1460");
        if !has("nosack") {
            options += " sackok";
        }
        if !has("noscale") {
            options += " ws 0";
        }
        if !has("nots") {
            options += " ts 5000/0";
        }
        // RFC 3168 6.1.1: an ECN-setup SYN and SYN-ACK
        let (syn, answer) = if has("ecn") { ("SEC", "SAE") } else { ("S", "SA") };
        if has("active") {
            self.run_line("connect");
            self.run_line(&format!("> {syn} 0 mss 1460 sackok"));
            self.run_line("+10");
            self.run_line(&format!("< {answer} 0 ack 1 win {window} {options}"));
            self.run_line("> A 1 ack 1");
        } else {
            self.run_line("accept");
            self.run_line(&format!("< {syn} 0 win {window} {options}"));
            self.run_line(&format!("> {answer} 0 ack 1"));
            self.run_line("+10");
            self.run_line(&format!("< A 1 ack 1 win {window}"));
        }
        self.run_line("state ESTAB");
        self.run_line("none");
    }

    pub(super) fn configure(&mut self, words: &[&str]) {
        for word in words {
            let (key, value) = word.split_once('=').expect("key=value");
            match key {
                "delayed_ack_ms" => self.config.delayed_ack_ms = number(value),
                "recv" => {
                    self.config.recv_buffer_bytes = number(value);
                    self.config.recv_auto_tune = false;
                }
                "mss" => self.config.mss = number(value),
                "ecn" => {
                    self.config.ecn = match value {
                        "off" => EcnMode::Off,
                        "request" => EcnMode::Request,
                        _ => EcnMode::Accept,
                    };
                }
                "nagle" => self.config.nagle = value == "on",
                "iw" => self.config.initial_window_segments = number(value),
                "retries" => self.config.retries = number(value),
                "syn_retries" => self.config.syn_retries = number(value),
                "syn_ack_retries" => self.config.syn_ack_retries = number(value),
                "user_timeout_ms" => self.config.user_timeout_ms = Some(number(value)),
                "sack" => self.config.sack = value == "on",
                "timestamps" => self.config.timestamps = value == "on",
                "window_scale" => self.config.window_scale = value == "on",
                // frames hold what was a segment when it was written: how they are cut later is not
                // compared
                "parts" => self.parts &= value == "on",
                "super" => self.super_segment_bytes = number(value),
                "time_wait_ms" => self.config.time_wait_ms = number(value),
                "fin_wait_2_ms" => self.config.fin_wait_2_ms = number(value),
                "reno" => self.config.congestion = CongestionKind::NEW_RENO,
                "bbr" => self.config.congestion = CongestionKind::BBR,
                "probing" => {
                    self.config.mtu_probing = match value {
                        "off" => MtuProbing::Off,
                        "always" => MtuProbing::Always,
                        _ => MtuProbing::AfterBlackHole,
                    };
                }
                "bbr1" => self.config.congestion = crate::tests::bbr1(),
                "keepalive" => {
                    self.config.keepalive =
                        Some(Keepalive { idle_s: number(value), interval_s: 10, probes: 3 });
                }
                _ => self.fail(format!("config {key}")),
            }
        }
    }
}
