//! What options mean, before anything is read or anybody connected to.

use super::*;

const AT: &str = "postgres://ann@db/lab";

fn options(query: &str, variables: &[(&str, &str)]) -> Result<Options, String> {
    let url = format!("{AT}?{query}");
    let environment = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| OsString::from(*value))
    };
    match Location::parse_in(url.as_ref(), &environment) {
        Ok(Location::Server(server)) => Ok(server.tls.clone()),
        Ok(Location::File(_)) => panic!("{url}"),
        Err(error) => Err(error.to_string()),
    }
}

fn file(name: &str) -> Authorities {
    Authorities::File(name.into())
}

#[test]
fn a_url_says_more_than_the_environment_and_that_more_than_nothing() {
    let cases = [
        ("", &[][..], Mode::Prefer, Authorities::None),
        ("sslmode=allow", &[], Mode::Allow, Authorities::None),
        ("", &[("PGSSLMODE", "require")], Mode::Require, Authorities::None),
        ("sslmode=disable", &[("PGSSLMODE", "require")], Mode::Disable, Authorities::None),
        ("sslmode=", &[("PGSSLMODE", "")], Mode::Prefer, Authorities::None),
        ("sslmode=verify-full", &[], Mode::VerifyFull, Authorities::System),
        ("sslrootcert=system", &[], Mode::VerifyFull, Authorities::System),
        ("sslmode=verify-ca&sslrootcert=a%2Fb", &[], Mode::VerifyCa, file("a/b")),
        (
            "sslrootcert=b&connect_timeout=3",
            &[("PGSSLROOTCERT", "c"), ("PGSSLMODE", "verify-full")],
            Mode::VerifyFull,
            file("b"),
        ),
        ("", &[("PGSSLROOTCERT", "c"), ("HOME", "/")], Mode::Prefer, file("c")),
    ];
    for (query, variables, mode, authorities) in cases {
        let found = options(query, variables).unwrap();
        assert_eq!((found.mode, found.authorities), (mode, authorities), "{query} {variables:?}");
    }
}

#[test]
fn what_has_no_meaning_is_refused_in_one_line() {
    let cases = [
        ("sslmode=on", "sslmode is one of disable, allow"),
        ("sslmode=verify-ca", "add sslrootcert=FILE"),
        ("sslmode=require&sslrootcert=system", "needs sslmode=verify-full"),
        ("sslcert=a", "add sslkey=FILE"),
        ("sslkey=a", "add sslcert=FILE"),
        ("sslnegotiation=direct", "needs sslmode=require"),
        ("sslcrl=a", "sslcrl"),
    ];
    for (query, why) in cases {
        let said = options(query, &[]).unwrap_err();
        assert!(said.starts_with(AT) && said.contains(why), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(options("", &[("PGSSLMODE", "on")]).unwrap_err().contains("sslmode is one of"));
}

#[test]
fn files_of_the_home_folder_are_taken_where_they_are() {
    let home = std::env::temp_dir().join(format!("ms-tls-home-{}", std::process::id()));
    let folder = home.join(".postgresql");
    std::fs::create_dir_all(&folder).unwrap();
    let variables = [("HOME", home.to_str().unwrap())];
    assert_eq!(options("", &variables).unwrap().authorities, Authorities::None);
    let names = ["root.crt", "postgresql.crt", "postgresql.key"];
    let [root, certificate, key] = names.map(|name| folder.join(name));
    for path in [&root, &certificate] {
        std::fs::write(path, "").unwrap();
    }
    let found = options("sslmode=verify-ca", &variables).unwrap();
    let named = options("sslrootcert=r&sslcert=c&sslkey=k", &variables).unwrap();
    std::fs::remove_dir_all(&home).unwrap();
    assert_eq!(found.authorities, Authorities::File(root));
    assert_eq!(found.identity, Some(Identity { certificate, key }));
    assert_eq!(named.authorities, file("r"));
    assert_eq!(named.identity, Some(Identity { certificate: "c".into(), key: "k".into() }));
}

#[test]
fn the_other_options_stay_in_the_url() {
    let cases = [
        ("postgres://db/lab", "postgres://db/lab"),
        ("postgres://db/lab?sslmode=require", "postgres://db/lab"),
        ("postgres://db/lab?a=1&sslkey=k&b=%20", "postgres://db/lab?a=1&b=%20"),
        ("postgres://db/lab?xsslmode=require", "postgres://db/lab?xsslmode=require"),
    ];
    for (url, rest) in cases {
        assert_eq!(taken_from(url).0, rest);
    }
}
