//! The reverse-path filter (RFC 3704, as `rp_filter` of Linux, for both families): a packet from an
//! address that the routes lead to by another link, or not at all, probably does not come from
//! there.

use std::net::IpAddr;

use millstream_route::{LinkId, Route};

use super::addresses::is_link_local;
use super::routing::Routing;
use crate::engine::links::ReversePath;

impl ReversePath {
    /// Returns the link by which the route to a source leads back to it, if it leads anywhere.
    #[inline]
    pub(in crate::engine::ip) fn link_back(route: Option<&Route>) -> Option<LinkId> {
        route.filter(|route| route.reject.is_none()).map(|route| route.link)
    }

    /// Returns whether a packet that came by `link` may be taken when the route to its source leads
    /// by `back`.
    #[inline]
    pub(in crate::engine::ip) fn lets(self, link: LinkId, back: Option<LinkId>) -> bool {
        match self {
            Self::Off => true,
            Self::Loose => back.is_some(),
            Self::Strict => back == Some(link),
        }
    }

    /// Returns the same for a packet from `src`. Addresses of one link have no routes.
    pub(super) fn takes(self, routing: &Routing, link: LinkId, src: IpAddr) -> bool {
        let has_no_route = is_link_local(src)
            || src.is_unspecified()
            || matches!(src, IpAddr::V4(src) if src.is_link_local());
        has_no_route || self.lets(link, Self::link_back(routing.routes().lookup_by(src, link)))
    }
}
