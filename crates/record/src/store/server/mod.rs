//! A store in a database of a PostgreSQL server.
//!
//! Its tables are in a schema `millstream` of their own, so what else the database holds is not
//! touched. Every finished run is one statement, and so one transaction: the server has it on its
//! disk when it answers. A connection that was lost, as when the server is started anew, is made
//! again once for what is being written.

mod error;
mod schema;
mod tls;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use postgres::error::{Severity, SqlState};
use postgres::fallible_iterator::FallibleIterator;
use postgres::types::ToSql;
use postgres::{Client, Config, Error, Row};

use super::address::Server;
use super::schema::VERSION;
use super::{Backend, Location, StoreError, Summary, Take, statements, summary};
use crate::{BRIEF_VERSION, ExperimentRecord, RunRecord};
pub(super) use tls::Dialer;

/// Time within which a server has to answer when a session begins, and for which one that has gone
/// is tried again.
const TIMEOUT: Duration = Duration::from_secs(10);

/// TCP keepalive where the URL does not set it: idle time before the first probe, time between
/// probes, and their number.
const KEEPALIVE: (Duration, Duration, u32) = (TIMEOUT, Duration::from_secs(5), 3);

/// Pause before a server that has gone is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// A session waits no longer for what another has locked, and each commit for the disk.
const SESSION: &str =
    "SET search_path TO millstream; SET lock_timeout TO '10s'; SET synchronous_commit TO on";

/// A connection to a store on a server.
pub(super) struct Postgres {
    at: Location,
    dialer: Arc<Dialer>,
    client: RefCell<Client>,
}

impl Server {
    /// Opens the store there, makes it when it is missing, and brings it up to date.
    pub(super) fn open(&self) -> Result<Box<dyn Backend>, StoreError> {
        let mut opened = Postgres::connect(self)?;
        let at = opened.at.clone();
        schema::migrate(&at, opened.client.get_mut())?;
        Ok(Box::new(opened))
    }

    /// Opens the store there; where there is none that is an error, and none is made.
    pub(super) fn open_existing(&self) -> Result<Box<dyn Backend>, StoreError> {
        let mut opened = Postgres::connect(self)?;
        let at = opened.at.clone();
        match schema::version(&at, opened.client.get_mut())? {
            None => Err(StoreError::Missing { at }),
            // A user who may only read needs no more than that.
            Some(VERSION) => Ok(Box::new(opened)),
            Some(_) => {
                schema::migrate(&at, opened.client.get_mut())?;
                Ok(Box::new(opened))
            }
        }
    }

    /// Returns true where nothing is kept there yet.
    pub(super) fn is_missing(&self) -> Result<bool, StoreError> {
        let mut opened = Postgres::connect(self)?;
        let at = opened.at.clone();
        Ok(schema::version(&at, opened.client.get_mut())?.is_none())
    }
}

impl Postgres {
    fn connect(server: &Server) -> Result<Self, StoreError> {
        let at = Location::Server(Box::new(server.clone()));
        let mut server = server.clone();
        is_not_waited_for(&mut server.config);
        let dialer = Arc::new(Dialer::new(&server));
        let client = session(&dialer).map_err(|failure| failure.at(&at))?;
        Ok(Self { at, dialer, client: RefCell::new(client) })
    }

    /// Carries something out. Where the connection turns out to be lost it is made again, and `act`
    /// is told that it is asked for the second time: the first may have been done.
    fn write<T>(
        &self,
        mut act: impl FnMut(&mut Client, bool) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let mut client = self.client.borrow_mut();
        match act(&mut client, false) {
            Err(error) if client.is_closed() || ends_session(&error) => {
                *client = self.again()?;
                Ok(act(&mut client, true)?)
            }
            done => Ok(done?),
        }
    }

    fn again(&self) -> Result<Client, Failure> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match session(&self.dialer) {
                Err(_) if Instant::now() < deadline => sleep(PAUSE),
                made => return made,
            }
        }
    }

    fn failed(&self, error: &Error) -> StoreError {
        StoreError::from_postgres(&self.at, error)
    }

    /// Hands over the ids and records that a statement finds.
    fn each(
        &self,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
        take: Take<'_>,
    ) -> Result<(), StoreError> {
        let mut client = self.client.borrow_mut();
        let mut all = || {
            let mut rows = client.query_raw(statement, parameters.iter().copied())?;
            while let Some(row) = rows.next()? {
                take(row.try_get(0)?, row.try_get(1)?);
            }
            Ok(())
        };
        all().map_err(|error| self.failed(&error))
    }
}

/// Why something was not done.
enum Failure {
    /// The server's or the library's error.
    Said(Error),
    /// The server was silent for too long.
    Silent,
}

impl Failure {
    fn at(&self, at: &Location) -> StoreError {
        match self {
            Self::Said(error) => StoreError::from_postgres(at, error),
            Self::Silent => StoreError::Unreachable {
                at: at.clone(),
                why: "the peer does not answer as a PostgreSQL server".to_owned(),
                remedy: "check the server, or correct its address in --db",
            },
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Said(error)
    }
}

/// Returns true where the server ends the session with this error: the library may see a little
/// later that the connection is closed.
fn ends_session(error: &Error) -> bool {
    let severity = error.as_db_error().and_then(|error| error.parsed_severity());
    matches!(severity, Some(Severity::Fatal | Severity::Panic))
}

/// Has TCP give up a server that is gone, which may take it hours by itself.
fn is_not_waited_for(config: &mut Config) {
    let unsaid = Config::new();
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TIMEOUT);
    }
    let (idle, interval, retries) = KEEPALIVE;
    if config.get_keepalives_idle() == unsaid.get_keepalives_idle() {
        config.keepalives_idle(idle);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(interval);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(retries);
    }
}

