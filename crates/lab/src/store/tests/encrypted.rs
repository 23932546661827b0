//! TLS with a real server, by certificates that are made here.

use std::path::Path;
use std::process::Command;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

use super::super::server::Dialer;
use super::both::{a_lost_connection_loses_no_run, what_was_saved_comes_back_in_order};
use super::test_server::TestServer;
use super::*;

/// Who may come, and how.
const USERS: &str = "
    local     all all        trust
    hostssl   all sealed     127.0.0.0/8 trust
    hostnossl all open       127.0.0.0/8 trust
    hostssl   all certified  127.0.0.0/8 cert
    host      all worded     127.0.0.0/8 scram-sha-256
    host      all millstream 127.0.0.0/8 trust
";

/// Who signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key.
struct Signed {
    pem: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn signs(&self, name: &str, until: i32) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = of(name, until);
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Signed { pem, key: key.serialize_pem() }
    }
}

fn of(name: &str, until: i32) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
    (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(until, 1, 1));
    params
}

/// As `openssl req -x509` makes it: an authority's, and a server's.
fn signs_itself(name: &str) -> Signed {
    let key = KeyPair::generate().unwrap();
    let mut params = of(name, LATER);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Signed { pem: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

const LATER: i32 = 4000;
const OVER: i32 = 2002;

/// A server, where it is, and the user's files.
struct Scene {
    server: TestServer,
    address: String,
    files: Folder,
}

impl Scene {
    fn new() -> Option<Self> {
        let server = TestServer::start()?;
        execute_there(
            &server,
            "CREATE ROLE sealed LOGIN; CREATE ROLE open LOGIN; CREATE ROLE certified LOGIN;
             CREATE ROLE worded LOGIN PASSWORD 'a word'",
        );
        // Every process of a machine has a loopback address of its own.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let address = format!("127.{}.{middle}.{low}", 64 + (high & 63));
        Some(Self { server, address, files: Folder::new() })
    }

    /// Starts the server anew, without TLS or with this certificate.
    fn serves(&mut self, certificate: Option<&Signed>, users_of: &Authority) {
        let file = |name: &str, text: &str| {
            self.server.file(name, text).to_str().expect("a folder of letters").to_owned()
        };
        let mut settings = vec![
            format!("listen_addresses={}", self.address),
            format!("hba_file={}", file("users", USERS)),
        ];
        if let Some(Signed { pem, key }) = certificate {
            settings.push("ssl=on".to_owned());
            settings.push(format!("ssl_cert_file={}", file("server.crt", pem)));
            settings.push(format!("ssl_key_file={}", file("server.key", key)));
            settings.push(format!("ssl_ca_file={}", file("users.crt", &users_of.pem)));
        }
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        self.server.restart(&settings);
    }

    /// A file of the user's, as an option has it.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.files.0.join(name);
        fs::write(&path, text).unwrap();
        utf8_percent_encode(path.to_str().unwrap(), NON_ALPHANUMERIC).to_string()
    }

    fn url(&self, user: &str, host: &str, options: &str) -> String {
        format!("postgres://{user}@{host}/postgres?hostaddr={}&{options}", self.address)
    }

    /// Whether a session has TLS, or why there is none.
    fn session(&self, user: &str, host: &str, options: &str) -> Result<bool, String> {
        has_tls(&self.url(user, host, options))
    }

    /// What is said where there is no session.
    fn refusal(&self, user: &str, host: &str, options: &str) -> String {
        let said = self.session(user, host, options).expect_err(options);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with(&format!("postgres://{user}@{host}/")), "{said}");
        said
    }
}

fn execute_there(server: &TestServer, sql: &str) {
    let Location::Server(at) = located(&server.url("postgres")).unwrap() else { panic!() };
    Dialer::new(&at).unwrap().dial().unwrap().batch_execute(sql).unwrap();
}

/// Nothing of the environment's.
fn located(url: &str) -> Result<Location, StoreError> {
    Location::parse_in(url.as_ref(), &|_| None)
}

fn has_tls(url: &str) -> Result<bool, String> {
    let at = located(url).map_err(|error| error.to_string())?;
    let Location::Server(server) = &at else { panic!("{url}") };
    let dialer = Dialer::new(server).map_err(|error| error.to_string())?;
    let row = dialer.dial().and_then(|mut client| {
        client.query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[])
    });
    row.and_then(|row| row.try_get(0))
        .map_err(|error| StoreError::from_postgres(&at, &error).to_string())
}

