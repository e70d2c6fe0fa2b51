//! A4: SIGKILL at random moments under persistent confirmed load.

use e2e::load::Round;
use e2e::node::Setup;

use crate::Verdict;

pub(crate) fn measure(rounds: usize) -> Verdict {
    let mut node = Setup::new().start();
    let mut round = Round::new(4);
    for _ in 0..rounds {
        round.run(&mut node);
    }
    let mut figures = round.to_string();
    if !round.passes() {
        figures.push_str(&round.details());
    }
    Verdict { figures, holds: round.passes() }
}
