//! TLS with a real server, by certificates that are made here.

use std::process::Command;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

use super::super::server::Dialer;
use super::both::{a_lost_connection_loses_no_run, what_was_saved_comes_back_in_order};
use super::test_server::TestServer;
use super::*;

/// The users that may come, and how.
const USERS: &str = "
    local     all all        trust
    hostssl   all sealed     127.0.0.0/8 trust
    host      all worded     127.0.0.0/8 scram-sha-256
    host      all millstream 127.0.0.0/8 trust
";

/// A signer of certificates.
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

const LATER: i32 = 4000;
const OVER: i32 = 2002;

/// A server, where it is, and the authorities that its users trust.
struct Scene {
    server: TestServer,
    address: String,
    files: Folder,
}

impl Scene {
    fn new() -> Option<Self> {
        let server = TestServer::start()?;
        let Location::Server(at) = located(&server.url("postgres")) else { panic!() };
        Dialer::new(&at)
            .dial()
            .unwrap()
            .batch_execute("CREATE ROLE sealed LOGIN; CREATE ROLE worded LOGIN PASSWORD 'a word'")
            .unwrap();
        // Every process of a machine has a loopback address of its own.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let address = format!("127.{}.{middle}.{low}", 64 + (high & 63));
        Some(Self { server, address, files: Folder::new() })
    }

    /// Starts the server anew, without TLS or with this certificate.
    fn serves(&mut self, certificate: Option<&Signed>) {
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
        }
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        self.server.restart(&settings);
    }

    /// Returns what the child says of a session, on a machine that trusts this authority.
    fn session(&self, trusted: &Authority, user: &str, host: &str, options: &str) -> String {
        let file = self.files.0.join("authority.crt");
        fs::write(&file, &trusted.pem).unwrap();
        let url = format!("postgres://{user}@{host}/postgres?hostaddr={}&{options}", self.address);
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["store::tests::encrypted::child_that_trusts_whom_the_machine_does", "--exact"])
            .arg("--nocapture")
            .env("MILLSTREAM_TEST_URL", url)
            .env("SSL_CERT_FILE", file)
            .env("SSL_CERT_DIR", self.files.0.join("none"))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Nothing of the environment's.
fn located(url: &str) -> Location {
    Location::parse_in(url.as_ref(), &|_| None).unwrap()
}

/// The child of [`Scene::session`]: the machine's authorities are read as the environment says.
#[test]
fn child_that_trusts_whom_the_machine_does() {
    let Ok(url) = std::env::var("MILLSTREAM_TEST_URL") else { return };
    let at = located(&url);
    let Location::Server(server) = &at else { panic!("{url}") };
    let row = Dialer::new(server).dial().and_then(|mut client| {
        client.query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[])
    });
    let has_tls: Result<bool, String> = row
        .and_then(|row| row.try_get(0))
        .map_err(|error| StoreError::from_postgres(&at, &error).to_string());
    println!("session {has_tls:?}");
    if url.ends_with("&application_name=store") {
        what_was_saved_comes_back_in_order(&at);
        a_lost_connection_loses_no_run(&at);
        println!("kept");
    }
}

/// Servers are started anew here, which takes longer than other tests: four seconds on a quiet
/// machine.
#[test]
fn a_server_proves_its_name_or_there_is_no_session() {
    let Some(mut scene) = Scene::new() else { return };
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let (with, without) = ("session Ok(true)", "session Ok(false)");
    scene.serves(None);
    for (options, says) in [
        ("", without),
        ("sslmode=prefer", without),
        ("sslmode=disable", without),
        ("sslmode=require", "does not support TLS; turn it on there"),
    ] {
        let said = scene.session(&ours, "millstream", "localhost", options);
        assert!(said.contains(says), "{options}: {said}");
    }
    scene.serves(Some(&ours.signs("localhost", LATER)));
    let cases = [
        (&ours, "millstream", "localhost", "", with),
        (&ours, "millstream", "localhost", "sslmode=require", with),
        (&ours, "millstream", "localhost", "sslmode=disable", without),
        // Another authority, and another name.
        (&others, "millstream", "localhost", "", "SSL_CERT_FILE=FILE names"),
        (&others, "millstream", "localhost", "sslmode=disable", without),
        (&ours, "millstream", "db.example.net", "sslmode=require", "name the server as its"),
        // The server wants it, and a password is bound to its certificate.
        (&ours, "sealed", "localhost", "", with),
        (&ours, "sealed", "localhost", "sslmode=disable", "ask for TLS: sslmode=require"),
        (&ours, "worded:a%20word", "localhost", "channel_binding=require", with),
        (&ours, "worded:another", "localhost", "", "password authentication failed"),
        (&ours, "millstream", "localhost", "sslmode=require&application_name=store", "kept"),
    ];
    for (trusted, user, host, options, says) in cases {
        let said = scene.session(trusted, user, host, options);
        assert!(said.contains(says), "{user} {host} {options}: {said}");
    }
    scene.serves(Some(&ours.signs("localhost", OVER)));
    let said = scene.session(&ours, "millstream", "localhost", "");
    assert!(said.contains("expired"), "{said}");
    // On a socket of this machine nobody asks for TLS.
    let socket = located(&scene.server.url("postgres"));
    let Location::Server(server) = socket else { panic!() };
    assert!(Dialer::new(&server).dial().is_ok());
}
