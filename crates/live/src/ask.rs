//! Questions to an engine that runs, by its control socket.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::record::Record;
use crate::segment::Segment;

/// Bytes of an answer that are read: some two million routes, or segments.
const ANSWER_BYTES: u64 = 512 << 20;
/// Bytes of a line.
const LINE_BYTES: u64 = 64 << 10;

/// Why there is no whole answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum AskError {
    /// The socket is not there, or the engine said nothing in time.
    Socket(io::Error),
    /// The engine does not answer that; its words.
    Refused(String),
    /// It stopped in the middle.
    Unfinished,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(error) => write!(f, "the control socket: {error}"),
            Self::Refused(why) => f.write_str(why),
            Self::Unfinished => f.write_str("the engine did not finish its answer"),
        }
    }
}

impl std::error::Error for AskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Socket(error) => Some(error),
            _ => None,
        }
    }
}

impl Segment {
    /// Asks the engine a question (docs/live.md), and hands each line of the answer on as it comes,
    /// until `each` breaks off. The engine may take `patience` for each part of it.
    ///
    /// # Errors
    /// When there is no answer, or not all of it.
    pub fn ask(
        &self,
        question: &str,
        patience: Duration,
        mut each: impl FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), AskError> {
        if let Some(kept) = self.kept() {
            let lines = kept.answer(question).map_err(AskError::Refused)?;
            let _ = lines.into_iter().try_for_each(each);
            return Ok(());
        }
        let mut stream = UnixStream::connect(self.socket_path()).map_err(AskError::Socket)?;
        stream.set_read_timeout(Some(patience)).map_err(AskError::Socket)?;
        stream.set_write_timeout(Some(patience)).map_err(AskError::Socket)?;
        stream.write_all(format!("{question}\n").as_bytes()).map_err(AskError::Socket)?;
        let mut lines = BufReader::new(stream.take(ANSWER_BYTES));
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line);
            if read.map_err(AskError::Socket)? == 0 || line.last() != Some(&b'\n') {
                return Err(AskError::Unfinished);
            }
            let record = Record::parse(&millstream_foreign::lines(&line));
            if record.kind == "end" {
                return Ok(());
            }
            if record.kind == "error" {
                let why = record.get("why").unwrap_or("refused");
                return Err(AskError::Refused(why.to_owned()));
            }
            if each(record).is_break() {
                return Ok(());
            }
        }
    }
}
