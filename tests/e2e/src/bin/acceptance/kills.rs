//! A4: SIGKILL at random moments under persistent confirmed load.

use e2e::load::Round;
use e2e::node::Setup;

use crate::Verdict;

pub(crate) fn measure(rounds: usize, fanout: bool) -> Verdict {
    let mut node = Setup::new().start();
    let mut round = Round::new(4, fanout);
    for _ in 0..rounds {
        round.run(&mut node);
    }
    let mut figures =
        format!("{}: {round}", if fanout { "one body in two queues" } else { "queues apart" });
    if !round.passes() {
        figures.push_str(&round.details());
    }
    Verdict { figures, holds: round.passes() }
}
