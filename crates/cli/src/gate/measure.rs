//! The command of `gate`: run so many times, and kept as an experiment.

use millstream_lab::investigate::{CommandSubject, Subject};
use millstream_record::error::Error;

use super::{Arguments, Set};
use crate::investigate::{figure_of, subject};
use crate::keeper::{CommandKeeper, Keeper};
use crate::prepare::{Made, existing_store};
use crate::progress::Progress;
use crate::values::{database, time_limit};

/// Name of the experiments whose runs are judged.
const JUDGED: &str = "gate";

/// Runs the command, and keeps its runs under the name of the standard, or as those that are
/// judged. Returns them with the key of their figure.
pub(super) fn measure(arguments: &Arguments) -> Result<(Set, String), Error> {
    let Arguments { command, figure, lower_is_better, timeout, runs, database: place, .. } =
        arguments;
    let figure = figure_of(command, figure.as_deref(), *lower_is_better)?;
    let timeout = time_limit(*timeout)?;
    let at = database(place)?;
    let mut made = Made::default();
    made.database_folder(&at)?;
    let store = existing_store(&at)?;
    let mut keeper = CommandKeeper(Keeper::new(store, at, made, Progress::new(0.0)));
    let name = match (&arguments.name, arguments.standard) {
        (_, true) => arguments.first.clone().unwrap_or_default(),
        (name, false) => name.clone().unwrap_or_else(|| JUDGED.to_owned()),
    };
    let question = format!("Is {} as good as it was?", millstream_foreign::command(command));
    let server = arguments.server.other_end(&arguments.by)?;
    let subject = subject(name, question, command, figure.clone(), timeout, &mut keeper)?;
    let mut subject = CommandSubject { server, ..subject };
    let observed = subject.observe(*runs);
    let id = subject.experiments().pop().unwrap_or_default();
    let unit = subject.first.take().map(|first| first.unit);
    keeper.0.progress.end();
    let runs = observed.inspect_err(|_| keeper.0.say_kept())?;
    Ok((Set { id, runs, unit, less_is_better: !figure.higher_is_better }, figure.key))
}
