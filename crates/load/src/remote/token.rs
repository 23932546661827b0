//! The secret that both sides of a control connection have.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use millstream_record::error::Error;

/// Shortest and longest token, in bytes without the blanks around it.
const BYTES: std::ops::RangeInclusive<usize> = 16..=1024;

/// A secret that both sides have. It is never sent, and never shown.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// A token of these characters, without the blanks around them.
    pub fn new(text: &str) -> Result<Self, Error> {
        let bytes = text.trim().as_bytes();
        if !BYTES.contains(&bytes.len()) {
            let (least, most) = (BYTES.start(), BYTES.end());
            return Err(Error::Refused(format!(
                "the token has {} bytes; allowed: {least} to {most} (`openssl rand -hex 32` makes one)",
                bytes.len()
            )));
        }
        Ok(Self(bytes.to_vec()))
    }

    /// The token in a file that nobody but its owner may read.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let named = path.display();
        let refused = |error: std::io::Error| Error::Refused(format!("{named}: {error}"));
        let file = std::fs::File::open(path).map_err(refused)?;
        let mode = file.metadata().map_err(refused)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(Error::Refused(format!(
                "{named}: others may read or write it; chmod 600 {named}"
            )));
        }
        let mut text = String::new();
        #[expect(clippy::disallowed_methods, reason = "a token is ASCII")]
        file.take(*BYTES.end() as u64 + 64).read_to_string(&mut text).map_err(refused)?;
        Self::new(&text)
    }

    /// Returns the token of the file, else of the variable `MILLSTREAM_TOKEN`.
    pub fn find(file: Option<&Path>) -> Result<Self, Error> {
        match (file, std::env::var("MILLSTREAM_TOKEN")) {
            (Some(file), _) => Self::from_file(file),
            (None, Ok(text)) => Self::new(&text),
            (None, Err(_)) => {
                let how = "say --token-file FILE, or set MILLSTREAM_TOKEN";
                Err(Error::Refused(format!("a token is missing; {how}")))
            }
        }
    }

    /// Returns the token of a program and of who has started it, which need no secret: nobody else
    /// has its standard input. Codes show a stream that was changed on its way, as by a terminal.
    pub(super) fn of_who_starts() -> Self {
        Self(b"standard input".to_vec())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn a_token_that_others_may_read_or_that_is_short_is_refused() {
        let path = std::env::temp_dir().join(format!("millstream-token-{}", std::process::id()));
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let with = |mode| {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Token::from_file(&path)
        };
        assert_eq!(with(0o600).unwrap().bytes(), b"0123456789abcdef");
        for open in [0o640, 0o604, 0o620, 0o666] {
            assert!(with(open).unwrap_err().to_string().contains("chmod 600"), "{open:o}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(Token::from_file(&path).is_err());
        assert!(Token::new(" 0123456789abcde ").is_err() && Token::new(&"x".repeat(1025)).is_err());
        assert_eq!(format!("{:?}", Token::new("0123456789abcdef").unwrap()), "Token");
    }
}
