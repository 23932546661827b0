//! The setting of the reverse-path filter, which each link has.

/// The rule that a packet's source must meet for the engine to take it, to hand on or for itself.
///
/// An engine that hands packets on begins with [`Loose`](Self::Loose) on each link: what it drops
/// has a source that nobody could answer, so that no asymmetric route breaks.
/// [`Strict`](Self::Strict) is for links to networks that have one way only. One that hands nothing
/// on begins with [`Off`](Self::Off).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReversePath {
    /// Any address that is not martian.
    Off,
    /// One that some route leads to, by whichever link, the default route included.
    Loose,
    /// One that the route in force leads to by the link that the packet came by; where several
    /// routes share flows, one of them.
    Strict,
}
