//! Log output: levels, format, destination.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Sends everything that the process logs to standard error, as configured, panics included. Call it once,
/// early.
pub fn start(log: &Log) {
    // openraft warns of what is ordinary here (links that break, queues that are deleted); what matters comes back
    // from it as errors, which are logged where they are met. Who asks for it by name gets it.
    let quiet = if log.level.contains("openraft") { "" } else { ",openraft=off" };
    let filter =
        EnvFilter::try_new(format!("{}{quiet}", log.level)).expect("log.level was checked");
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // A second call (several nodes in one test process) leaves the first logger in place.
    let installed = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if installed.is_err() {
        tracing::debug!("logging was started before");
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        // A panic is a defect, so its place and the way to it matter more than a tidy line.
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload_as_str().unwrap_or("no text");
        let backtrace = std::backtrace::Backtrace::force_capture();
        tracing::error!(place, %backtrace, "panic: {text}");
    }));
}

/// Judges `log.level`.
///
/// # Errors
/// Why it is neither a level nor a filter.
pub fn check_filter(level: &str) -> Result<(), String> {
    // A bare word that is no level would be taken for a module's name, so "inf" would silence everything.
    let known = ["off", "error", "warn", "info", "debug", "trace"];
    for part in level.split(',') {
        if !part.contains('=') && !known.contains(&part.trim().to_ascii_lowercase().as_str()) {
            return Err(format!("{part:?} is none of {}", known.join(", ")));
        }
    }
    EnvFilter::try_new(level).map(|_| ()).map_err(|error| error.to_string())
}
