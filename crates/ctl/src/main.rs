//! The binary.

use std::process::ExitCode;

use clap::Parser as _;
use ctl::cli::Arguments;
use ctl::exit::Exit;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            // Nothing can be done if the terminal is gone.
            let _ignored = error.print();
            return code.into();
        }
    };
    ctl::run::run(&arguments, &mut std::io::stdout().lock(), &mut std::io::stderr().lock()).into()
}
