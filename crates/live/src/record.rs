//! Lines of text with named fields: `kind key=value key=value`. The schema and the answers of the
//! control socket are made of them.
//!
//! Bytes of a value that are no printable ASCII, spaces, and `%` are written as `%` and two
//! hexadecimal digits.

use std::fmt::{self, Write};

use millstream_foreign::shown;

/// Fields that one line has at most; what follows is not read.
const FIELDS_MOST: usize = 256;

/// Writes the fields of a line.
pub struct Fields<'a> {
    out: &'a mut String,
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fields").finish_non_exhaustive()
    }
}

impl<'a> Fields<'a> {
    /// Begins a line of this kind behind what `out` has. [`end`](Self::end) ends it.
    pub fn begin(out: &'a mut String, kind: &str) -> Self {
        out.push_str(kind);
        Self { out }
    }

    /// Adds a field. A key has letters, digits and `_`.
    pub fn put(&mut self, key: &str, value: impl fmt::Display) -> &mut Self {
        self.out.push(' ');
        self.out.push_str(key);
        self.out.push('=');
        // A string takes everything.
        let _ = write!(Escaped(self.out), "{value}");
        self
    }

    /// Adds a field with a number: the same text as by [`put`](Self::put), sooner.
    pub fn put_number(&mut self, key: &str, mut number: u64) -> &mut Self {
        let (mut digits, mut from) = ([0; 20], 20);
        loop {
            from -= 1;
            digits[from] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.out.push(' ');
        self.out.push_str(key);
        self.out.push('=');
        self.out.push_str(str::from_utf8(&digits[from..]).unwrap_or_default());
        self
    }

    /// Ends the line.
    pub fn end(self) {
        self.out.push('\n');
    }
}

/// Escapes what is written.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_escaped = |byte: u8| matches!(byte, b'%' | 0..=b' ' | 0x7f..);
        if !text.bytes().any(is_escaped) {
            self.0.push_str(text);
            return Ok(());
        }
        for &byte in text.as_bytes() {
            match byte {
                escaped if is_escaped(escaped) => write!(self.0, "%{byte:02x}")?,
                plain => self.0.push(char::from(plain)),
            }
        }
        Ok(())
    }
}

/// A line that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The first word.
    pub kind: String,
    /// Keys with their values, in order.
    pub fields: Vec<(String, String)>,
}

impl Record {
    /// Reads a line. Any text is one: words without a key are left out, and so is what follows the
    /// 256th field.
    pub fn parse(line: &str) -> Self {
        let mut words = line.split_ascii_whitespace();
        let kind = shown(words.next().unwrap_or_default());
        let fields = words.filter_map(|word| word.split_once('='));
        let fields = fields.map(|(key, value)| (shown(key), unescape(value)));
        Self { kind, fields: fields.take(FIELDS_MOST).collect() }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the value of a key as a number; `None` also when it is none.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }
}

/// Takes the escapes out: a label is whatever an application calls its links and sockets.
fn unescape(value: &str) -> String {
    if !value.contains('%') {
        return shown(value);
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let escaped = (byte == b'%').then(|| behind.first_chunk::<2>()).flatten();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        match escaped.and_then(|[high, low]| Some(digit(*high)? * 16 + digit(*low)?)) {
            Some(decoded) => {
                bytes.push(decoded as u8);
                rest = &behind[2..];
            }
            None => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    shown(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_is_the_same_text(number: u64, bits in 0..64) {
            let (mut one, mut other) = (String::new(), String::new());
            Fields::begin(&mut one, "kind").put("key", number >> bits);
            Fields::begin(&mut other, "kind").put_number("key", number >> bits);
            prop_assert_eq!(one, other);
        }

        #[test]
        fn what_is_written_is_read(values in proptest::collection::vec(".*", 0..8)) {
            let mut text = String::new();
            let mut fields = Fields::begin(&mut text, "kind");
            for (at, value) in values.iter().enumerate() {
                fields.put(&format!("k{at}"), value);
            }
            fields.end();
            prop_assert_eq!(text.matches('\n').count(), 1);
            let record = Record::parse(&text);
            prop_assert_eq!(record.kind.as_str(), "kind");
            let read: Vec<&String> = record.fields.iter().map(|(_, value)| value).collect();
            let expected: Vec<String> = values.iter().map(shown).collect();
            prop_assert_eq!(read, expected.iter().collect::<Vec<_>>());
        }

        #[test]
        fn any_text_can_be_read(line in ".*") {
            let record = Record::parse(&line);
            prop_assert!(record.fields.len() <= FIELDS_MOST);
        }
    }
}
