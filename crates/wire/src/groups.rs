//! Group membership messages of hosts and multicast routers: IGMP (RFC 2236, RFC 3376) and MLD (RFC
//! 2710, RFC 3810) as one.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use crate::checksum;
use crate::ip::Version;

/// Bytes before the records of a report of the newest version.
const REPORT_LEN: usize = 8;

/// Generation of the protocol that a router speaks; an older one compares as less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// IGMPv1.
    First,
    /// IGMPv2, MLDv1.
    Second,
    /// IGMPv3, MLDv2.
    Third,
}

/// A router asks who is in which groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The group that is asked about; `None` for all.
    pub group: Option<IpAddr>,
    /// Generation of the protocol that it was asked in.
    pub generation: Generation,
    /// Time within which answers come.
    pub within: Duration,
    /// Times that a change is reported (QRV, the robustness variable); 0 where the router does not
    /// say.
    pub robustness: u8,
    /// Interval of its queries (QQI); `None` where it does not say.
    pub interval: Option<Duration>,
    /// Sources of the group that are asked about; empty for all.
    pub sources: Sources<'a>,
}

/// The sources that a query names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources<'a> {
    bytes: &'a [u8],
    is_v4: bool,
}

impl Sources<'_> {
    const fn address_len(is_v4: bool) -> usize {
        if is_v4 { 4 } else { 16 }
    }

    /// Returns the number of sources.
    pub fn len(&self) -> usize {
        self.bytes.len() / Self::address_len(self.is_v4)
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns all of them.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> {
        self.bytes.chunks_exact(Self::address_len(self.is_v4)).map(address)
    }
}

/// Returns an address of four or sixteen bytes.
fn address(bytes: &[u8]) -> IpAddr {
    match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
        (Ok(v4), _) => Ipv4Addr::from(v4).into(),
        (_, Ok(v6)) => Ipv6Addr::from(v6).into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A message that concerns hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupMessage<'a> {
    /// A router's question.
    Query(Query<'a>),
    /// Another host is in the group, as an older version says it.
    Report(IpAddr),
}

/// Kinds of records about a group in a report (RFC 3376, 4.2.12; RFC 3810, 5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// In answer to a query: from these sources alone (MODE_IS_INCLUDE).
    IsInclude = 1,
    /// In answer to a query: from all but these sources (MODE_IS_EXCLUDE).
    IsExclude = 2,
    /// From now on from these sources alone (CHANGE_TO_INCLUDE_MODE).
    ToInclude = 3,
    /// From now on from all but these sources (CHANGE_TO_EXCLUDE_MODE).
    ToExclude = 4,
    /// From now on from these sources, too (ALLOW_NEW_SOURCES).
    Allow = 5,
    /// From these sources no more (BLOCK_OLD_SOURCES).
    Block = 6,
}

/// One record of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Kind of the record.
    pub kind: RecordKind,
    /// The group that it is about.
    pub group: IpAddr,
    /// The sources, all of the group's IP version.
    pub sources: &'a [IpAddr],
}

impl Record<'_> {
    /// Returns the number of bytes that it takes in a report.
    pub fn len(&self) -> usize {
        let address_len = Sources::address_len(self.group.is_ipv4());
        4 + address_len * (1 + self.sources.len())
    }

    /// Returns false: a record names its group, so it is never empty.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl<'a> GroupMessage<'a> {
    /// Reads the message in `bytes`: all that follows the headers, whose checksum the caller has
    /// looked at. `None` where it is none, is cut short, is for routers alone, or is of no version
    /// that is known.
    pub fn parse(version: Version, bytes: &'a [u8]) -> Option<Self> {
        match version {
            Version::V4 => parse_igmp(bytes),
            Version::V6 => parse_mld(bytes),
        }
    }
}

/// Reads an IGMP message. Its length tells the version (RFC 3376, 4.1 and 7.1).
fn parse_igmp(bytes: &[u8]) -> Option<GroupMessage<'_>> {
    let fixed: &[u8; 8] = bytes.first_chunk()?;
    let group = Ipv4Addr::new(fixed[4], fixed[5], fixed[6], fixed[7]);
    let code = fixed[1];
    let tenths = |tenths: u32| Duration::from_millis(100) * tenths;
    let (generation, within, more) = match (fixed[0], bytes.get(8..)?) {
        (0x12 | 0x16, _) => {
            return group.is_multicast().then_some(GroupMessage::Report(group.into()));
        }
        (0x11, []) if code == 0 => (Generation::First, tenths(100), None),
        (0x11, []) => (Generation::Second, tenths(code.into()), None),
        (0x11, more) => (Generation::Third, tenths(float8(code)), Some(more)),
        _ => return None,
    };
    query(group.into(), generation, within, more)
}

