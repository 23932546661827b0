//! Which sockets are meant, in the words of ss(8).

use std::cmp::Ordering;
use std::net::{IpAddr, SocketAddr};

use millstream_live::Record;

/// Which sockets.
#[derive(Debug, Default)]
pub struct Filter {
    states: Option<Vec<&'static str>>,
    excluded: Vec<&'static str>,
    expression: Option<Expression>,
}

#[derive(Debug)]
enum Expression {
    Not(Box<Self>),
    Both(Box<Self>, Box<Self>),
    Either(Box<Self>, Box<Self>),
    Port { of: &'static str, is: Is, port: u16 },
    Address { of: &'static str, is: Is, address: IpAddr, bits: u8, port: Option<u16> },
}

/// How a port or an address compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Equal,
    Other,
    Least,
    Most,
    Less,
    More,
}

/// Names of states for people, and as engines write them.
const STATES: [(&str, &[&str]); 15] = [
    ("established", &["ESTAB"]),
    ("syn-sent", &["SYN-SENT"]),
    ("syn-recv", &["SYN-RECV", "SYN-RECEIVED"]),
    ("fin-wait-1", &["FIN-WAIT-1"]),
    ("fin-wait-2", &["FIN-WAIT-2"]),
    ("time-wait", &["TIME-WAIT"]),
    ("closed", &["UNCONN", "CLOSED"]),
    ("close-wait", &["CLOSE-WAIT"]),
    ("last-ack", &["LAST-ACK"]),
    ("listening", &["LISTEN"]),
    ("closing", &["CLOSING"]),
    ("all", &[]),
    ("connected", CONNECTED),
    ("synchronized", CONNECTED.split_at(1).1),
    ("bucket", &["SYN-RECV", "SYN-RECEIVED", "TIME-WAIT"]),
];
const CONNECTED: &[&str] = &[
    "SYN-SENT",
    "ESTAB",
    "SYN-RECV",
    "SYN-RECEIVED",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "CLOSE-WAIT",
    "LAST-ACK",
    "CLOSING",
];

/// Words that begin an expression, and the end of a socket that they are about.
const ENDS: [(&str, &str); 4] =
    [("sport", "local"), ("dport", "remote"), ("src", "local"), ("dst", "remote")];

/// Returns true where a word begins a filter.
pub fn begins_filter(word: &str) -> bool {
    let first = word.split([' ', '(', '!']).find(|word| !word.is_empty()).unwrap_or("(");
    ["state", "exclude", "(", "not"].contains(&first) || ENDS.iter().any(|(word, _)| *word == first)
}

impl Filter {
    /// Reads one; without a word all sockets are meant.
    ///
    /// # Errors
    /// The word that is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let spaced = ["(", ")", "!=", "<=", ">=", "==", "=", "<", ">"];
        let words = words(text, &spaced);
        let mut words = Words { words: &words };
        let mut filter = Self::default();
        while let Some(word @ ("state" | "exclude")) = words.first() {
            words.next();
            let name = words.next().ok_or_else(|| format!("'{word}' of which state?"))?;
            let known = STATES.iter().find(|(known, _)| *known == name);
            let (_, states) = known.ok_or_else(|| {
                let names: Vec<&str> = STATES.iter().map(|(name, _)| *name).collect();
                format!("no state '{name}'; there are {}", names.join(", "))
            })?;
            match word {
                "exclude" => filter.excluded.extend(*states),
                _ if name == "all" => {}
                _ => filter.states.get_or_insert_default().extend(*states),
            }
        }
        if words.first().is_some() {
            filter.expression = Some(words.either()?);
        }
        match words.next() {
            None => Ok(filter),
            Some(word) => Err(format!("'{word}' does not go on the filter")),
        }
    }

    /// Returns true for a socket that is meant.
    pub fn takes(&self, socket: &Record) -> bool {
        let state = socket.get("state").unwrap_or("-");
        self.states.as_ref().is_none_or(|states| states.contains(&state))
            && !self.excluded.contains(&state)
            && self.expression.as_ref().is_none_or(|expression| expression.is_so(socket))
    }
}

