//! Proof of the path: the bytes that applications report must have crossed the
//! interface under test, and no other interface of the two hosts.

use millstream_netlink::Interface;
use millstream_record::PathProof;

use crate::hosts::Counters;
use crate::limits;

/// Bytes that the applications say they moved, over the whole life of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Payload bytes that arrived at the far host.
    pub to_far_bytes: u64,
    /// Payload bytes that arrived at the near host.
    pub to_near_bytes: u64,
    /// Payload bytes that the near host says it has sent again.
    pub resent_to_far_bytes: u64,
    /// Payload bytes that the far host says it has sent again.
    pub resent_to_near_bytes: u64,
}

/// Bytes and packets of one direction between two readings.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    bytes: u64,
    packets: u64,
}

/// Compares the claim with the counters of `tested`, an interface of the far
/// host. Returns the proof and one sentence for each disagreement; none means
/// that the run took the path it is said to have taken.
///
/// In each direction the interface must have carried at least the payload, and
/// at most the payload, headers for every packet, what the sender says it has
/// sent again, and a share for what it does not say
/// (`limits::REPEATED_PAYLOAD_SHARE`). Every other interface of either
/// host may have carried neighbour discovery and its like
/// (`limits::CHATTER_BYTES`); the near end of a veth pair is the same link as
/// its far end and does not count as another.
pub fn check(
    claim: Claim,
    before: &Counters,
    after: &Counters,
    tested: &str,
    same_link: Option<&str>,
) -> (PathProof, Vec<String>) {
    let mut reasons = Vec::new();
    let Some(now) = find(&after.far, tested) else {
        reasons.push(format!("the far host has no interface {tested} to prove the path with"));
        return (PathProof { interface: format!("far/{tested}"), ..Default::default() }, reasons);
    };
    let zero = Interface::default();
    let then = find(&before.far, tested).unwrap_or(&zero);
    let (inward, outward) = (received(then, now), sent(then, now));
    let Claim { to_far_bytes, to_near_bytes, resent_to_far_bytes, resent_to_near_bytes } = claim;
    for (to, carried, claimed, resent) in [
        ("far", inward, to_far_bytes, resent_to_far_bytes),
        ("near", outward, to_near_bytes, resent_to_near_bytes),
    ] {
        if carried.bytes < claimed {
            reasons.push(format!(
                "far/{tested} carried {} bytes towards the {to} host, fewer than the {claimed} reported",
                carried.bytes
            ));
        }
        let most = (claimed as f64 * (1.0 + limits::REPEATED_PAYLOAD_SHARE)) as u64
            + resent
            + carried.packets * limits::HEADERS_PER_PACKET_BYTES
            + limits::CHATTER_BYTES;
        if carried.bytes > most {
            reasons.push(format!(
                "far/{tested} carried {} bytes towards the {to} host, \
                 more than {claimed} reported and {resent} resent can explain",
                carried.bytes
            ));
        }
    }
    others(before, after, tested, same_link, &mut reasons);
    let proof = PathProof {
        interface: format!("far/{tested}"),
        reported_bytes: claim.to_far_bytes + claim.to_near_bytes,
        counted_bytes: inward.bytes + outward.bytes,
        agrees: reasons.is_empty(),
    };
    (proof, reasons)
}

/// Returns the same proof for an interface that has other traffic, too: `tested` of the near host
/// must have carried at least the payload.
pub fn at_least(
    claim: Claim,
    before: &[Interface],
    after: &[Interface],
    tested: &str,
) -> (PathProof, Vec<String>) {
    let interface = format!("near/{tested}");
    let Some(now) = find(after, tested) else {
        let reasons = vec![format!("the near host has no interface {tested} any more")];
        return (PathProof { interface, ..Default::default() }, reasons);
    };
    let zero = Interface::default();
    let then = find(before, tested).unwrap_or(&zero);
    let (inward, outward) = (received(then, now).bytes, sent(then, now).bytes);
    let mut reasons = Vec::new();
    for (to, carried, claimed) in
        [("far", outward, claim.to_far_bytes), ("near", inward, claim.to_near_bytes)]
    {
        if carried < claimed {
            reasons.push(format!(
                "{interface} carried {carried} bytes towards the {to} host, fewer than the {claimed} reported"
            ));
        }
    }
    let proof = PathProof {
        interface,
        reported_bytes: claim.to_far_bytes + claim.to_near_bytes,
        counted_bytes: inward + outward,
        agrees: reasons.is_empty(),
    };
    (proof, reasons)
}

fn others(
    before: &Counters,
    after: &Counters,
    tested: &str,
    same_link: Option<&str>,
    reasons: &mut Vec<String>,
) {
    let zero = Interface::default();
    for (host, then, now, except) in [
        ("near", &before.near, &after.near, same_link),
        ("far", &before.far, &after.far, Some(tested)),
    ] {
        for interface in now.iter().filter(|i| Some(i.name.as_str()) != except) {
            let earlier = find(then, &interface.name).unwrap_or(&zero);
            let bytes = received(earlier, interface).bytes + sent(earlier, interface).bytes;
            if bytes > limits::CHATTER_BYTES {
                let name = &interface.name;
                reasons
                    .push(format!("{host}/{name}, which is not under test, carried {bytes} bytes"));
            }
        }
    }
}

