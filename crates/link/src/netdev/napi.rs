//! How the kernel's receive polling (NAPI) of an interface works, set through sysfs
//! (Documentation/networking/napi.rst).

use std::io;
use std::time::Duration;

use super::index;
use super::sysfs::{Setting, Sysfs};
use crate::LinkError;

/// The settings of one interface, open to be changed as often as one likes. Dropped, it puts back
/// what it found, for the interface that outlives its user; a killed process cannot.
#[derive(Debug)]
pub struct NapiControl {
    name: String,
    threaded: Setting,
    gro_flush: Setting,
}

impl NapiControl {
    /// Opens those of the interface `name`.
    ///
    /// # Errors
    /// When there is no such interface, the kernel is too old (threads: Linux 5.12), or for want of
    /// privilege (to mount sysfs, too: it shows the interfaces of the namespace it is mounted in).
    pub fn open(name: &str) -> Result<Self, LinkError> {
        // A name that is no interface here must not become a path.
        index(name)?;
        let settings = || -> io::Result<(Setting, Setting)> {
            let sysfs = Sysfs::mount()?;
            let open = |file: &str| sysfs.setting(&format!("class/net/{name}/{file}"));
            Ok((open("threaded")?, open("gro_flush_timeout")?))
        };
        let (threaded, gro_flush) = settings().map_err(|error| failed(name, error))?;
        Ok(Self { name: name.to_owned(), threaded, gro_flush })
    }

    /// Sets how the receive queues are polled: for how long the kernel holds segments back to merge
    /// others with them (zero: until its queue is empty), and whether a thread of the kernel's own
    /// does it, on whatever core is free, instead of the core that brings a packet. Takes some 50
    /// µs.
    ///
    /// # Errors
    /// When the interface is gone, or the kernel has no memory for a thread: then it is as it was
    /// found.
    pub fn set(&self, gro_flush: Duration, threaded: bool) -> Result<(), LinkError> {
        let result = self.write(&u8::from(threaded).to_string(), &gro_flush.as_nanos().to_string());
        result.map_err(|error| {
            self.restore();
            failed(&self.name, error)
        })
    }

    fn write(&self, threaded: &str, gro_flush: &str) -> io::Result<()> {
        self.threaded.write(threaded)?;
        self.gro_flush.write(gro_flush)
    }

    fn restore(&self) {
        // It may be gone with its last user.
        let _ = self.threaded.restore();
        let _ = self.gro_flush.restore();
    }
}

fn failed(name: &str, error: io::Error) -> LinkError {
    LinkError::from_io(format!("set the receive polling of {name}"), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdev::{Namespace, setting};
    use crate::testing::permitted;
    use crate::{Link, NapiMode, Tap, TapConfig};

    #[test]
    fn what_is_set_is_set_in_the_devices_own_namespace() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let config = TapConfig {
            netns: Some(namespace.path()),
            napi: NapiMode::On(crate::Napi { threaded: true, gro_flush: Duration::from_micros(7) }),
            ..TapConfig::default()
        };
        let Some(tap) = permitted(Tap::open(&config)) else { return };
        if !tap.notes().is_empty() {
            return println!("skipped: {:?}", tap.notes());
        }
        let name = tap.name();
        let read = |file: &str| namespace.run(|| setting(name, file)).unwrap();
        assert_eq!(read("threaded").unwrap(), "1");
        assert_eq!(read("gro_flush_timeout").unwrap(), "7000");
        let control = namespace.run(|| NapiControl::open(name)).unwrap().unwrap();
        control.set(Duration::ZERO, false).unwrap();
        assert_eq!(read("threaded").unwrap(), "0");
        control.set(Duration::from_micros(9), true).unwrap();
        assert_eq!(read("gro_flush_timeout").unwrap(), "9000");
        // Its second half is out of range: nothing is left of the first.
        assert!(control.set(Duration::MAX, false).is_err());
        assert_eq!(read("threaded").unwrap(), "1");
        assert_eq!(read("gro_flush_timeout").unwrap(), "7000");
        control.set(Duration::ZERO, false).unwrap();
        drop(control);
        assert_eq!(read("threaded").unwrap(), "1", "as it was found");
        assert_eq!(read("gro_flush_timeout").unwrap(), "7000");
        assert!(namespace.run(|| NapiControl::open("../lo")).unwrap().is_err());
    }
}
