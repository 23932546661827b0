//! In place of `address` and `server`, in a build without the feature `postgres`: there is no
//! server's database.

use std::ffi::OsString;

use super::{Backend, StoreError};

/// A PostgreSQL server's database. This build has no value of it.
#[derive(Clone, Debug)]
pub enum Server {}

impl Server {
    pub(super) fn parse(_: &str, _: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let why =
            "this millstream was built without PostgreSQL; build it with the feature postgres";
        Err(why.to_owned())
    }

    pub(super) fn name(&self) -> &str {
        match *self {}
    }

    pub(super) fn open(&self) -> Result<Box<dyn Backend>, StoreError> {
        match *self {}
    }

    pub(super) fn open_existing(&self) -> Result<Box<dyn Backend>, StoreError> {
        match *self {}
    }

    pub(super) fn is_missing(&self) -> Result<bool, StoreError> {
        match *self {}
    }
}
