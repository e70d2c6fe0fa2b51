//! The command line of `leveret`, and the loading of its configuration.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::complaint::{Complaint, Origin};
use crate::config::{Config, Effective, written};
use crate::start::{recover, reincarnate};

/// Exit status of a configuration that is refused (`EX_CONFIG` of sysexits.h).
pub const EXIT_CONFIG: u8 = 78;
/// Exit status of a command that has to be confirmed (`EX_USAGE`).
pub const EXIT_USAGE: u8 = 64;
/// Exit status of a command that cannot be carried out on this data directory (`EX_DATAERR`).
pub const EXIT_DATA: u8 = 65;

const AFTER_HELP: &str = "\
Every key can be set in the file, by an environment variable and by --set, each overriding the one before.
The variable is LEVERET_ and the key in upper case, with two underscores for each dot: data_dir is
LEVERET_DATA_DIR, listeners.amqp is LEVERET_LISTENERS__AMQP. `leveret config check` shows the result.";

/// Leveret, a message broker that speaks AMQP 0.9.1 as RabbitMQ does.
///
/// Without a command it runs a node. Without any configuration that is a complete one: AMQP on port 5672, the
/// HTTP API on 15672, metrics on 15692, data in ./data, user guest (password guest) from this machine.
#[derive(Debug, Parser)]
#[command(name = "leveret", version, args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Configuration of the node that is run when no command is given.
    #[command(flatten)]
    pub sources: Sources,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node (what happens without a command).
    Run(Sources),
    /// Look at the configuration without running a node.
    Config {
        /// What to do with it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Let a cluster whose majority is lost for good go on from this node alone. No node of it may run.
    ///
    /// Without --confirm it only says what would be lost.
    RecoverMetadata(RecoverMetadata),
    /// Make a data directory that was copied, or put back from a backup, that of a new node.
    ///
    /// Under its old identity it would vote again on what it has voted on since. The node has nothing
    /// then, and joins its cluster under its old name.
    Reincarnate {
        /// The data directory; no node may use it.
        directory: PathBuf,
        /// Even if messages of classic queues are lost by it, or what is in it cannot be told.
        #[arg(long)]
        force: bool,
    },
}

/// What `recover-metadata` needs.
#[derive(Debug, Args)]
pub struct RecoverMetadata {
    /// Says that this node's copy of the topology, and of its queues, is the one that counts.
    #[arg(long, required = true)]
    pub from_this_node: bool,
    /// The cluster's name.
    #[arg(long, value_name = "CLUSTER")]
    pub confirm: Option<String>,
    /// The configuration of this node.
    #[command(flatten)]
    pub sources: Sources,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every key with its effective value and where it comes from; exit with 78 if anything is wrong.
    Check(Sources),
}

/// Where the configuration is written: environment variables override the file, `--set` overrides both.
#[derive(Debug, Clone, Default, Args)]
pub struct Sources {
    /// Configuration file, in TOML; config/leveret.toml documents every key.
    #[arg(long, value_name = "FILE", env = "LEVERET_CONFIG")]
    pub config: Option<PathBuf>,
    /// Set one key; may be repeated. Lists are separated by commas.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl Sources {
    /// Reads file, environment and command line.
    ///
    /// # Errors
    /// Every complaint at once; a file that cannot be read is one.
    pub fn load(&self) -> Result<(Config, Effective), Vec<Complaint>> {
        let (mut lines, mut complaints) = (Vec::new(), Vec::new());
        if let Some(path) = &self.config {
            match std::fs::read_to_string(path) {
                Ok(text) => {
                    let (more, wrong) = written::file(path.clone(), &text);
                    lines.extend(more);
                    complaints.extend(wrong);
                }
                Err(error) => {
                    let text = format!("cannot read {}: {error}", path.display());
                    complaints.push(Complaint::new(Origin::CommandLine, text));
                }
            }
        }
        lines.extend(written::environment(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        })));
        let (more, wrong) = written::command_line(&self.set);
        lines.extend(more);
        complaints.extend(wrong);
        match Config::read(lines) {
            Ok(loaded) if complaints.is_empty() => Ok(loaded),
            Ok(_) => Err(complaints),
            Err(more) => {
                complaints.extend(more);
                Err(complaints)
            }
        }
    }
}

/// Performs `leveret config check`: prints the effective values, or every complaint.
pub fn check_config(sources: &Sources) -> ExitCode {
    match sources.load() {
        Ok((_, effective)) => {
            let text = effective.to_string();
            // A reader that went away (`| head`) is no error.
            let _closed = std::io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(complaints) => refuse(&complaints),
    }
}

/// Performs `leveret recover-metadata`.
pub fn recover_metadata(arguments: &RecoverMetadata) -> ExitCode {
    let config = match arguments.sources.load() {
        Ok((config, _)) => config,
        Err(complaints) => return refuse(&complaints),
    };
    match recover::recover(config, arguments.confirm.as_deref(), &mut say) {
        Ok(recover::Done::Recovered) => {
            say(
                "The topology goes on from this node. Start it, then the others with empty data directories.",
            );
            ExitCode::SUCCESS
        }
        Ok(recover::Done::NotConfirmed(cluster)) => {
            let error = match &arguments.confirm {
                Some(other) => format!("the cluster is not called {other}"),
                None => "it has to be confirmed".to_owned(),
            };
            complain(&format!("{error}; nothing has changed. To go on: --confirm {cluster}"));
            ExitCode::from(EXIT_USAGE)
        }
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(EXIT_DATA)
        }
    }
}

/// Performs `leveret reincarnate`.
pub fn reincarnate(directory: &Path, force: bool) -> ExitCode {
    match reincarnate::reincarnate(directory, force, &mut say) {
        Ok(reincarnate::Done::Reincarnated | reincarnate::Done::Alone) => ExitCode::SUCCESS,
        Ok(reincarnate::Done::NotForced) => ExitCode::from(EXIT_USAGE),
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(EXIT_DATA)
        }
    }
}

fn say(line: &str) {
    // A reader that went away (`| head`) is no error.
    let _closed = writeln!(std::io::stdout().lock(), "{line}");
}

fn complain(line: &str) {
    let _closed = writeln!(std::io::stderr().lock(), "leveret: {line}");
}

/// Prints every complaint and tells the status to exit with.
pub fn refuse(complaints: &[Complaint]) -> ExitCode {
    let mut error = std::io::stderr().lock();
    for complaint in complaints {
        let _closed = writeln!(error, "leveret: {complaint}");
    }
    ExitCode::from(EXIT_CONFIG)
}
