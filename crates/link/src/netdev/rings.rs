//! The rings of an interface's queues, as `ethtool -g` shows and `-G` sets them.

use super::ethtool::ask_by;
use super::socket;
use crate::LinkError;

const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_SRINGPARAM: u32 = 0x11;

/// Packets that each receive and each transmit ring of an interface takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// The packets of each receive queue.
    pub receive: u32,
    /// The packets of each transmit queue.
    pub transmit: u32,
    /// The most that a receive ring takes.
    pub receive_most: u32,
    /// The most that a transmit ring takes.
    pub transmit_most: u32,
}

/// struct ethtool_ringparam: the command; the most of rx, mini, jumbo and tx; how many now, in the
/// same order.
type Parameters = [u32; 9];

impl Rings {
    /// Returns those of interface `name` of the calling thread's namespace.
    ///
    /// # Errors
    /// When there is no such interface, or its driver has no rings that it tells of (`EOPNOTSUPP`):
    /// so do virtual pairs.
    pub fn of(name: &str) -> Result<Self, LinkError> {
        let [_, receive_most, _, _, transmit_most, receive, _, _, transmit] = read(name)?;
        Ok(Self { receive, transmit, receive_most, transmit_most })
    }

    /// Gives each ring room for so many packets. Most drivers stop and start the interface for it.
    ///
    /// # Errors
    /// When the driver refuses that many, or for want of privilege.
    pub fn set(name: &str, receive: u32, transmit: u32) -> Result<(), LinkError> {
        let mut parameters = read(name)?;
        [parameters[0], parameters[5], parameters[8]] = [ETHTOOL_SRINGPARAM, receive, transmit];
        ask(name, &mut parameters)
    }
}

fn read(name: &str) -> Result<Parameters, LinkError> {
    let mut parameters = [ETHTOOL_GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0];
    ask(name, &mut parameters)?;
    Ok(parameters)
}

fn ask(name: &str, parameters: &mut Parameters) -> Result<(), LinkError> {
    let asked = socket().and_then(|socket| {
        // SAFETY: a live block of these commands' size, aligned as its words are.
        unsafe { ask_by(&socket, name, parameters.as_mut_ptr().cast()) }
    });
    asked.map_err(|error| LinkError::from_io(format!("rings of {name}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_rings_says_so() {
        for name in ["lo", "no-such-one"] {
            let refused = Rings::of(name).unwrap_err().to_string();
            assert!(refused.contains(&format!("rings of {name}")), "{refused}");
            assert!(Rings::set(name, 256, 256).is_err());
        }
    }
}
