//! Offload features of an interface, over the kernel's generic netlink family
//! `ethtool` (Documentation/networking/ethtool-netlink.rst).

use std::io;

use netlink_packet_core::{
    DecodeError, NLA_F_NESTED, NLM_F_ACK, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable,
};

use crate::Netlink;
use crate::bytes::{self, all, attribute, find};

/// The features that `offload = off` takes away, by the kernel's names. With
/// all of them off a veth carries packets no larger than its MTU and every
/// checksum is computed by the sender.
pub const OFFLOAD_FEATURES: &[&str] = &[
    "tx-checksum-ip-generic",
    "tx-scatter-gather",
    "tx-scatter-gather-fraglist",
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-generic-segmentation",
    "tx-udp-segmentation",
    "rx-gro",
];

const CONTROL_FAMILY: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_HW: u16 = 2;
const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;

/// Switches features of `interface` on or off and leaves the others alone. A
/// feature that is fixed for the device stays as it is without an error;
/// a name the kernel does not know is an error.
///
/// # Errors
/// When there is no such interface or feature, or for want of privilege.
pub fn set_features(interface: &str, features: &[&str], on: bool) -> io::Result<()> {
    let mut netlink = Netlink::generic()?;
    let family = family_id(&mut netlink, "ethtool")?;
    let mut bits = Vec::new();
    for feature in features {
        let mut bit = Vec::new();
        attribute(&mut bit, ETHTOOL_A_BITSET_BIT_NAME, &text(feature));
        if on {
            attribute(&mut bit, ETHTOOL_A_BITSET_BIT_VALUE, &[]);
        }
        attribute(&mut bits, ETHTOOL_A_BITSET_BITS_BIT | NLA_F_NESTED, &bit);
    }
    let mut header = Vec::new();
    attribute(&mut header, ETHTOOL_A_HEADER_DEV_NAME, &text(interface));
    let mut wanted = Vec::new();
    attribute(&mut wanted, ETHTOOL_A_BITSET_BITS | NLA_F_NESTED, &bits);
    let mut body = Vec::new();
    attribute(&mut body, ETHTOOL_A_FEATURES_HEADER | NLA_F_NESTED, &header);
    attribute(&mut body, ETHTOOL_A_FEATURES_WANTED | NLA_F_NESTED, &wanted);
    let message = Generic { family, command: ETHTOOL_MSG_FEATURES_SET, body };
    netlink.request(message, NLM_F_ACK).map(drop)
}

/// Returns those of `features` that `interface` could have and is not to have.
///
/// # Errors
/// When there is no such interface.
pub fn features_off(interface: &str, features: &[&str]) -> io::Result<Vec<String>> {
    let mut netlink = Netlink::generic()?;
    let family = family_id(&mut netlink, "ethtool")?;
    let mut header = Vec::new();
    attribute(&mut header, ETHTOOL_A_HEADER_DEV_NAME, &text(interface));
    let mut body = Vec::new();
    attribute(&mut body, ETHTOOL_A_FEATURES_HEADER | NLA_F_NESTED, &header);
    let message = Generic { family, command: ETHTOOL_MSG_FEATURES_GET, body };
    let answers = netlink.request(message, 0)?;
    let body = answers.first().map_or(&[][..], |answer| &answer.body[..]);
    let (possible, wanted) =
        (names(body, ETHTOOL_A_FEATURES_HW), names(body, ETHTOOL_A_FEATURES_WANTED));
    let is_off = |name: &&&str| {
        possible.iter().any(|one| one == **name) && !wanted.iter().any(|one| one == **name)
    };
    Ok(features.iter().filter(is_off).map(|name| (*name).to_owned()).collect())
}

/// Returns the names in a bit set that has a mask, those with a value.
fn names(body: &[u8], set: u16) -> Vec<String> {
    let bits = find(body, set).and_then(|set| find(set, ETHTOOL_A_BITSET_BITS)).unwrap_or(&[]);
    all(bits, ETHTOOL_A_BITSET_BITS_BIT)
        .filter(|bit| find(bit, ETHTOOL_A_BITSET_BIT_VALUE).is_some())
        .filter_map(|bit| find(bit, ETHTOOL_A_BITSET_BIT_NAME).map(bytes::text))
        .collect()
}

fn family_id(netlink: &mut Netlink, name: &str) -> io::Result<u16> {
    let mut body = Vec::new();
    attribute(&mut body, CTRL_ATTR_FAMILY_NAME, &text(name));
    let message = Generic { family: CONTROL_FAMILY, command: CTRL_CMD_GETFAMILY, body };
    let answers = netlink.request(message, 0)?;
    answers
        .first()
        .and_then(|answer| find(&answer.body, CTRL_ATTR_FAMILY_ID))
        .and_then(|value| Some(u16::from_ne_bytes(value.get(..2)?.try_into().ok()?)))
        .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, format!("no netlink {name}")))
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// A generic netlink message: command, version 1, attributes as bytes.
struct Generic {
    family: u16,
    command: u8,
    body: Vec<u8>,
}

impl NetlinkSerializable for Generic {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        4 + self.body.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..4].copy_from_slice(&[self.command, 1, 0, 0]);
        buffer[4..4 + self.body.len()].copy_from_slice(&self.body);
    }
}

impl NetlinkDeserializable for Generic {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        if payload.len() < 4 {
            return Err(DecodeError::from("generic netlink header cut short"));
        }
        let body = payload[4..].to_vec();
        Ok(Self { family: header.message_type, command: payload[0], body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_with_a_value_are_those_that_are_set() {
        let mut bits = Vec::new();
        for (name, is_set) in [("rx-gro", true), ("tx-gso", false)] {
            let mut bit = Vec::new();
            attribute(&mut bit, ETHTOOL_A_BITSET_BIT_NAME, &text(name));
            if is_set {
                attribute(&mut bit, ETHTOOL_A_BITSET_BIT_VALUE, &[]);
            }
            attribute(&mut bits, ETHTOOL_A_BITSET_BITS_BIT | NLA_F_NESTED, &bit);
        }
        let (mut set, mut body) = (Vec::new(), Vec::new());
        attribute(&mut set, ETHTOOL_A_BITSET_BITS | NLA_F_NESTED, &bits);
        attribute(&mut body, ETHTOOL_A_FEATURES_HW | NLA_F_NESTED, &set);
        assert_eq!(names(&body, ETHTOOL_A_FEATURES_HW), ["rx-gro"]);
        assert!(names(&body, ETHTOOL_A_FEATURES_WANTED).is_empty());
        assert!(features_off("ms-none", OFFLOAD_FEATURES).is_err());
    }
}
