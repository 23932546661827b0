//! What the applications do: they write, read and close, and check every byte.

use super::world::{PERIOD, World, patterns};

impl World<'_> {
    pub fn read(&mut self, index: usize, most: usize) {
        let mut buffer = [0; 8192];
        let mut left = most;
        let [first, second] = &mut self.sides;
        let (side, peer) = if index == 0 { (first, second) } else { (second, first) };
        let Some(connection) = side.connection.as_mut() else { return };
        while left > 0 && !side.shut_read && !side.eof {
            let want = left.min(buffer.len());
            match connection.read(&mut buffer[..want]) {
                // closed from here, before the peer's end came
                Ok(0) if connection.is_closed() => return,
                Ok(0) => {
                    side.eof = true;
                    assert_eq!(side.read, peer.to_write, "the stream of the peer ended early");
                    assert!(peer.shutdown || peer.close || peer.closed, "an end that nobody made");
                    return;
                }
                Ok(n) => {
                    let at = side.read as usize % PERIOD;
                    let same = buffer[..n] == patterns()[1 - index][at..at + n];
                    assert!(same, "end {index} reads other bytes than were written");
                    side.read += n as u64;
                    left -= n;
                }
                Err(_) => return,
            }
        }
    }

    fn write(&mut self, index: usize) {
        let side = &mut self.sides[index];
        let Some(connection) = side.connection.as_mut() else { return };
        while side.written < side.to_write {
            let at = side.written as usize % PERIOD;
            let len = ((side.to_write - side.written) as usize).min(PERIOD);
            match connection.write(&self.pool, &patterns()[index][at..at + len]) {
                Ok(n) => side.written += n as u64,
                Err(_) => return,
            }
        }
        if side.shutdown {
            connection.shutdown_write();
        }
        if side.close && !side.closed && (side.eof || !self.finale || side.shut_read) {
            side.closed = true;
            // what is or comes unread makes it a reset
            side.may_reset |= !side.eof;
            connection.close();
        } else if side.close && !side.closed {
            connection.shutdown_write();
        }
    }

    /// The application's and the sender's turn, and the checks.
    pub fn attend(&mut self, index: usize) {
        if self.sides[index].connection.is_none() {
            return;
        }
        if self.sides[index].eager {
            self.read(index, usize::MAX);
        }
        self.write(index);
        self.transmit(index);
        self.check(index);
        self.bury(index);
    }

    /// Takes a closed connection away.
    fn bury(&mut self, index: usize) {
        let side = &mut self.sides[index];
        let Some(connection) = side.connection.as_ref() else { return };
        self.reached.states |= 1 << connection.state() as u16;
        if !connection.is_closed() {
            return;
        }
        side.error = connection.error();
        // data that came before the end can still be read
        self.read(index, usize::MAX);
        let side = &mut self.sides[index];
        let Some(connection) = side.connection.take() else { return };
        side.gone = true;
        self.reached.take(&connection.info(), side.error);
        self.say(|| format!("end {index} is closed: {:?}", connection.error()));
    }
}