/// Servers are started anew here, which takes longer than other tests: four seconds on a quiet machine.
#[test]
fn tls_is_what_libpq_makes_of_the_same_options() {
    let Some(mut scene) = Scene::new() else { return };
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let right = format!("sslrootcert={}", scene.file("ours.crt", &ours.pem));
    let wrong = format!("sslrootcert={}", scene.file("others.crt", &others.pem));

    scene.serves(None, &ours);
    a_server_without_tls(&scene, &right);
    scene.serves(Some(&ours.signs("localhost", LATER)), &ours);
    a_mode_asks_for_what_it_says(&scene);
    a_server_is_verified_by_whom_the_user_trusts(&scene, &right, &wrong);
    the_server_has_its_say(&scene, &right, &wrong);
    a_password_is_bound_to_the_certificate(&scene);
    a_user_has_a_certificate(&scene, &ours, &others);
    files_that_are_of_no_use_are_named(&scene, &ours);
    the_machine_s_own_authorities(&scene, &ours, &others);
    sockets_of_this_machine_have_no_tls(&scene, &right);
    let at =
        located(&scene.url("millstream", "localhost", &format!("sslmode=verify-full&{right}")));
    let at = at.unwrap();
    what_was_saved_comes_back_in_order(&at);
    a_lost_connection_loses_no_run(&at);

    scene.serves(Some(&ours.signs("localhost", OVER)), &ours);
    for mode in ["verify-ca", "verify-full"] {
        let said = scene.refusal("millstream", "localhost", &format!("sslmode={mode}&{right}"));
        assert!(said.contains("time of the server's certificate is over"), "{said}");
    }
    assert_eq!(scene.session("millstream", "localhost", "sslmode=require"), Ok(true));

    let itself = signs_itself("localhost");
    scene.serves(Some(&itself), &ours);
    a_certificate_that_signs_itself(&scene, &itself, &right);
}

fn a_server_without_tls(scene: &Scene, right: &str) {
    for options in ["", "sslmode=disable", "sslmode=allow", "sslmode=prefer"] {
        assert_eq!(scene.session("millstream", "localhost", options), Ok(false), "{options}");
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        let said = scene.refusal("millstream", "localhost", &format!("sslmode={mode}&{right}"));
        assert!(said.contains("the server has no TLS") && said.contains("ssl = on"), "{said}");
    }
}

fn a_mode_asks_for_what_it_says(scene: &Scene) {
    let cases = [
        ("", true),
        ("sslmode=", true),
        ("sslmode=prefer", true),
        ("sslmode=disable", false),
        ("sslmode=allow", false),
        ("sslmode=require", true),
        ("sslmode=disable&sslmode=require", true),
    ];
    for (options, encrypted) in cases {
        let session = scene.session("millstream", "localhost", options);
        assert_eq!(session, Ok(encrypted), "{options}");
    }
    // One that is known by its address alone.
    let url = format!("postgres://millstream@/postgres?hostaddr={}", scene.address);
    assert_eq!(has_tls(&url), Ok(true));
}

fn a_server_is_verified_by_whom_the_user_trusts(scene: &Scene, right: &str, wrong: &str) {
    let both = "sslmode=verify-full&sslrootcert=";
    let text = ["ours.crt", "others.crt"].map(|one| fs::read_to_string(scene.files.0.join(one)));
    let both = format!("{both}{}", scene.file("both.crt", &text.map(Result::unwrap).concat()));
    assert_eq!(scene.session("millstream", "localhost", &both), Ok(true));
    for mode in ["require", "verify-ca", "verify-full"] {
        let options = format!("sslmode={mode}&{right}");
        assert_eq!(scene.session("millstream", "localhost", &options), Ok(true), "{options}");
        let said = scene.refusal("millstream", "localhost", &format!("sslmode={mode}&{wrong}"));
        assert!(said.contains("nobody who is trusted here has signed"), "{said}");
        assert!(said.ends_with("sslrootcert=FILE"), "{said}");
    }
    // The certificate is for one name alone.
    for host in [scene.address.as_str(), "db.example.net"] {
        for mode in ["require", "verify-ca"] {
            let options = format!("sslmode={mode}&{right}");
            assert_eq!(scene.session("millstream", host, &options), Ok(true), "{host} {mode}");
        }
        let said = scene.refusal("millstream", host, &format!("sslmode=verify-full&{right}"));
        let names = format!("the server's certificate is for localhost, not for {host};");
        assert!(said.contains(&names) && said.contains("sslmode=verify-ca"), "{said}");
    }
}

