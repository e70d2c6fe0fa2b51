//! leveretctl, the operator's command line.
