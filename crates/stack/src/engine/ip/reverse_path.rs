//! The reverse-path filter (RFC 3704, as `rp_filter` of Linux, for both families): a packet from an
//! address that the routes lead to by another link, or not at all, probably does not come from
//! there.

use std::net::IpAddr;

use millstream_route::{LinkId, Route};

use super::addresses::is_link_local;
use super::routing::Routing;
use crate::engine::ip::IpLayer;
use crate::engine::links::ReversePath;

impl ReversePath {
    /// Returns the link by which the route to a source leads back to it, if it leads anywhere.
    #[inline]
    pub(super) fn link_back(route: Option<&Route>) -> Option<LinkId> {
        route.filter(|route| route.reject.is_none()).map(|route| route.link)
    }

    /// Returns whether a packet that came by `link` may be taken when the route to its source leads
    /// by `back`.
    #[inline]
    pub(super) fn lets(self, link: LinkId, back: Option<LinkId>) -> bool {
        match self {
            Self::Off => true,
            Self::Loose => back.is_some(),
            Self::Strict => back == Some(link),
        }
    }

    /// Returns the same for a packet from `src`. Addresses of one link have no routes.
    pub(in crate::engine) fn takes(self, routing: &Routing, link: LinkId, src: IpAddr) -> bool {
        let has_no_route = is_link_local(src)
            || src.is_unspecified()
            || matches!(src, IpAddr::V4(src) if src.is_link_local());
        has_no_route || self.lets(link, Self::link_back(routing.routes().lookup_by(src, link)))
    }
}

impl IpLayer {
    /// Returns the reverse-path filter of a link.
    #[inline]
    pub(in crate::engine) fn reverse_path(&self, link: LinkId) -> ReversePath {
        let default = if self.forwards { ReversePath::Loose } else { ReversePath::Off };
        self.links[link.index()].reverse_path.unwrap_or(default)
    }

    /// Returns whether that filter takes a packet from `src`.
    #[inline]
    pub(in crate::engine) fn has_way_back(&self, link: LinkId, src: IpAddr) -> bool {
        let filter = self.reverse_path(link);
        filter == ReversePath::Off
            || self.addresses.is_loopback(link)
            || filter.takes(&self.routing, link, src)
    }
}
