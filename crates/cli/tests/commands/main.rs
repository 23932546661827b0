//! The commands beside `run`, as their users meet them.

#[path = "../common/mod.rs"]
mod common;
mod impair;
mod investigate;
mod live;
mod names;
mod others;
mod probe;
mod replay;
mod top;

/// As a package has both: the one with the clogs takes the other's place, with all its arguments.
#[cfg(not(feature = "clogs"))]
#[test]
fn the_command_with_the_clogs_is_called_where_it_lies_beside_this_one() {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{self, Command};

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("beside-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let own = folder.join("millstream");
    fs::hard_link(env!("CARGO_BIN_EXE_millstream"), &own).unwrap();
    let run = || Command::new(&own).args(["clog", "pullup", "--live"]).output().unwrap();
    let alone = run();
    let beside = folder.join("millstream-clogs");
    fs::write(&beside, "#!/bin/sh\necho called with \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).unwrap();
    let called = run();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(alone.status.code(), Some(2));
    assert_eq!(
        (called.status.code(), &called.stdout[..]),
        (Some(7), &b"called with clog pullup --live\n"[..])
    );
}