/// Opens a session, in a thread of its own: the library limits the time for connecting, but not for
/// the server's first words.
fn session(dialer: &Arc<Dialer>) -> Result<Client, Failure> {
    let (dialing, (tell, told)) = (dialer.clone(), channel());
    thread::spawn(move || {
        let made = dialing.dial().and_then(|mut client| {
            client.batch_execute(SESSION)?;
            Ok(client)
        });
        // The caller may have given up.
        let _ = tell.send(made);
    });
    match told.recv_timeout(dialer.patience()) {
        Ok(made) => Ok(made?),
        Err(_) => Err(Failure::Silent),
    }
}

impl Backend for Postgres {
    fn save_experiment(&self, experiment: &ExperimentRecord, json: &str) -> Result<(), StoreError> {
        let ExperimentRecord { id, name, planned_runs, .. } = experiment;
        let started_at = experiment.started_at.to_string();
        let finished_at = experiment.finished_at.map(|moment| moment.to_string());
        let planned_runs = i64::from(*planned_runs);
        let saved = self.write(|client, _| {
            client.execute(
                statements::SAVE_EXPERIMENT,
                &[id, name, &started_at, &finished_at, &planned_runs, &json],
            )
        });
        saved.map(drop).map_err(|failure| failure.at(&self.at))
    }

    fn save_run(&self, run: &RunRecord, json: &str, brief: Option<&str>) -> Result<(), StoreError> {
        let started_at = run.started_at.to_string();
        let (block, order) = (i64::from(run.block), i64::from(run.order));
        let valid = i64::from(run.validity.valid);
        let unless_there = format!("{} ON CONFLICT (id) DO NOTHING", statements::SAVE_RUN);
        let saved = self.write(|client, again| {
            let mut transaction = client.transaction()?;
            transaction.execute(
                if again { unless_there.as_str() } else { statements::SAVE_RUN },
                &[
                    &run.id,
                    &run.experiment_id,
                    &run.workload,
                    &run.stack,
                    &block,
                    &order,
                    &started_at,
                    &valid,
                    &json,
                ],
            )?;
            if let Some(brief) = brief {
                let version = i64::from(BRIEF_VERSION);
                transaction.execute(statements::SAVE_BRIEF, &[&run.id, &version, &brief])?;
            }
            transaction.commit()
        });
        saved.map_err(|failure| match &failure {
            Failure::Said(error) if error.code() == Some(&SqlState::FOREIGN_KEY_VIOLATION) => {
                StoreError::Forgotten { at: self.at.clone(), run: run.id.clone() }
            }
            failure => failure.at(&self.at),
        })
    }

    fn experiments(&self) -> Result<Vec<Summary>, StoreError> {
        let rows = self.client.borrow_mut().query(statements::EXPERIMENTS, &[]);
        let rows = rows.map_err(|error| self.failed(&error))?;
        rows.iter().map(of_row).collect::<Result<_, _>>().map_err(|error| self.failed(&error))
    }

    fn experiment(&self, id: &str) -> Result<Option<String>, StoreError> {
        let row = self.client.borrow_mut().query_opt(statements::EXPERIMENT, &[&id]);
        let record = row.and_then(|row| row.map(|row| row.try_get(0)).transpose());
        record.map_err(|error| self.failed(&error))
    }

    fn each_run(&self, experiment_id: &str, take: Take<'_>) -> Result<(), StoreError> {
        self.each(statements::RUNS, &[&experiment_id], take)
    }

    fn each_brief(&self, experiment_id: &str, take: Take<'_>) -> Result<(), StoreError> {
        let version = i64::from(BRIEF_VERSION);
        self.each(statements::BRIEFS, &[&experiment_id, &version], take)
    }

    fn each_of(&self, ids: &[&str], take: Take<'_>) -> Result<(), StoreError> {
        let mut client = self.client.borrow_mut();
        let mut all = || {
            let statement = client.prepare(statements::RUN)?;
            for id in ids {
                for row in client.query(&statement, &[id])? {
                    take(row.try_get(0)?, row.try_get(1)?);
                }
            }
            Ok(())
        };
        all().map_err(|error: Error| self.failed(&error))
    }

    fn forget(&self, ids: &[&str]) -> Result<(), StoreError> {
        let gone = self.write(|client, _| {
            let mut transaction = client.transaction()?;
            for id in ids {
                transaction.execute(statements::FORGET, &[id])?;
            }
            transaction.commit()
        });
        gone.map_err(|failure| failure.at(&self.at))
    }

    /// Does nothing: the server gives room back by itself, when it sees fit.
    fn give_back_room(&self, _alone: bool) -> Result<bool, StoreError> {
        Ok(true)
    }
}

fn of_row(row: &Row) -> Result<Summary, Error> {
    Ok(summary(
        row.try_get(0)?,
        row.try_get(1)?,
        [row.try_get(2)?, row.try_get(3)?],
        [row.try_get(4)?, row.try_get(5)?, row.try_get(6)?],
    ))
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("at", &self.at).finish_non_exhaustive()
    }
}
