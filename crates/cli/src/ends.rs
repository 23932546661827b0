//! The options that say where the two ends of a run are.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use millstream_lab::investigate::OtherEnd;
use millstream_lab::runner::{Addresses, Places};
use millstream_load::ready::Ready;
use millstream_load::remote::{FarHost, Token};
use millstream_load::running::as_pattern;
use millstream_record::error::Error;

use crate::setting::{guard_program, worker_program};

/// Where the two ends are.
#[derive(Debug, Args)]
pub struct Ends {
    /// Address of the far end that is there already: of this host, or of another with --far-by or
    /// --serve [default: hosts made for each run]
    #[arg(long, value_name = "ADDRESS")]
    pub far: Option<IpAddr>,
    /// Address of the near end, with --far [default: the kernel chooses]
    #[arg(long, value_name = "ADDRESS", requires = "far")]
    pub near: Option<IpAddr>,
    #[command(flatten)]
    pub by: FarBy,
    /// Where `millstream serve` of the far host is asked
    #[arg(long, value_name = "ADDRESS:PORT", requires = "far", conflicts_with = "far_by")]
    pub serve: Option<SocketAddr>,
    /// File with the token of `millstream serve`, for its owner alone; without it MILLSTREAM_TOKEN
    /// has it
    #[arg(long, value_name = "FILE", requires = "serve")]
    pub token_file: Option<PathBuf>,
}

/// The command that leads to the far end's host.
#[derive(Debug, Args)]
pub struct FarBy {
    /// A command that starts another one at the far end's host and hands on input and output, as
    /// 'ssh host2', 'kubectl exec -i pod --' or 'ip netns exec b': it starts this program
    #[arg(long, value_name = "COMMAND")]
    pub far_by: Option<String>,
    /// This program there, with --far-by [default: the path that it has here]
    #[arg(long, value_name = "PATH", requires = "far_by")]
    pub far_program: Option<String>,
}

/// The other end of a command.
#[derive(Debug, Args)]
pub struct Server {
    /// The other end of the command, as one line of words: started before each run and ended after
    /// it
    #[arg(long, value_name = "COMMAND")]
    pub server: Option<String>,
    /// How --server shows that it can be used: it has written what this regular expression matches
    /// [default: it listens]
    #[arg(long, value_name = "REGEX", requires = "server")]
    ready: Option<String>,
}

impl FarBy {
    /// Returns the far end's host, if it is reached so.
    pub fn host(&self) -> Result<Option<FarHost>, Error> {
        let Some(line) = &self.far_by else { return Ok(None) };
        let mut all = words("--far-by", line)?;
        let program = match &self.far_program {
            Some(program) => program.clone(),
            None => worker_program()?.path.display().to_string(),
        };
        all.extend([program, "serve".to_owned(), "--stdio".to_owned()]);
        Ok(Some(FarHost::Started { words: all, guard: guard_program()? }))
    }
}

impl Server {
    /// Returns the other end, if it is to be started: here, or at the host that `by` leads to,
    /// which is asked.
    pub fn other_end(&self, by: &FarBy) -> Result<Option<OtherEnd>, Error> {
        let Some(line) = &self.server else {
            return match by.far_by {
                Some(_) => {
                    let why = "--far-by: what is to be started there? Say it with --server";
                    Err(Error::Refused(why.to_owned()))
                }
                None => Ok(None),
            };
        };
        let ready = match &self.ready {
            Some(text) => as_pattern(text).map(|_| Ready::Says(text.clone()))?,
            None => Ready::Listens,
        };
        OtherEnd::new(words("--server", line)?, ready, by.host()?).map(Some)
    }
}

impl Ends {
    /// Returns the way to the far end's host, if there is one.
    pub fn host(&self) -> Result<Option<FarHost>, Error> {
        if let Some(host) = self.by.host()? {
            return Ok(Some(host));
        }
        let served = |control| {
            let token = Token::find(self.token_file.as_deref())?;
            Ok(FarHost::Served { control, token })
        };
        self.serve.map(served).transpose()
    }

    /// Returns the places of the two ends of our own workloads. The far host is asked.
    pub fn places(&self) -> Result<Places, Error> {
        let Some(far) = self.far else {
            return match self.by.far_by {
                Some(_) => Err(Error::Refused(
                    "--far-by: at which address is the far end? Say it with --far".to_owned(),
                )),
                None => Ok(Places::Made),
            };
        };
        let host = self.host()?;
        let mut addresses = Addresses { near: self.near, far, host, is_one_machine: true };
        addresses.check()?;
        Ok(Places::There(addresses))
    }
}

/// Returns the words of a line, as a shell parts them: quotes hold what they enclose together.
pub fn words(option: &str, line: &str) -> Result<Vec<String>, Error> {
    shlex::split(line)
        .filter(|words| !words.is_empty())
        .ok_or_else(|| Error::Refused(format!("{option} {line}: a quote is open, or it is empty")))
}
