//! `leveret`, the node.

use std::process::ExitCode;

use broker::cli::{
    Cli, Command, ConfigCommand, Sources, check_config, recover_metadata, refuse, reincarnate,
};
use clap::Parser;
use tikv_jemallocator::Jemalloc;

/// After a backlog of a gigabyte the system's allocator kept a gigabyte; this one gives it back.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        None => run(&cli.sources),
        Some(Command::Run(sources)) => run(&sources),
        Some(Command::RecoverMetadata(arguments)) => recover_metadata(&arguments),
        Some(Command::Reincarnate { directory, force }) => reincarnate(&directory, force),
        Some(Command::Config { command: ConfigCommand::Check(sources) }) => check_config(&sources),
    }
}

fn run(sources: &Sources) -> ExitCode {
    match sources.load() {
        Ok((config, _)) => {
            broker::logging::start(&config.log);
            broker::run::run(config, sources.clone())
        }
        Err(complaints) => refuse(&complaints),
    }
}
