//! Links to the kernel: TAP and TUN devices, packet sockets and AF_XDP, and what they have in
//! common.

pub(crate) mod big_tcp;
mod follow;
#[cfg(test)]
mod follow_tests;
mod kernel_receive;
mod posted_buffers;
pub(crate) mod raw;
pub(crate) mod tap;
pub(crate) mod unix;
pub(crate) mod xdp;
