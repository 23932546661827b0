//! Errors of a server as errors of the store.

use postgres::error::SqlState;

use super::super::address::whole;
use super::super::{Location, StoreError};
use super::tls;

impl StoreError {
    pub(in crate::store) fn from_postgres(at: &Location, error: &postgres::Error) -> Self {
        let at = at.clone();
        let why = whole(error);
        if let Some(remedy) = tls::remedy(&why) {
            return Self::Unreachable { at, why, remedy };
        }
        let unreachable = |remedy| Self::Unreachable { at: at.clone(), why: why.clone(), remedy };
        match error.code() {
            Some(&SqlState::INVALID_CATALOG_NAME) => {
                unreachable("make it (createdb), or name another in --db")
            }
            Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
                if why.ends_with("no encryption") =>
            {
                unreachable("ask for TLS: sslmode=require")
            }
            Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
                unreachable(
                    "put user and password right: postgres://USER@HOST/DATABASE, PGPASSWORD",
                )
            }
            Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::T_R_DEADLOCK_DETECTED) => {
                Self::Busy { at }
            }
            Some(_) => Self::Io { at, why },
            None if why.contains("password missing") => {
                unreachable("put the password into PGPASSWORD")
            }
            None if why.contains("connect") => {
                unreachable("start the server, or correct its address in --db")
            }
            None => Self::Io { at, why },
        }
    }
}