/// Reads an MLD message (RFC 3810, 5.1 and 8.1).
fn parse_mld(bytes: &[u8]) -> Option<GroupMessage<'_>> {
    let fixed: &[u8; 24] = bytes.first_chunk()?;
    let group = Ipv6Addr::from(*fixed.last_chunk::<16>()?);
    let code = u16::from_be_bytes([fixed[4], fixed[5]]);
    let ms = |ms: u32| Duration::from_millis(ms.into());
    let (generation, within, more) = match (fixed[0], bytes.get(24..)?) {
        (131, _) => return group.is_multicast().then_some(GroupMessage::Report(group.into())),
        (130, []) => (Generation::Second, ms(code.into()), None),
        (130, more) => (Generation::Third, ms(float16(code)), Some(more)),
        _ => return None,
    };
    query(group.into(), generation, within, more)
}

/// Returns a query for `group`, any address for all groups, with what follows it in the newest
/// version.
fn query(
    group: IpAddr,
    generation: Generation,
    within: Duration,
    more: Option<&[u8]>,
) -> Option<GroupMessage<'_>> {
    let (mut robustness, mut interval) = (0, None);
    let is_v4 = group.is_ipv4();
    let mut sources = Sources { bytes: &[], is_v4 };
    if let Some(more) = more {
        let (told, rest) = more.split_first_chunk::<4>()?;
        let count = usize::from(u16::from_be_bytes([told[2], told[3]]));
        // RFC 3376, 4.1.10: what follows the sources is left alone.
        sources.bytes = rest.get(..count * Sources::address_len(is_v4))?;
        robustness = told[0] & 7;
        interval = Some(Duration::from_secs(float8(told[1]).into()));
    }
    let is_general = group.is_unspecified();
    if !is_general && !group.is_multicast() {
        return None;
    }
    let group = (!is_general).then_some(group);
    let query = Query { group, generation, within, robustness, interval, sources };
    Some(GroupMessage::Query(query))
}

/// Returns the value of an 8-bit floating-point code (RFC 3376, 4.1.1 and 4.1.7).
fn float8(code: u8) -> u32 {
    let code = u32::from(code);
    if code < 128 { code } else { (code & 0xf | 0x10) << ((code >> 4 & 7) + 3) }
}

/// Returns the value of a 16-bit floating-point code (RFC 3810, 5.1.3).
fn float16(code: u16) -> u32 {
    let code = u32::from(code);
    if code < 32_768 { code } else { (code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3) }
}

