//! What a device has again that is made anew.

use super::*;

#[test]
fn a_tap_device_that_is_made_anew_has_the_link_address_that_it_had() {
    let Ok(namespace) = netdev::Namespace::create() else { return };
    let open = |name: &str| {
        let config = TapConfig {
            name: Some(name.into()),
            netns: Some(namespace.path()),
            self_check: false,
            ..TapConfig::default()
        };
        let tap = permitted(Tap::open(&config))?;
        let theirs = namespace.run(|| netdev::mac(name).unwrap()).unwrap();
        Some((tap.capabilities().mac, theirs))
    };
    let Some((ours, theirs)) = open("ms7") else { return };
    let (again, theirs_again) = open("ms7").unwrap();
    assert_eq!(ours, again);
    // The kernel makes up another one each time.
    assert_ne!(theirs, theirs_again);
    let (other, _) = open("ms8").unwrap();
    assert!(other != ours && ours.is_unicast() && ours.0[0] & 2 != 0, "{ours} {other}");
    assert!(![theirs, theirs_again].contains(&ours));
}
