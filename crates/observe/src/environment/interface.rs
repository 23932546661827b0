//! Interfaces of a host: MTU, driver, queues and offloads, read inside its namespace.

use std::collections::BTreeMap;
use std::path::Path;

use millstream_foreign::shown;
use millstream_record::Environment;

use crate::probe::NetSource;

/// Records `interface.HOST.NAME.*` for the named interfaces of a host. What the namespace's
/// counters and netlink do not show (offloads) the caller may add with [`Environment::set`].
///
/// The files of `/sys/class/net` belong to the namespace that `/sys` was mounted in, so they are
/// read only for [`NetSource::Own`]; the others are recorded as absent with that reason.
pub fn capture_interfaces(env: &mut Environment, host: &str, net: &NetSource, names: &[&str]) {
    for name in names {
        let prefix = format!("interface.{host}.{name}");
        match net {
            NetSource::Own => {
                for (fact, value) in describe(Path::new("/sys/class/net"), name) {
                    env.record(&format!("{prefix}.{fact}"), value);
                }
            }
            NetSource::Process(_) | NetSource::Namespace(_) => {
                let reason = "/sys shows the namespace it was mounted in, not this host's";
                env.record::<&str>(&prefix, Err(reason));
            }
        }
    }
}

type Facts = BTreeMap<&'static str, Result<String, String>>;

fn describe(folder: &Path, name: &str) -> Facts {
    let path = folder.join(name);
    let file = |file: &str| {
        let path = path.join(file);
        let text = millstream_foreign::read(&path);
        text.map(|text| text.trim().to_owned())
            .map_err(|error| format!("{}: {error}", path.display()))
    };
    let queues = |kind: &str| {
        let entries = std::fs::read_dir(path.join("queues")).map_err(|error| error.to_string())?;
        let count = entries
            .flatten()
            .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(kind.as_bytes()))
            .count();
        Ok(count.to_string())
    };
    let driver = std::fs::read_link(path.join("device/driver"));
    let driver = driver.map_err(|_| "no device behind it".to_owned());
    let driver = driver.map(|link| shown(link.file_name().unwrap_or_default().as_encoded_bytes()));
    Facts::from([
        ("mtu_bytes", file("mtu")),
        ("tx_queue_packets", file("tx_queue_len")),
        ("speed_mbit_per_s", file("speed")),
        ("gro_flush_timeout_ns", file("gro_flush_timeout")),
        ("rx_queues", queues("rx-")),
        ("tx_queues", queues("tx-")),
        ("driver", driver),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_described_and_the_rest_is_absent() {
        let mut env = Environment::default();
        capture_interfaces(&mut env, "here", &NetSource::Own, &["lo", "nosuch0"]);
        assert!(
            env.get("interface.here.lo.mtu_bytes").is_some()
                || env.absent.contains_key("interface.here.lo.mtu_bytes")
        );
        assert!(env.absent.contains_key("interface.here.nosuch0.mtu_bytes"));
        capture_interfaces(&mut env, "there", &NetSource::Process(1), &["eth0"]);
        assert!(env.absent["interface.there.eth0"].contains("/sys"));
    }
}
