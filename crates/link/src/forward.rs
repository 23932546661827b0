//! Handing calls on, for links that wrap another.

/// Writes the named methods of [`Link`](crate::Link) that hand the call on to the link inside, for
/// use in an `impl` of that trait. The name of `self` comes first, then where that link is.
///
/// ```
/// use millstream_link::{forward_link, Link, LinkError, PairEnd};
/// use millstream_packet::{Instant, PacketBatch, Pool};
///
/// /// Counts its batches.
/// struct Counting { end: PairEnd, batches: u64 }
///
/// impl Link for Counting {
///     forward_link!(self => self.end; capabilities, transmit, wait_fd, prepare_sleep, stats, name);
///
///     fn receive(&mut self, now: Instant, pool: &Pool, batch: &mut PacketBatch) -> Result<usize, LinkError> {
///         self.batches += 1;
///         self.end.receive(now, pool, batch)
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_link {
    ($self:ident => $inner:expr; $($method:ident),+ $(,)?) => {
        $($crate::forward_link!(@ $method, $self, $inner);)+
    };
    (@ capabilities, $self:ident, $inner:expr) => {
        fn capabilities(&$self) -> &$crate::Capabilities {
            $inner.capabilities()
        }
    };
    (@ receive, $self:ident, $inner:expr) => {
        fn receive(
            &mut $self,
            now: $crate::packet::Instant,
            pool: &$crate::packet::Pool,
            batch: &mut $crate::packet::PacketBatch,
        ) -> Result<usize, $crate::LinkError> {
            $inner.receive(now, pool, batch)
        }
    };
    (@ places, $self:ident, $inner:expr) => {
        fn places(&$self) -> bool {
            $inner.places()
        }
    };
    (@ receive_into, $self:ident, $inner:expr) => {
        fn receive_into(
            &mut $self,
            now: $crate::packet::Instant,
            pool: &$crate::packet::Pool,
            head_len: usize,
            memory: &mut [u8],
        ) -> Result<Option<$crate::Placed>, $crate::LinkError> {
            $inner.receive_into(now, pool, head_len, memory)
        }
    };
    (@ show, $self:ident, $inner:expr) => {
        fn show(
            &mut $self,
            now: $crate::packet::Instant,
            pool: &$crate::packet::Pool,
            limit: usize,
            take: &mut dyn FnMut($crate::Shown<'_>) -> bool,
        ) -> usize {
            $inner.show(now, pool, limit, take)
        }
    };
    (@ transmit, $self:ident, $inner:expr) => {
        fn transmit(
            &mut $self,
            now: $crate::packet::Instant,
            pool: &$crate::packet::Pool,
            batch: &mut $crate::packet::PacketBatch,
        ) -> Result<usize, $crate::LinkError> {
            $inner.transmit(now, pool, batch)
        }
    };
    (@ borrows, $self:ident, $inner:expr) => {
        fn borrows(&$self) -> bool {
            $inner.borrows()
        }
    };
    (@ transmit_from, $self:ident, $inner:expr) => {
        fn transmit_from(
            &mut $self,
            now: $crate::packet::Instant,
            pool: &$crate::packet::Pool,
            head: $crate::packet::Packet,
            payload: &[u8],
        ) -> Result<Option<$crate::packet::Packet>, $crate::LinkError> {
            $inner.transmit_from(now, pool, head, payload)
        }
    };
    (@ wait_fd, $self:ident, $inner:expr) => {
        fn wait_fd(&$self) -> Option<::std::os::fd::RawFd> {
            $inner.wait_fd()
        }
    };
    (@ wants_write, $self:ident, $inner:expr) => {
        fn wants_write(&$self) -> bool {
            $inner.wants_write()
        }
    };
    (@ next_deadline, $self:ident, $inner:expr) => {
        fn next_deadline(&$self) -> Option<$crate::packet::Instant> {
            $inner.next_deadline()
        }
    };
    (@ prepare_sleep, $self:ident, $inner:expr) => {
        fn prepare_sleep(&mut $self) -> bool {
            $inner.prepare_sleep()
        }
    };
    (@ share, $self:ident, $inner:expr) => {
        fn share(&$self) -> $crate::Share {
            $inner.share()
        }
    };
    (@ is_down, $self:ident, $inner:expr) => {
        fn is_down(&$self) -> bool {
            $inner.is_down()
        }
    };
    (@ refresh, $self:ident, $inner:expr) => {
        fn refresh(&mut $self) -> bool {
            $inner.refresh()
        }
    };
    (@ notes, $self:ident, $inner:expr) => {
        fn notes(&$self) -> &[String] {
            $inner.notes()
        }
    };
    (@ details, $self:ident, $inner:expr) => {
        fn details(&$self) -> ::std::vec::Vec<(&'static str, u64)> {
            $inner.details()
        }
    };
    (@ stats, $self:ident, $inner:expr) => {
        fn stats(&$self) -> $crate::LinkStats {
            $inner.stats()
        }
    };
    (@ name, $self:ident, $inner:expr) => {
        fn name(&$self) -> &str {
            $inner.name()
        }
    };
}