fn the_server_has_its_say(scene: &Scene, right: &str, wrong: &str) {
    // Who prefers TLS goes without where it cannot be agreed on, and where the server wants none.
    let prefers = format!("sslmode=prefer&{wrong}");
    assert_eq!(scene.session("millstream", "localhost", &prefers), Ok(false));
    assert_eq!(scene.session("sealed", "localhost", &format!("sslmode=prefer&{right}")), Ok(true));
    let said = scene.refusal("sealed", "localhost", &prefers);
    assert!(said.contains("nobody who is trusted here has signed"), "{said}");
    assert_eq!(scene.session("open", "localhost", ""), Ok(false));
    let said = scene.refusal("open", "localhost", "sslmode=require");
    assert!(said.contains("no pg_hba.conf entry"), "{said}");
    // Who allows it comes with it where the server wants it.
    assert_eq!(scene.session("sealed", "localhost", "sslmode=allow"), Ok(true));
    let said = scene.refusal("sealed", "localhost", "sslmode=disable");
    assert!(said.ends_with("ask for TLS: sslmode=require"), "{said}");
}

fn a_password_is_bound_to_the_certificate(scene: &Scene) {
    let url = |options: &str| scene.url("worded:a%20word", "localhost", options);
    assert_eq!(has_tls(&url("sslmode=require&channel_binding=require")), Ok(true));
    assert_eq!(has_tls(&url("sslmode=disable")), Ok(false));
    let said = has_tls(&url("sslmode=disable&channel_binding=require")).unwrap_err();
    assert!(said.contains("channel binding"), "{said}");
    let wrong = scene.url("worded:another", "localhost", "sslmode=require");
    let said = has_tls(&wrong).unwrap_err();
    assert!(said.contains("password authentication failed") && !said.contains("another"), "{said}");
}

fn a_user_has_a_certificate(scene: &Scene, ours: &Authority, others: &Authority) {
    let said = scene.refusal("certified", "localhost", "sslmode=require");
    assert!(said.ends_with("name yours: sslcert=FILE and sslkey=FILE"), "{said}");
    let with = |name: &str, signed: &Signed| {
        let certificate = scene.file(&format!("{name}.crt"), &signed.pem);
        let key = scene.file(&format!("{name}.key"), &signed.key);
        format!("sslmode=require&sslcert={certificate}&sslkey={key}")
    };
    let right = with("user", &ours.signs("certified", LATER));
    assert_eq!(scene.session("certified", "localhost", &right), Ok(true));
    let strange = with("strange", &others.signs("certified", LATER));
    let said = scene.refusal("certified", "localhost", &strange);
    assert!(said.contains("the server ends TLS: ") && said.contains("sslcert=FILE"), "{said}");
    let mixed = right.replace("user%2Ekey", "strange%2Ekey");
    assert_ne!(mixed, right);
    let said = scene.refusal("certified", "localhost", &mixed);
    assert!(said.contains("are no certificate and its key"), "{said}");
}

fn files_that_are_of_no_use_are_named(scene: &Scene, ours: &Authority) {
    let damaged = ours.pem.replacen("MII", "MIJ", 1);
    assert_ne!(damaged, ours.pem);
    let cases = [
        ("nowhere.crt".to_owned(), "nowhere.crt: No such file or directory"),
        (scene.file("empty.crt", ""), "empty.crt: no certificate in it; name a PEM file"),
        (scene.file("text.crt", "Dear server,\n"), "text.crt: no certificate in it"),
        (scene.file("damaged.crt", &damaged), "damaged.crt: a certificate in it cannot be used"),
        ("%2F".to_owned(), "/: Is a directory"),
    ];
    for (file, why) in cases {
        for mode in ["prefer", "require", "verify-full"] {
            let options = format!("sslmode={mode}&sslrootcert={file}");
            let said = scene.refusal("millstream", "localhost", &options);
            assert!(said.contains(why), "{said}");
        }
        let plain = format!("sslmode=disable&sslrootcert={file}");
        assert_eq!(scene.session("millstream", "localhost", &plain), Ok(false));
    }
    let (pem, key) = (scene.file("a.crt", &ours.pem), scene.file("text.key", "Dear server,\n"));
    let options = format!("sslmode=require&sslcert={pem}&sslkey={key}");
    let said = scene.refusal("millstream", "localhost", &options);
    assert!(said.contains("text.key: no private key without a passphrase in it"), "{said}");
}

