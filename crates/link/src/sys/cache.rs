//! How large the processor's last cache is.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Where Linux describes the caches of the first CPU.
const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

/// Bytes of the largest cache of the first CPU, as Linux tells; `None` where it does not. Looked up
/// once.
pub fn last_cache_bytes() -> Option<usize> {
    static BYTES: OnceLock<Option<usize>> = OnceLock::new();
    *BYTES.get_or_init(|| largest(Path::new(CACHES)))
}

/// The largest of the caches described below this directory.
fn largest(caches: &Path) -> Option<usize> {
    let sizes = fs::read_dir(caches).ok()?.filter_map(|entry| {
        let text = fs::read_to_string(entry.ok()?.path().join("size")).ok()?;
        bytes(text.trim())
    });
    sizes.max()
}

/// `32768K` or `480M` in bytes.
fn bytes(text: &str) -> Option<usize> {
    let (number, shift) = match text.split_at_checked(text.len().checked_sub(1)?)? {
        (number, "K") => (number, 10),
        (number, "M") => (number, 20),
        _ => (text, 0),
    };
    number.parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_kernel_writes_them() {
        assert_eq!(bytes("32768K"), Some(32 << 20));
        assert_eq!(bytes("480M"), Some(480 << 20));
        assert_eq!(bytes("512"), Some(512));
        for odd in ["", "K", "-1K", "1.5M", "32768KB", "ä"] {
            assert_eq!(bytes(odd), None, "{odd}");
        }
    }

    #[test]
    fn the_largest_counts_and_what_is_absent_is_none() {
        let folder = std::env::temp_dir().join(format!("millstream-cache-{}", std::process::id()));
        for (name, size) in [("index0", "32K\n"), ("index3", "32768K\n"), ("index2", "1024K\n")] {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("size"), size).unwrap();
        }
        fs::write(folder.join("uevent"), "").unwrap();
        assert_eq!(largest(&folder), Some(32 << 20));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(largest(&folder), None);
    }
}
