//! Why there is no TLS with a server, and what to do.

use postgres::Error;
use rustls::CertificateError;

use super::super::error::whole;
use super::of_rustls;

/// Whether TLS could not be agreed on.
pub(super) fn is_of_handshake(error: &Error) -> bool {
    error.to_string().contains("TLS handshake")
}

/// What was wrong and what to do, where it is TLS's.
pub(in crate::store) fn explained(error: &Error) -> Option<(String, &'static str)> {
    if let Some(said) = of_rustls(error) {
        return Some(of(said));
    }
    let why = whole(error);
    if why.contains("server does not support TLS") {
        return Some((
            "the server has no TLS, which sslmode asks for".to_owned(),
            "turn it on there (ssl = on), or do without (sslmode=prefer) where the network is trusted",
        ));
    }
    is_of_handshake(error).then_some((why, "look into the server's log"))
}

fn of(said: &rustls::Error) -> (String, &'static str) {
    use CertificateError as Wrong;
    match said {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            Wrong::UnknownIssuer => (
                "nobody who is trusted here has signed the server's certificate".to_owned(),
                "name the certificate of its authority: sslrootcert=FILE",
            ),
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => (
                other_name(wrong),
                "name the server as its certificate does (hostaddr=ADDRESS says where it is), or do without its \
                 name (sslmode=verify-ca)",
            ),
            Wrong::Expired | Wrong::ExpiredContext { .. } => (
                "the time of the server's certificate is over".to_owned(),
                "renew it on the server, or put this machine's clock right",
            ),
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => (
                "the time of the server's certificate has not come".to_owned(),
                "put this machine's clock right, or the server's certificate",
            ),
            other => unusable(&format!("{other:?}")),
        },
        rustls::Error::AlertReceived(alert) => (
            format!("the server ends TLS: {alert:?}"),
            "look into its log; a certificate of yours is given by sslcert=FILE and sslkey=FILE",
        ),
        other => (format!("no TLS with the server: {other}"), "let it speak TLS 1.2 or 1.3"),
    }
}

/// What only the library below has a name for.
fn unusable(wrong: &str) -> (String, &'static str) {
    if wrong.contains("CaUsedAsEndEntity") {
        let why =
            "the server's certificate is an authority's, and not itself one that is trusted here";
        return (why.to_owned(), "name it: sslrootcert=FILE");
    }
    let version = wrong.contains("UnsupportedCertVersion");
    let wrong = if version { "it is of X.509 version 1" } else { wrong };
    (
        format!("the server's certificate cannot be used: {wrong}"),
        "give the server one of X.509 version 3 for servers (subjectAltName names it)",
    )
}

fn other_name(wrong: &CertificateError) -> String {
    let CertificateError::NotValidForNameContext { expected, presented } = wrong else {
        return "the server's certificate is not for this host".to_owned();
    };
    // Each is written as `DnsName("localhost")` or `IpAddress(127.0.0.1)`.
    let inside = |one: &String| {
        let inner = one.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        inner.unwrap_or(one).trim_matches('"').to_owned()
    };
    let expected = expected.to_str();
    let names: Vec<String> = presented.iter().map(inside).collect();
    match &names[..] {
        [] => {
            format!("the server's certificate names no host (subjectAltName), and not {expected}")
        }
        names => {
            format!("the server's certificate is for {}, not for {expected}", names.join(", "))
        }
    }
}
