//! The command line of `leveret`, and the loading of its configuration.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::complaint::{Complaint, Origin};
use crate::config::{Config, Effective, written};

/// Exit status of a configuration that is refused (`EX_CONFIG` of sysexits.h).
pub const EXIT_CONFIG: u8 = 78;

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

/// Prints every complaint and tells the status to exit with.
pub fn refuse(complaints: &[Complaint]) -> ExitCode {
    let mut error = std::io::stderr().lock();
    for complaint in complaints {
        let _closed = writeln!(error, "leveret: {complaint}");
    }
    ExitCode::from(EXIT_CONFIG)
}
