//! The metadata of a node on its own at its start.

use journal::journal::Journal;
use journal::op::{Class, Head, Op, Payload};
use journal::recovery::Recovery;
use metadata::access::password;
use metadata::boot::{self, DefaultUser};
use metadata::command::Command;
use metadata::objects::parameter::GlobalParameter;
use metadata::objects::user::HashingAlgorithm;
use metadata::outcome::Outcome;
use metadata::state::State;
use metadata::store::{self, Kv};
use model::id::Seq;

use crate::config::Config;
use crate::start::StartError;
use crate::topology::STREAM;

/// The metadata machine before anybody else uses it.
pub(super) struct Metadata<'a> {
    kv: &'a dyn Kv,
    journal: &'a Journal,
    pub(super) state: State,
    pub(super) applied: u64,
}

impl<'a> Metadata<'a> {
    /// What the store has, and the commands of the journal that it lacks.
    pub(super) fn load(
        kv: &'a dyn Kv,
        journal: &'a Journal,
        recovery: &Recovery,
    ) -> Result<Self, StartError> {
        let failed = |error: store::Failure| StartError(error.to_string());
        let (state, applied) = store::load(kv).map_err(failed)?.unwrap_or((State::new(), 0));
        let mut metadata = Self { kv, journal, state, applied };
        let highest = recovery
            .streams()
            .iter()
            .find(|known| known.stream == STREAM)
            .map_or(0, |known| known.highest.0);
        if applied > highest {
            // A power cut took records that the store had already seen. The commands to come will
            // follow a gap, so what fills it must not be lost with the next power cut.
            kv.flush().map_err(failed)?;
        }
        let seqs: Vec<Seq> = (applied + 1..=highest).map(Seq).collect();
        let mut read = Vec::with_capacity(seqs.len());
        journal.read(STREAM, &seqs, &mut read);
        for (seq, bytes) in seqs.into_iter().zip(read) {
            let bytes = bytes.map_err(|error| {
                StartError(format!(
                    "metadata command {seq} cannot be read from the journal: {error}; \
                     restore the data directory from a backup"
                ))
            })?;
            let command = Command::decode(&bytes)
                .map_err(|error| StartError(format!("metadata command {seq}: {}", error.reason)))?;
            // It was accepted when it was written: without it, or with less before it than there
            // was then, what follows would mean something else.
            let outcome = metadata.state.apply(command).map_err(|refusal| {
                StartError(format!(
                    "metadata command {seq} was accepted when it was made and cannot be carried \
                     out now: {refusal}; restore the data directory from a backup"
                ))
            })?;
            metadata.applied = seq.0;
            metadata.save(&outcome)?;
        }
        Ok(metadata)
    }

    fn save(&self, outcome: &Outcome) -> Result<(), StartError> {
        store::save(self.kv, outcome, self.applied).map_err(|error| StartError(error.to_string()))
    }

    pub(super) fn run(&mut self, command: Command) -> Result<(), StartError> {
        let payload = Payload::Bytes(command.encode());
        let outcome =
            self.state.apply(command).map_err(|refusal| StartError(refusal.to_string()))?;
        self.applied += 1;
        let put = Op::Put {
            stream: STREAM,
            seq: Seq(self.applied),
            head: Head::default(),
            payload,
            class: Class::Vital,
        };
        self.journal.submit(vec![put]);
        self.save(&outcome)
    }
}

/// What a first start makes.
pub(super) fn first(config: &Config) -> Vec<Command> {
    let first = &config.first_start;
    let (name, password) = match &first.user {
        Some(user) => (user.as_str(), first.password.as_bytes()),
        None => ("", &b""[..]),
    };
    let salt: [u8; password::SALT_LEN] = rand::random();
    let user = DefaultUser {
        name: name.into(),
        password_hash: password::hash(HashingAlgorithm::Sha256, salt, password),
        tags: vec!["administrator".to_owned()],
    };
    let mut commands = boot::commands(&first.vhost, user);
    let about_user =
        |command: &Command| matches!(command, Command::PutUser(_) | Command::PutPermission(_));
    commands.retain(|command| first.user.is_some() || !about_user(command));
    commands
}

/// The parameter by which monitoring tells one cluster from another.
pub(super) const CLUSTER_ID: &str = "internal_cluster_id";

/// Gives the cluster a name that stays.
pub(super) fn cluster_id() -> Command {
    let value = format!("leveret-cluster-id-{:032x}", rand::random::<u128>());
    Command::PutGlobalParameter(GlobalParameter { name: CLUSTER_ID.into(), value: value.into() })
}
