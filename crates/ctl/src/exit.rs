//! Exit codes, those of `sysexits.h` that `rabbitmqctl` uses.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: it is done.
    Done,
    /// 64: the command line is wrong.
    Usage,
    /// 65: the node refused what was asked, or stored data is damaged.
    Data,
    /// 67: no such user, or wrong credentials.
    NoUser,
    /// 69: the node does not answer, or a check failed.
    Unavailable,
    /// 70: something broke.
    Software,
    /// 75: no answer in time.
    Timeout,
    /// 75: it is in use now; later it may be possible.
    Busy,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Usage => 64,
            Exit::Data => 65,
            Exit::NoUser => 67,
            Exit::Unavailable => 69,
            Exit::Software => 70,
            Exit::Timeout | Exit::Busy => 75,
        })
    }
}

/// A command that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The exit code.
    pub exit: Exit,
    /// For people.
    pub reason: String,
}

impl Failed {
    /// With a reason.
    pub fn new(exit: Exit, reason: impl Into<String>) -> Self {
        Self { exit, reason: reason.into() }
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Software, error.to_string())
    }
}
