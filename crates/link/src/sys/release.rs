//! Which kernel this is, for what cannot be asked of it otherwise.

/// Returns whether the kernel is of this version or a later one. True where it does not tell.
pub(crate) fn kernel_is_at_least(version: (u32, u32)) -> bool {
    // SAFETY: a utsname is plain bytes, for which all zero is valid.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live utsname.
    if unsafe { libc::uname(&raw mut name) } < 0 {
        return true;
    }
    let release: Vec<u8> = super::bytes_of(&name.release).collect();
    parse(&String::from_utf8_lossy(&release)).is_none_or(|release| release >= version)
}

/// The first two numbers of a release.
fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_told_apart() {
        for (release, version) in [
            ("6.1.0-28-amd64\0\0", Some((6, 1))),
            ("5.15.0-130-generic", Some((5, 15))),
            ("6.18.44", Some((6, 18))),
            ("7.0-rc1", Some((7, 0))),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(parse(release), version, "{release}");
        }
        assert!(kernel_is_at_least((3, 0)) && !kernel_is_at_least((1000, 0)));
    }
}