/// Returns the words of a text, in which signs need no spaces around them.
fn words(text: &str, signs: &[&str]) -> Vec<String> {
    let (mut all, mut word, mut rest) = (Vec::new(), String::new(), text);
    while let Some(first) = rest.chars().next() {
        let sign = signs.iter().find(|sign| rest.starts_with(**sign));
        if (sign.is_some() || first.is_whitespace()) && !word.is_empty() {
            all.push(std::mem::take(&mut word));
        }
        let len = match sign {
            Some(sign) => {
                all.push((*sign).to_owned());
                sign.len()
            }
            None => {
                word.extend((!first.is_whitespace()).then_some(first));
                first.len_utf8()
            }
        };
        rest = &rest[len..];
    }
    all.extend((!word.is_empty()).then_some(word));
    all
}

/// The words that are left.
struct Words<'a> {
    words: &'a [String],
}

impl<'a> Words<'a> {
    fn first(&self) -> Option<&'a str> {
        self.words.first().map(String::as_str)
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn either(&mut self) -> Result<Expression, String> {
        let mut left = self.both()?;
        while matches!(self.first(), Some("or" | "|" | "||")) {
            self.next();
            left = Expression::Either(Box::new(left), Box::new(self.both()?));
        }
        Ok(left)
    }

    /// Two that follow each other without a word between are both to be so.
    fn both(&mut self) -> Result<Expression, String> {
        let mut left = self.one()?;
        while let Some(word) = self.first().filter(|word| !["or", "|", "||", ")"].contains(word)) {
            if ["and", "&", "&&"].contains(&word) {
                self.next();
            }
            left = Expression::Both(Box::new(left), Box::new(self.one()?));
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<Expression, String> {
        match self.next().ok_or("the filter ends too soon")? {
            "not" | "!" => Ok(Expression::Not(Box::new(self.one()?))),
            "(" => {
                let inner = self.either()?;
                match self.next() {
                    Some(")") => Ok(inner),
                    _ => Err("a bracket is not closed".to_owned()),
                }
            }
            word => {
                let known = ENDS.iter().find(|(known, _)| *known == word);
                let (_, of) = known.ok_or_else(|| format!("'{word}' begins no filter"))?;
                self.compared(word, of)
            }
        }
    }

    /// Returns what is compared with an end.
    fn compared(&mut self, word: &str, of: &'static str) -> Result<Expression, String> {
        let sign = |word: &str| {
            Some(match word {
                "=" | "==" | "eq" => Is::Equal,
                "!=" | "ne" | "neq" => Is::Other,
                ">=" | "ge" | "geq" => Is::Least,
                "<=" | "le" | "leq" => Is::Most,
                "<" | "lt" => Is::Less,
                ">" | "gt" => Is::More,
                _ => return None,
            })
        };
        let is = self.first().and_then(sign);
        if is.is_some() {
            self.next();
        }
        let (is, value) = (is.unwrap_or(Is::Equal), self.next());
        let value = value.ok_or_else(|| format!("'{word}' is compared with nothing"))?;
        let wrong = || format!("'{value}' is no address or port");
        if word.ends_with("port") {
            let port = value.trim_start_matches(':').parse().map_err(|_| wrong())?;
            return Ok(Expression::Port { of, is, port });
        }
        if let Some(port) = value.strip_prefix(':') {
            let port = port.parse().map_err(|_| wrong())?;
            return Ok(Expression::Port { of, is, port });
        }
        let (value, port) = match value.parse::<SocketAddr>() {
            Ok(both) => (both.ip().to_string(), Some(both.port())),
            Err(_) => (value.replace(['[', ']'], ""), None),
        };
        let (address, bits) = value.split_once('/').unwrap_or((&value, "128"));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = bits.parse().map_err(|_| wrong())?;
        Ok(Expression::Address { of, is, address, bits, port })
    }
}

impl Expression {
    fn is_so(&self, socket: &Record) -> bool {
        let end = |of: &str| socket.get(of)?.parse::<SocketAddr>().ok();
        match self {
            Self::Not(one) => !one.is_so(socket),
            Self::Both(one, other) => one.is_so(socket) && other.is_so(socket),
            Self::Either(one, other) => one.is_so(socket) || other.is_so(socket),
            // A socket without that end has port 0, as ss has it.
            Self::Port { of, is, port } => is.holds(end(of).map_or(0, |end| end.port()).cmp(port)),
            Self::Address { of, is, address, bits, port } => end(of).is_some_and(|end| {
                let same = within(end.ip().to_canonical(), *address, *bits)
                    && port.is_none_or(|port| port == end.port());
                same == (*is != Is::Other)
            }),
        }
    }
}

impl Is {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::Other => order.is_ne(),
            Self::Least => order.is_ge(),
            Self::Most => order.is_le(),
            Self::Less => order.is_lt(),
            Self::More => order.is_gt(),
        }
    }
}

