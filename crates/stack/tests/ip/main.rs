//! Datagrams, ICMP, neighbours, path MTUs, and packets that are not as they should be.

#[path = "../common/mod.rs"]
mod common;
mod datagram_flows;
mod datagram_ways;
mod datagrams;
mod icmp_errors;
mod icmp_problems;
mod intercept;
mod malformed;
mod neighbors;
mod path_mtu_datagrams;
mod reserved;
