//! The engine's routes: the table that is changed, and what look-ups go by.

use std::net::IpAddr;

use millstream_route::{LinkId, Prefix, Route, RouteError, RouteTable, Routes};

/// See the module text.
pub(crate) struct Routing {
    table: RouteTable,
    routes: Routes,
    /// Times that a link came, went, or changed what it can do.
    link_changes: u32,
}

impl Routing {
    /// No routes, in a table of at most the default number.
    pub fn new() -> Self {
        Self::over(RouteTable::new())
    }

    /// Those of a table.
    pub fn over(table: RouteTable) -> Self {
        Self { routes: table.reader(), table, link_changes: 0 }
    }

    /// Routes that there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The route to a destination.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Option<Route> {
        self.routes.lookup(destination)
    }

    /// Look-ups go by what the table has become.
    #[inline]
    pub fn refresh(&mut self) {
        self.routes.refresh();
    }

    /// As [`RouteTable::insert`].
    pub fn insert(&mut self, prefix: Prefix, route: Route) -> Result<(), RouteError> {
        let added = self.table.insert(prefix, route);
        self.refresh();
        added.map(drop)
    }

    /// As [`RouteTable::remove`], of any metric.
    pub fn remove(&mut self, prefix: Prefix, link: LinkId) {
        self.table.remove(prefix, link, None);
        self.refresh();
    }

    /// A link is over, and its routes with it.
    pub fn remove_link(&mut self, link: LinkId) {
        self.table.remove_link(link);
        self.refresh();
        // Also for those that go by no route.
        self.note_link_change();
    }

    /// A link has come or changed, or an address has gone: whoever keeps a next hop looks it up anew.
    pub fn note_link_change(&mut self) {
        self.link_changes = self.link_changes.wrapping_add(1);
    }

    /// Changes whenever a next hop may have.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.routes.generation().wrapping_add(self.link_changes)
    }

    /// The same, told apart: of the routes, and of the links.
    #[inline]
    pub fn generations(&self) -> (u32, u32) {
        (self.routes.generation(), self.link_changes)
    }

    /// The table, for changes of any kind. They hold from the next [`refresh`](Self::refresh) on.
    pub fn table(&mut self) -> &mut RouteTable {
        &mut self.table
    }
}
