//! Offload features of an interface, over the kernel's generic netlink family
//! `ethtool` (Documentation/networking/ethtool-netlink.rst).

use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable,
};

use super::Netlink;

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
const NESTED: u16 = 0x8000;

/// Switches features of `interface` on or off and leaves the others alone. A
/// feature that is fixed for the device stays as it is without an error;
/// a name the kernel does not know is an error.
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
        attribute(&mut bits, ETHTOOL_A_BITSET_BITS_BIT | NESTED, &bit);
    }
    let mut header = Vec::new();
    attribute(&mut header, ETHTOOL_A_HEADER_DEV_NAME, &text(interface));
    let mut wanted = Vec::new();
    attribute(&mut wanted, ETHTOOL_A_BITSET_BITS | NESTED, &bits);
    let mut body = Vec::new();
    attribute(&mut body, ETHTOOL_A_FEATURES_HEADER | NESTED, &header);
    attribute(&mut body, ETHTOOL_A_FEATURES_WANTED | NESTED, &wanted);
    let message = Generic { family, command: ETHTOOL_MSG_FEATURES_SET, body };
    netlink.request(message, NLM_F_ACK).map(drop)
}

/// Those of `features` that `interface` could have and is not to have: an error where there is no such interface.
pub fn features_off(interface: &str, features: &[&str]) -> io::Result<Vec<String>> {
    let mut netlink = Netlink::generic()?;
    let family = family_id(&mut netlink, "ethtool")?;
    let mut header = Vec::new();
    attribute(&mut header, ETHTOOL_A_HEADER_DEV_NAME, &text(interface));
    let mut body = Vec::new();
    attribute(&mut body, ETHTOOL_A_FEATURES_HEADER | NESTED, &header);
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

/// The names in a bit set that has a mask: those with a value.
fn names(body: &[u8], set: u16) -> Vec<String> {
    let mut bits = find(body, set).and_then(|set| find(set, ETHTOOL_A_BITSET_BITS)).unwrap_or(&[]);
    let mut names = Vec::new();
    while let Some(length) = bits.get(..2) {
        let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        let Some(bit) = bits.get(4..length) else { break };
        if find(bit, ETHTOOL_A_BITSET_BIT_VALUE).is_some()
            && let Some(name) = find(bit, ETHTOOL_A_BITSET_BIT_NAME)
        {
            let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
            names.push(millstream_foreign::shown(&name[..end]));
        }
        bits = bits.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    names
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

/// Appends one attribute, padded to four bytes.
fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = 4 + value.len() as u16;
    to.extend_from_slice(&length.to_ne_bytes());
    to.extend_from_slice(&kind.to_ne_bytes());
    to.extend_from_slice(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// The value of the first attribute of this kind.
pub(super) fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?) as usize;
        let found = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..length)?;
        if found & !NESTED == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
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
            attribute(&mut bits, ETHTOOL_A_BITSET_BITS_BIT | NESTED, &bit);
        }
        let (mut set, mut body) = (Vec::new(), Vec::new());
        attribute(&mut set, ETHTOOL_A_BITSET_BITS | NESTED, &bits);
        attribute(&mut body, ETHTOOL_A_FEATURES_HW | NESTED, &set);
        assert_eq!(names(&body, ETHTOOL_A_FEATURES_HW), ["rx-gro"]);
        assert!(names(&body, ETHTOOL_A_FEATURES_WANTED).is_empty());
        assert!(features_off("ms-none", OFFLOAD_FEATURES).is_err());
    }

    #[test]
    fn attributes_are_found_again() {
        let mut body = Vec::new();
        attribute(&mut body, 7, b"abc");
        attribute(&mut body, 9 | NESTED, b"defgh");
        assert_eq!(find(&body, 7), Some(&b"abc"[..]));
        assert_eq!(find(&body, 9), Some(&b"defgh"[..]));
        assert_eq!(find(&body, 8), None);
        assert_eq!(find(&[3, 0, 1], 1), None);
    }
}