fn find<'a>(interfaces: &'a [Interface], name: &str) -> Option<&'a Interface> {
    interfaces.iter().find(|interface| interface.name == name)
}

fn received(then: &Interface, now: &Interface) -> Carried {
    Carried {
        bytes: now.rx_bytes.saturating_sub(then.rx_bytes),
        packets: now.rx_packets.saturating_sub(then.rx_packets),
    }
}

fn sent(then: &Interface, now: &Interface) -> Carried {
    Carried {
        bytes: now.tx_bytes.saturating_sub(then.tx_bytes),
        packets: now.tx_packets.saturating_sub(then.tx_packets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_with_other_traffic_has_carried_the_payload_at_least() {
        let at = |rx_bytes, tx_bytes| {
            vec![Interface { name: "eth0".into(), rx_bytes, tx_bytes, ..Interface::default() }]
        };
        let claim = Claim { to_far_bytes: 1000, to_near_bytes: 10, ..Claim::default() };
        let (proof, reasons) = at_least(claim, &at(5, 5), &at(500, 90_000), "eth0");
        assert!(proof.agrees && reasons.is_empty() && proof.counted_bytes == 90_490, "{proof:?}");
        let (proof, reasons) = at_least(claim, &at(5, 5), &at(500, 900), "eth0");
        assert!(!proof.agrees && reasons[0].contains("towards the far host"), "{reasons:?}");
        assert!(!at_least(claim, &at(5, 5), &[], "eth0").1.is_empty());
    }
    use proptest::prelude::*;

    fn interface(name: &str, rx: (u64, u64), tx: (u64, u64)) -> Interface {
        Interface {
            name: name.into(),
            rx_bytes: rx.0,
            rx_packets: rx.1,
            tx_bytes: tx.0,
            tx_packets: tx.1,
            ..Interface::default()
        }
    }

    fn counters(tested: Interface, lo_bytes: u64) -> Counters {
        let lo = interface("lo", (lo_bytes, lo_bytes / 100), (lo_bytes, lo_bytes / 100));
        let near = interface("ms-near", (1 << 40, 1 << 20), (1 << 40, 1 << 20));
        Counters { near: vec![near], far: vec![lo, tested], router: vec![] }
    }

    fn before() -> Counters {
        let mut counters = counters(interface("ms-far", (500, 5), (700, 7)), 0);
        counters.near.clear();
        counters
    }

    fn reasons(claim: Claim, after: &Counters) -> Vec<String> {
        let (proof, reasons) = check(claim, &before(), after, "ms-far", Some("ms-near"));
        assert_eq!(proof.agrees, reasons.is_empty());
        reasons
    }

    const SENT: Claim = Claim {
        to_far_bytes: 100_000_000,
        to_near_bytes: 0,
        resent_to_far_bytes: 0,
        resent_to_near_bytes: 0,
    };

    #[test]
    fn a_run_over_the_tested_interface_is_accepted() {
        let tested = interface("ms-far", (500 + 104_000_000, 70_000), (700 + 2_000_000, 35_000));
        assert_eq!(reasons(SENT, &counters(tested, 0)), Vec::<String>::new());
    }

    #[test]
    fn a_run_over_another_path_is_rejected_for_both_ends_of_the_mistake() {
        let found = reasons(SENT, &counters(interface("ms-far", (500, 5), (700, 7)), 104_000_000));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("fewer than the 100000000 reported"));
        assert!(found[1].contains("far/lo, which is not under test"));
    }

    #[test]
    fn bytes_that_nobody_reported_are_rejected() {
        let tested = interface("ms-far", (300_000_000, 70_000), (2_000_000, 35_000));
        let found = reasons(SENT, &counters(tested, 0));
        assert!(found.len() == 1 && found[0].contains("more than"), "{found:?}");
    }

    #[test]
    fn what_was_sent_again_is_explained_by_its_sender() {
        let tested = interface("ms-far", (200_000_000, 70_000), (2_000_000, 35_000));
        let claim = Claim { resent_to_far_bytes: 90_000_000, ..SENT };
        assert_eq!(reasons(claim, &counters(tested.clone(), 0)), Vec::<String>::new());
        assert_eq!(reasons(SENT, &counters(tested, 0)).len(), 1);
    }

    #[test]
    fn a_missing_interface_proves_nothing() {
        let found = reasons(SENT, &Counters::default());
        assert!(found.len() == 1 && found[0].contains("no interface ms-far"), "{found:?}");
    }

    proptest! {
        #[test]
        fn less_than_the_payload_is_never_enough(
            payload in 1u64..1 << 40, missing in 1u64..1 << 40, packets in 0u64..1 << 30,
        ) {
            let carried = payload.saturating_sub(missing);
            let tested = interface("ms-far", (500 + carried, packets), (700, 7));
            let claim = Claim { to_far_bytes: payload, ..Claim::default() };
            prop_assert!(!reasons(claim, &counters(tested, 0)).is_empty());
        }
    }
}
