//! One client of the kernel's netlink, for links, the mirror and the laboratory: requests with
//! their answers ([`Netlink`]), and a socket that hears of changes ([`Watch`]).
//!
//! The library has the types of messages ([`core`], [`packet`]). A socket belongs to the network
//! namespace in which it was opened, also when it is used from a thread that has moved on.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

mod bytes;
mod classifiers;
mod client;
mod ethtool;
mod inet_sockets;
mod interface;
mod qdisc;
mod sock_diag;
mod watch;

pub use classifiers::Classifier;
pub use client::Netlink;
pub use ethtool::{OFFLOAD_FEATURES, features_off, set_features};
pub use inet_sockets::{InetSocket, Protocol, State, TcpCounters, each_inet_socket};
pub use interface::{Interface, MaxSizes};
pub use netlink_packet_core as core;
pub use netlink_packet_route as packet;
pub use qdisc::Qdisc;
pub use sock_diag::{TcpSocket, tcp_sockets};
pub use watch::{Control, Message, Read, Watch};
