//! ICMP errors: how they stand on the wire, and what they mean, with the errors of Linux
//! (`icmp_err_convert` and `tab_unreach` there) by the names of `std::io`.

use std::io::ErrorKind::{self, *};

/// An error as it is on the wire (type, code and the word behind the checksum), what it means, and
/// whether it is hard.
pub type Row = ((u8, u8, u32), Option<ErrorKind>, bool);

pub const V4: &[Row] = &[
    ((3, 0, 0), Some(NetworkUnreachable), false),
    ((3, 1, 0), Some(HostUnreachable), false),
    ((3, 2, 0), Some(ConnectionRefused), true),
    ((3, 3, 0), Some(ConnectionRefused), true),
    ((3, 5, 0), Some(HostUnreachable), false),
    ((3, 6, 0), Some(NetworkUnreachable), false),
    ((3, 7, 0), Some(HostUnreachable), false),
    ((3, 8, 0), Some(HostUnreachable), false),
    ((3, 9, 0), Some(NetworkUnreachable), true),
    ((3, 10, 0), Some(HostUnreachable), true),
    ((3, 11, 0), Some(NetworkUnreachable), false),
    ((3, 12, 0), Some(HostUnreachable), false),
    ((3, 13, 0), Some(HostUnreachable), true),
    ((3, 14, 0), Some(HostUnreachable), true),
    ((3, 15, 0), Some(HostUnreachable), true),
    ((3, 16, 0), None, false),
    ((3, 255, 0), None, false),
    ((4, 0, 0), None, false),
    ((5, 1, 0x0a09_0003), None, false),
    ((11, 0, 0), Some(HostUnreachable), false),
    ((11, 1, 0), None, false),
    ((11, 2, 0), None, false),
    ((12, 0, 20 << 24), Some(Other), false),
    ((12, 1, 0), Some(Other), false),
    ((12, 2, 0), Some(Other), false),
];

pub const V6: &[Row] = &[
    ((1, 0, 0), Some(NetworkUnreachable), false),
    ((1, 1, 0), Some(PermissionDenied), true),
    ((1, 2, 0), Some(HostUnreachable), false),
    ((1, 3, 0), Some(HostUnreachable), false),
    ((1, 4, 0), Some(ConnectionRefused), true),
    ((1, 5, 0), Some(PermissionDenied), true),
    ((1, 6, 0), Some(PermissionDenied), true),
    ((1, 7, 0), Some(Other), false),
    ((1, 8, 0), Some(Other), false),
    ((3, 0, 0), Some(HostUnreachable), false),
    ((3, 1, 0), Some(HostUnreachable), false),
    ((3, 2, 0), None, false),
    ((4, 0, 4), Some(Other), false),
    ((4, 1, 6), Some(ConnectionRefused), true),
    ((4, 2, 40), Some(Other), false),
    ((100, 0, 0), None, false),
];
