//! A device that keeps what is sent, for tests: a MACVLAN on another, and a queue there that lets hardly anything go.

use super::netlink::Request;
use super::{index, interface_message, interface_request};
use crate::LinkError;

/// Makes the MACVLAN `name` on interface `lower`, down.
pub(crate) fn add_macvlan(name: &str, lower: &str) -> Result<(), LinkError> {
    const INFO_KIND: u16 = 1;
    let what = |error| LinkError::from_io(format!("make {name} on {lower}"), error);
    interface_request(name).map_err(what)?;
    let mut info = [0; 12];
    info[..2].copy_from_slice(&11_u16.to_ne_bytes());
    info[2..4].copy_from_slice(&INFO_KIND.to_ne_bytes());
    info[4..11].copy_from_slice(b"macvlan");
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let request = Request::new(libc::RTM_NEWLINK, flags, &interface_message(0, 0, 0))
        .attribute(libc::IFLA_IFNAME, name.as_bytes())
        .attribute(libc::IFLA_LINK, &index(lower)?.to_ne_bytes())
        .attribute(libc::IFLA_LINKINFO, &info);
    request.send().map_err(what)
}

/// Has interface `name` keep what is sent (a token bucket of a byte a second), or drops what it keeps.
pub(crate) fn hold(name: &str, on: bool) -> Result<(), LinkError> {
    const BUCKET: u16 = 1;
    const BURST: u16 = 6;
    let what = |error| LinkError::from_io(format!("hold what {name} sends"), error);
    // struct tcmsg: family, padding, index, handle, parent, info.
    let mut body = [0; 20];
    body[4..8].copy_from_slice(&index(name)?.to_ne_bytes());
    body[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
    if !on {
        return Request::new(libc::RTM_DELQDISC, 0, &body).send().map_err(what);
    }
    // struct tc_tbf_qopt: two rates of 12 bytes, each ending in bytes per second; limit, buffer, mtu.
    let mut options = [0; 4 + 36 + 8];
    options[..2].copy_from_slice(&40_u16.to_ne_bytes());
    options[2..4].copy_from_slice(&BUCKET.to_ne_bytes());
    options[12..16].copy_from_slice(&1_u32.to_ne_bytes());
    options[28..32].copy_from_slice(&(64_u32 << 20).to_ne_bytes());
    options[40..42].copy_from_slice(&8_u16.to_ne_bytes());
    options[42..44].copy_from_slice(&BURST.to_ne_bytes());
    options[44..].copy_from_slice(&2000_u32.to_ne_bytes());
    Request::new(libc::RTM_NEWQDISC, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &body)
        .attribute(libc::TCA_KIND, b"tbf\0")
        .attribute(libc::TCA_OPTIONS, &options)
        .send()
        .map_err(what)
}
