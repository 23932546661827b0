//! Any bytes as a message of IGMP and of MLD. What is read of another host's report is read again the same from what is
//! written; a question asks for what is a group, and for an answer within two hours and a half.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use millstream_wire::groups::{Generation, GroupMessage, emit_old, old_len};
use millstream_wire::ip::Version;

fuzz_target!(|bytes: &[u8]| {
    for version in [Version::V4, Version::V6] {
        match GroupMessage::parse(version, bytes) {
            Some(GroupMessage::Report(group)) => {
                assert!(group.is_multicast() && Version::of(&group) == version);
                let mut again = vec![0xaa; old_len(version)];
                let len = emit_old(Generation::Second, group, false, &mut again);
                assert_eq!(len, again.len());
                assert_eq!(
                    GroupMessage::parse(version, &again),
                    Some(GroupMessage::Report(group))
                );
            }
            Some(GroupMessage::Query(query)) => {
                assert!(query.group.is_none_or(|group| group.is_multicast()));
                assert!(query.within < Duration::from_secs(9000) && query.robustness < 8);
                assert_eq!(query.sources.iter().count(), query.sources.len());
                assert!(query.sources.iter().all(|source| Version::of(&source) == version));
            }
            None => {}
        }
    }
});