/// Returns true where the first `bits` of both addresses are the same.
fn within(one: IpAddr, other: IpAddr, bits: u8) -> bool {
    let (one, other, width) = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (one.to_bits().into(), u128::from(other.to_bits()), 32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits(), 128),
        _ => return false,
    };
    let off = 128_u32 - u32::from(bits.min(width)) - (128 - u32::from(width));
    (one ^ other).checked_shr(off).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(filter: &str, state: &str, ends: [&str; 2]) -> bool {
        let [local, remote] = ends;
        let line = format!("socket state={state} local={local} remote={remote}");
        Filter::parse(filter).unwrap().takes(&Record::parse(&line))
    }

    #[test]
    fn sockets_are_taken_by_state_port_and_address() {
        let web = ["10.0.0.1:40000", "10.0.0.2:443"];
        let served = ["10.0.0.1:80", "10.9.0.2:5000"];
        let filter = "state established ( dport = :443 or sport = :80 )";
        assert!(takes(filter, "ESTAB", web) && takes(filter, "ESTAB", served));
        assert!(!takes(filter, "CLOSE-WAIT", web));
        assert!(!takes(filter, "ESTAB", ["10.0.0.1:81", "10.0.0.2:444"]));
        assert!(takes("(dport=:443)", "ESTAB", web), "signs need no spaces");
        assert!(takes("sport >= 40000 dst 10.0.0.0/24", "ESTAB", web));
        assert!(!takes("dst 10.0.0.0/24", "ESTAB", served));
        assert!(takes("dst 10.9.0.2:5000 and not dport lt 5000", "ESTAB", served));
        assert!(takes("not dst 10.9.0.0/16", "ESTAB", web));
        assert!(takes("exclude listening", "ESTAB", web));
        assert!(!takes("exclude listening", "LISTEN", web));
        assert!(takes("state connected", "SYN-SENT", web));
        assert!(!takes("state synchronized", "SYN-SENT", web));
        assert!(takes("", "UNCONN", web) && takes("state all", "UNCONN", web));
        assert!(takes("dst 2001:db8::/32", "ESTAB", ["[::1]:1", "[2001:db8::1]:9"]));
    }

    #[test]
    fn what_is_no_filter_is_refused_with_its_word() {
        for (filter, word) in [
            ("state up", "'up'"),
            ("dport = x", "'x'"),
            ("( dport = 1", "not closed"),
            ("dport = 1 )", "')'"),
            ("port = 1", "'port'"),
            ("dport =", "nothing"),
            ("state", "which state"),
        ] {
            let why = Filter::parse(filter).unwrap_err();
            assert!(why.contains(word), "{filter}: {why}");
        }
        assert!(!begins_filter("proxy") && begins_filter("( sport = 1 )"));
    }
}