/// The child of the next function: the machine's authorities are read as the environment says.
#[test]
fn child_that_trusts_whom_the_machine_does() {
    let Ok(url) = std::env::var("MILLSTREAM_TEST_URL") else { return };
    println!("session {:?}", has_tls(&url));
}

fn the_machine_s_own_authorities(scene: &Scene, ours: &Authority, others: &Authority) {
    let session = |file: &Path, options: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["store::tests::encrypted::child_that_trusts_whom_the_machine_does", "--exact"])
            .arg("--nocapture")
            .env("MILLSTREAM_TEST_URL", scene.url("millstream", "localhost", options))
            .env("SSL_CERT_FILE", file)
            .env("SSL_CERT_DIR", scene.files.0.join("none"))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let file = |name: &str, text: &str| {
        scene.file(name, text);
        scene.files.0.join(name)
    };
    let (right, wrong) = (file("machine.crt", &ours.pem), file("far.crt", &others.pem));
    for options in ["sslmode=verify-full", "sslrootcert=system"] {
        let said = session(&right, options);
        assert!(said.contains("session Ok(true)"), "{options}: {said}");
        let said = session(&wrong, options);
        assert!(said.contains("nobody who is trusted here has signed"), "{options}: {said}");
        let said = session(Path::new("/nowhere.crt"), options);
        assert!(said.contains("this machine has no certificates of authorities"), "{said}");
    }
}

fn sockets_of_this_machine_have_no_tls(scene: &Scene, right: &str) {
    let socket = scene.server.url("postgres");
    for options in ["sslmode=require", "sslmode=verify-full", &format!("sslmode=verify-ca&{right}")]
    {
        assert_eq!(has_tls(&format!("{socket}?{options}")), Ok(false), "{options}");
    }
    // Of several hosts each has what it can.
    let folder = socket.strip_prefix("postgres://millstream@").unwrap();
    let folder = folder.strip_suffix("/postgres").unwrap();
    let address = &scene.address;
    let both = |hosts: &str, mode: &str| {
        has_tls(&format!("postgres://millstream@{hosts}/postgres?sslmode={mode}"))
    };
    assert_eq!(both(&format!("{folder},{address}"), "prefer"), Ok(false));
    assert_eq!(both(&format!("{folder},{address}"), "require"), Ok(true));
    assert_eq!(both(&format!("{address},{folder}"), "prefer"), Ok(true));
}

fn a_certificate_that_signs_itself(scene: &Scene, itself: &Signed, right: &str) {
    let trusts = format!("sslrootcert={}", scene.file("itself.crt", &itself.pem));
    for (host, mode) in [("localhost", "verify-full"), ("db.example.net", "verify-ca")] {
        let options = format!("sslmode={mode}&{trusts}");
        assert_eq!(scene.session("millstream", host, &options), Ok(true), "{options}");
        assert_eq!(scene.session("millstream", host, "sslmode=require"), Ok(true));
    }
    let options = format!("sslmode=verify-full&{trusts}");
    let said = scene.refusal("millstream", "db.example.net", &options);
    assert!(said.contains("is for localhost, not for db.example.net"), "{said}");
    // Another of the same name is another.
    let other = scene.file("another.crt", &signs_itself("localhost").pem);
    for trusts in [format!("sslrootcert={other}"), right.to_owned()] {
        let options = format!("sslmode=verify-ca&{trusts}");
        let said = scene.refusal("millstream", "localhost", &options);
        assert!(said.contains("the server's certificate is an authority's"), "{said}");
        assert!(said.ends_with("name it: sslrootcert=FILE"), "{said}");
    }
}
