//! `millstream serve`: the far end of another host's runs.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millstream_lab::runner::Interrupt;
use millstream_load::remote::{Token, serve as serve_runs, serve_starter};
use millstream_record::error::Error;

use crate::output::say;
use crate::setting::{guard_program, worker_program};

/// For `serve --help`.
pub const HELP: &str = "\
On the far host:
  openssl rand -hex 32 >token; chmod 600 token
  millstream serve --listen 192.0.2.2:7100 --token-file token
On the near host, with the same token:
  millstream run first-look --far 192.0.2.2 --serve 192.0.2.2:7100 --token-file token

It does what a run of the laboratory needs and nothing else: it sends and receives by the kernel's sockets, on ports that are
free, and looks at the host meanwhile. One run at a time; the load ends when its control connection does. The messages of that
connection are authenticated by the token and not encrypted. However many strangers connect, a runner that knows the token is let
in; the connections of a run begin with a ticket that only the two ends know.

Without a port and a token: --far-by of `run` and `investigate` starts this command there itself.";

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where runners ask, as 192.0.2.2:7100
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "stdio")]
    listen: Option<SocketAddr>,
    /// Serve who has started this program, over its standard input and output, until they close: so
    /// --far-by starts it
    #[arg(long, conflicts_with_all = ["listen", "token_file"])]
    stdio: bool,
    /// File with the token, for its owner alone; without it MILLSTREAM_TOKEN has it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Serves until it is interrupted.
pub fn serve(arguments: &Arguments) -> Result<ExitCode, Error> {
    let Some(listen) = arguments.listen else {
        serve_starter(worker_program()?, guard_program()?, &Interrupt::from_signals()?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let token = Token::find(arguments.token_file.as_deref())?;
    let program = worker_program()?;
    let interrupt = Interrupt::from_signals()?;
    let listener = TcpListener::bind(listen)
        .map_err(|error| Error::Refused(format!("--listen {listen}: {error}")))?;
    let at = listener.local_addr().map_err(Error::host("listen"))?;
    say(format_args!("serving at {at}"));
    serve_runs(&listener, token, program, &interrupt, say)?;
    Ok(ExitCode::SUCCESS)
}