/// Returns the number of bytes of a report of these records.
pub fn report_len(records: &[Record<'_>]) -> usize {
    REPORT_LEN + records.iter().map(Record::len).sum::<usize>()
}

/// Writes a report of the newest version (RFC 3376, 4.2; RFC 3810, 5.2) into `buffer` and gives its
/// length, [`report_len`]. The checksum of IGMP is written; that of MLD, which covers addresses, is
/// 0.
///
/// # Panics
/// When `buffer` is shorter.
pub fn emit_report(version: Version, records: &[Record<'_>], buffer: &mut [u8]) -> usize {
    let len = report_len(records);
    let buffer = &mut buffer[..len];
    buffer.fill(0);
    buffer[0] = if version == Version::V4 { 0x22 } else { 143 };
    buffer[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    let mut room = &mut buffer[REPORT_LEN..];
    for record in records {
        let (here, behind) = room.split_at_mut(record.len());
        here[0] = record.kind as u8;
        here[2..4].copy_from_slice(&(record.sources.len() as u16).to_be_bytes());
        let address_len = Sources::address_len(record.group.is_ipv4());
        let addresses = core::iter::once(record.group).chain(record.sources.iter().copied());
        for (room, address) in here[4..].chunks_exact_mut(address_len).zip(addresses) {
            put(address, room);
        }
        room = behind;
    }
    seal_igmp(version, buffer);
    len
}

/// Returns the number of bytes of a message of an older version.
pub const fn old_len(version: Version) -> usize {
    match version {
        Version::V4 => 8,
        Version::V6 => 24,
    }
}

/// Writes a report of an older version, or that the group was `left`, as [`emit_report`] does:
/// [`old_len`] bytes.
///
/// # Panics
/// When `buffer` is shorter.
pub fn emit_old(generation: Generation, group: IpAddr, left: bool, buffer: &mut [u8]) -> usize {
    let version = Version::of(&group);
    let len = old_len(version);
    let buffer = &mut buffer[..len];
    buffer.fill(0);
    buffer[0] = match (version, generation, left) {
        (Version::V4, Generation::First, _) => 0x12,
        (Version::V4, _, false) => 0x16,
        (Version::V4, _, true) => 0x17,
        (Version::V6, _, false) => 131,
        (Version::V6, _, true) => 132,
    };
    let at = if version == Version::V4 { 4 } else { 8 };
    put(group, &mut buffer[at..]);
    seal_igmp(version, buffer);
    len
}

fn put(group: IpAddr, room: &mut [u8]) {
    match group {
        IpAddr::V4(ip) => room[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => room[..16].copy_from_slice(&ip.octets()),
    }
}

fn seal_igmp(version: Version, buffer: &mut [u8]) {
    if version == Version::V4 {
        let field = checksum::finish(checksum::sum(buffer));
        buffer[2..4].copy_from_slice(&field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(version: Version, bytes: &[u8]) -> Option<Query<'_>> {
        match GroupMessage::parse(version, bytes)? {
            GroupMessage::Query(query) => Some(query),
            GroupMessage::Report(_) => None,
        }
    }

    #[test]
    fn the_length_of_a_question_tells_its_version() {
        let v4 = |code, more: &[u8]| {
            let bytes = [&[0x11, code, 0, 0, 239, 1, 2, 3], more].concat();
            asked(Version::V4, &bytes).map(|query| (query.generation, query.within.as_millis()))
        };
        assert_eq!(v4(0, &[]), Some((Generation::First, 10_000)));
        assert_eq!(v4(7, &[]), Some((Generation::Second, 700)));
        assert_eq!(v4(100, &[2, 125, 0, 0]), Some((Generation::Third, 10_000)));
        // Mantissa 1, exponent 2: 17 << 5 tenths.
        assert_eq!(v4(0xa1, &[2, 125, 0, 0]), Some((Generation::Third, 54_400)));
        assert_eq!(v4(100, &[2, 125, 0, 1]), None, "a source that is not there");
        assert_eq!(v4(100, &[2, 125, 0]), None);
        let v6 = |code: u16, more: &[u8]| {
            let [high, low] = code.to_be_bytes();
            let mut bytes = vec![130, 0, 0, 0, high, low, 0, 0];
            bytes.extend([0; 16]);
            bytes.extend(more);
            bytes
        };
        let v6 = |code, more: &[u8]| asked(Version::V6, v6(code, more).leak());
        let old = v6(1000, &[]).expect("a query");
        assert_eq!((old.generation, old.within.as_millis()), (Generation::Second, 1000));
        let new = v6(0x8001, &[3, 20, 0, 0]).expect("a query");
        assert_eq!((new.generation, new.within.as_millis()), (Generation::Third, 0x1001 << 3));
        assert_eq!((new.robustness, new.interval), (3, Some(Duration::from_secs(20))));
        assert_eq!(v6(1000, &[3, 20]), None);
        // With sources, and with what is of no meaning behind them.
        let mut bytes = [0x11, 100, 0, 0, 239, 1, 2, 3, 2, 125, 0, 2].to_vec();
        bytes.extend([10, 1, 1, 1, 10, 1, 1, 2, 9]);
        let query = asked(Version::V4, &bytes).expect("a query");
        let sources: Vec<IpAddr> = query.sources.iter().collect();
        assert_eq!(sources, [1, 2].map(|last| IpAddr::from([10, 1, 1, last])));
        assert_eq!((query.sources.len(), query.sources.is_empty()), (2, false));
        let source = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
        let more = [&[2, 125, 0, 1][..], &source.octets()].concat();
        let query = v6(1000, &more).expect("a query");
        assert_eq!(query.sources.iter().collect::<Vec<_>>(), [IpAddr::V6(source)]);
        assert_eq!(v6(1000, &more[..19]), None, "cut short");
    }

    #[test]
    fn reports_are_as_the_rfcs_have_them() {
        let mut room = [0xaa; 64];
        let group: IpAddr = Ipv4Addr::new(239, 1, 2, 3).into();
        let record = |kind, group, sources| Record { kind, group, sources };
        let sources = [IpAddr::from([10, 1, 1, 1])];
        let records =
            [record(RecordKind::ToExclude, group, &[]), record(RecordKind::Allow, group, &sources)];
        let len = emit_report(Version::V4, &records, &mut room);
        assert_eq!(room[..2], [0x22, 0]);
        assert_eq!(room[4..16], [0, 0, 0, 2, 4, 0, 0, 0, 239, 1, 2, 3]);
        assert_eq!(room[16..len], [5, 0, 0, 1, 239, 1, 2, 3, 10, 1, 1, 1]);
        assert!(checksum::is_valid(checksum::sum(&room[..len])));
        for generation in [Generation::First, Generation::Second] {
            let len = emit_old(generation, group, false, &mut room);
            let told = GroupMessage::parse(Version::V4, &room[..len]);
            assert_eq!(told, Some(GroupMessage::Report(group)));
            assert!(checksum::is_valid(checksum::sum(&room[..len])));
        }
        let group: IpAddr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0, 7).into();
        let records = [record(RecordKind::ToInclude, group, &[])];
        let len = emit_report(Version::V6, &records, &mut room);
        assert_eq!((len, room[0], room[7], room[8]), (28, 143, 1, 3));
        let len = emit_old(Generation::Second, group, false, &mut room);
        let told = GroupMessage::parse(Version::V6, &room[..len]);
        assert_eq!(told, Some(GroupMessage::Report(group)));
        assert_eq!(emit_old(Generation::Second, group, true, &mut room), 24);
        assert_eq!(room[0], 132);
    }
}
