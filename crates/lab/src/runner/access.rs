//! The access that this process has: to hosts, to TAP devices, or to neither.

use millstream::link::{Tap, TapConfig};
use millstream_testbed::hosts::{Between, Hosts, HostsConfig, TAP_INTERFACE};
use millstream_testbed::privilege::{self, Privilege};

/// The right to make hosts and TAP devices. The reasons are for the user and for the record.
#[derive(Clone, Debug)]
pub struct Access {
    /// The right by which they are made.
    pub privilege: Privilege,
    /// Hosts in private network namespaces, or why not.
    pub hosts: Result<(), String>,
    /// A TAP device for Millstream, or why not.
    pub tap: Result<(), String>,
}

impl Access {
    /// Obtains what can be obtained and tries it out. Must be called while the
    /// process has one thread, see [`privilege::obtain`].
    pub fn obtain() -> Self {
        let (privilege, reason) = privilege::obtain();
        if let Some(reason) = reason {
            return Self { privilege, ..Self::nothing(&reason) };
        }
        let between = Between::Veth;
        let config = HostsConfig { mtu: 1500, offload: true, super_segment_bytes: None, between };
        let (hosts, tap) = match Hosts::set_up("ms-try", config) {
            Ok(hosts) => (Ok(()), try_tap(&hosts)),
            Err(error) => (Err(error.to_string()), Err(error.to_string())),
        };
        Self { privilege, hosts, tap }
    }

    /// Obtains nothing: between addresses that are there nothing is made, and what this process
    /// starts, as `ssh`, is to be the user's own.
    pub fn as_it_is() -> Self {
        let privilege = match privilege::may_make_namespaces() {
            true => Privilege::Capabilities,
            false => Privilege::Nothing,
        };
        Self { privilege, ..Self::nothing("both ends are at addresses that are there") }
    }

    /// Neither hosts nor TAP devices, for this reason.
    pub fn nothing(reason: &str) -> Self {
        Self {
            privilege: Privilege::Nothing,
            hosts: Err(reason.to_owned()),
            tap: Err(reason.to_owned()),
        }
    }

    /// Returns the remarks on it for the user, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.privilege == Privilege::UserNamespace {
            notes.push("Not root: the hosts live in an unprivileged user namespace.".to_owned());
        }
        match (&self.hosts, &self.tap) {
            (Err(reason), _) => notes.push(format!(
                "No hosts can be made here ({reason}): Millstream runs with both ends on the \
                 in-memory link, which says nothing about the kernel's side."
            )),
            (Ok(()), Err(reason)) => notes.push(format!(
                "No TAP device can be made here ({reason}): Millstream runs with both ends on the \
                 in-memory link and is not comparable with the kernel over veth."
            )),
            _ => {}
        }
        notes
    }
}

/// Makes a TAP device as a worker would, and lets it go.
fn try_tap(hosts: &Hosts) -> Result<(), String> {
    let config = TapConfig {
        name: Some(TAP_INTERFACE.to_owned()),
        netns: Some(hosts.far().path().to_owned()),
        self_check: false,
        ..TapConfig::default()
    };
    Tap::open(&config).map(drop).map_err(|error| error.to_string())
}
