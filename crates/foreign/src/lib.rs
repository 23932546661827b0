//! The one place where bytes that others chose become text.
//!
//! A program, an interface, a function, a control group and a label are named by whoever makes
//! them, with almost any bytes (proc_pid_comm(5), dev_valid_name of the kernel). Nothing that has
//! such a name is left out because of it, and none says anything to a terminal, a page or a reader
//! of metrics. A byte that is no UTF-8 becomes `\xff`, so that two names stay two; control
//! characters, those that turn the direction of writing and those that XML 1.0 (2.2) has none of
//! become `\u001b`, as JSON has it: a JSON document stays one.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// Returns a name as a part of one line.
pub fn shown(bytes: impl AsRef<[u8]>) -> String {
    cleaned(bytes.as_ref(), is_unsafe).into_owned()
}

/// Returns the words of a command as a part of one line.
pub fn command(words: &[impl AsRef<OsStr>]) -> String {
    let words = words.iter().map(|word| shown(word.as_ref().as_encoded_bytes()));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns a text whose line feeds and tabs mean what they are: what is shown, a file of `/proc`.
pub fn lines(bytes: &[u8]) -> Cow<'_, str> {
    cleaned(bytes, |letter| is_unsafe(letter) && !matches!(letter, '\n' | '\t'))
}

/// Returns what a program wrote as a text to look for something in, as JSON. The caller shows what
/// it finds there by [`shown`].
pub fn to_parse(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Returns a text for SVG and HTML, in an element or between quotation marks.
pub fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in lines(text.as_bytes()).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// Returns the value of a label for Prometheus, between quotation marks (its text format, 0.0.4).
pub fn label(text: &str) -> String {
    // `shown` escapes with one backslash, which a reader would take for an escape of its own.
    shown(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Reads a file of `/proc`, `/sys` or of somebody else as [`lines`].
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(lines(&std::fs::read(path)?).into_owned())
}

/// Reads a file that holds one name and a line feed, as `/proc/PID/comm`, as [`shown`].
pub fn read_name(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = std::fs::read(path)?;
    Ok(shown(bytes.strip_suffix(b"\n").unwrap_or(&bytes)))
}

fn cleaned(bytes: &[u8], is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_plain = bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    if let Ok(text) = std::str::from_utf8(bytes)
        && (is_plain || !text.contains(&is_unsafe))
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    // A string takes everything.
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match is_unsafe(letter) {
                true => letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                    let _ = write!(out, "\\u{unit:04x}");
                }),
                false => out.push(letter),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    Cow::Owned(out)
}

/// Returns true for a character that changes the text around it, or that XML 1.0 does not have.
fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            // Direction of writing (Unicode Standard Annex 9), and what parts lines.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Letters that take no room, and hidden tags.
            | '\u{200b}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
            | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: &[u8] = b"a\x1b]0;X\x07\n\r\xff\xc2\x9b1m\xe2\x80\xaeb\xef\xbf\xbf\xd0";

    #[test]
    fn a_name_is_one_line_without_anything_that_a_terminal_obeys() {
        let text = shown(ODD);
        assert_eq!(text, r"a\u001b]0;X\u0007\u000a\u000d\xff\u009b1m\u202eb\uffff\xd0");
        assert_eq!(shown("мельница 水車 µ"), "мельница 水車 µ");
        let kept = lines(b"a\tb\nc\x1b[0m\r\xff");
        assert_eq!(kept, "a\tb\nc\\u001b[0m\\u000d\\xff");
        assert!(matches!(lines(b"cpu  1 2\n"), Cow::Borrowed(_)));
        assert_eq!(
            lines("{\"a\": \"\u{9b}\u{e0001}\"}".as_bytes()),
            r#"{"a": "\u009b\udb40\udc01"}"#
        );
    }

    /// XML 1.0, 2.2: `Char`.
    #[test]
    fn every_character_makes_markup_that_xml_has() {
        let is_char = |letter: char| matches!(letter, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
        for letter in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let text = markup(letter.encode_utf8(&mut [0; 4]));
            assert!(
                text.chars().all(is_char) && !text.contains(['<', '"']),
                "{letter:?}: {text:?}"
            );
        }
        assert_eq!(markup("<a b=\"c\" d='&'>"), "&lt;a b=&quot;c&quot; d=&#39;&amp;&#39;&gt;");
    }

    #[test]
    fn a_label_ends_at_its_own_quotation_mark_alone() {
        assert_eq!(label("a\"b\\c\nd"), r#"a\"b\\c\\u000ad"#);
    }

    #[test]
    fn a_file_of_one_name_loses_its_last_line_feed_alone() {
        let path = std::env::temp_dir().join(format!("ms-foreign-{}", std::process::id()));
        std::fs::write(&path, b" \n\xff\n").unwrap();
        assert_eq!(
            (read_name(&path).unwrap(), read(&path).unwrap()),
            (r" \u000a\xff".into(), " \n\\xff\n".into())
        );
        std::fs::remove_file(&path).unwrap();
    }
}
