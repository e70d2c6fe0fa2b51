#!/bin/bash
# Puts faults of docs/reconciliation-faults.md (members) and docs/journal-pairs-faults.md (pairs) back,
# one after the other, in a copy of the sources, and sees that the test which should notice it fails.
# Fails if one does not. faults.sh members or faults.sh pairs tries one of the two.
set -eu -o pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cargo=$root/xtask/cargo.sh
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$root"/{Cargo.toml,Cargo.lock,crates,tests,xtask,config,docs,clippy.toml,clippy-pure.toml} "$copy" 2>/dev/null || true
for hidden in .cargo .config rust-toolchain.toml rustfmt.toml; do
  [ -e "$root/$hidden" ] && cp -r "$root/$hidden" "$copy"
done
target=${CARGO_TARGET_DIR:-$("$cargo" target)}/faults
# The compiled one: cargo would spend half an hour on its own.
library=$(cd "$root" && xtask/rocksdb.sh)
export ROCKSDB_STATIC=1 ROCKSDB_LIB_DIR=$library
cd "$copy"
missed=0
count=0

# number, file, what stands there (Perl), what stood there, crate, test
fault() {
  local number=$1 file=$2 now=$3 before=$4 crate=$5 test=$6
  count=$((count + 1))
  cp "$file" "$copy/kept"
  NOW=$now BEFORE=$before perl -0pi -e 's/$ENV{NOW}/"\"$ENV{BEFORE}\""/ees' "$file"
  if cmp -s "$file" "$copy/kept"; then
    echo "$number: the place is not found in $file"
    missed=$((missed + 1))
  elif CARGO_TARGET_DIR=$target cargo test --quiet --offline -p "$crate" -- "$test" >"$copy/log" 2>&1; then
    echo "$number: nobody notices"
    missed=$((missed + 1))
  elif grep -q "$test.*FAILED\|panicked" "$copy/log"; then
    echo "$number: noticed by $test"
  else
    echo "$number: not tried, it does not compile"
    tail -20 "$copy/log"
    missed=$((missed + 1))
  fi
  cp "$copy/kept" "$file"
}

members() {
plan=crates/membership/src/plan.rs
schedule=crates/membership/src/scheduler.rs
fault BM-1 crates/membership/src/desired.rs '\[policy, operator_policy, argument\]' \
  '[policy, operator_policy, argument.map(|_| u64::MAX)]' membership bm_1_
fault BM-3 $plan 'filter\(\|member\| !observed\.runs\(member\)\)\.collect' 'filter(|_| false).collect' \
  membership bm_3_
fault BM-5 crates/membership/src/refusal.rs \
  '\| Self::Unconfirmed\n(\s+\| Self::Changing.*?)Self::Disabled\n' \
  '\n$1Self::Disabled | Self::Unconfirmed\n' membership bm_5_
fault BM-6 $plan 'if observed\.nodes\.is_empty\(\)' 'if false' membership bm_6_
fault BM-7 $schedule '\(now \+ span\)\.min\(latest\)' 'if latest.0 > 0 { now + span } else { now }' \
  membership bm_7_
fault BM-8 $plan 'self\.replace\(\)\.or_else\(\|\| self\.remove\(\)\)' \
  'self.replace().filter(|_| false).or_else(|| self.remove())' membership bm_8_
fault BM-9 $plan 'if size >= target \{' 'if target > 0 && size >= target {' membership bm_9_
fault BM-12 $plan '(fn is_calm.*?)if let Some\(learner\) = self\.learner\(\)' \
  '$1if let Some(learner) = self.learner().filter(|_| false)' membership bm_12_
fault BM-13 $plan 'refusals\.push\(Refusal::Dangling \{ node \}\);' 'drop(node);' membership bm_13_
fault BM-14 $plan 'if running \* 2 > left \{' 'if running <= left {' membership bm_14_
fault BM-15 $schedule 'track\.not_before = now \+ span;' 'track.not_before = now;' membership bm_15_
fault BO-6 crates/metadata/src/machine/members.rs \
  'self\.last_queue \+= 1;(\s+out\.records.*?\s+let mut changed = Queue::clone\(&queue\);\s+changed\.members\.retain)' \
  '$1' metadata members_come_start_and_go
}

pairs() {
machine=crates/activation/src/machine.rs
class=crates/activation/src/class.rs
candidate=crates/activation/src/machine/candidate.rs
receiver=crates/replication/src/receiver.rs
fault BA-1 $machine 'Why::ReplicaLost => Gate::Replica' 'Why::ReplicaLost => Gate::Alone' activation ba_1_
fault BA-3 crates/activation/src/machine/serving.rs 'Some\(Why::SyncUnheard\)' 'None' activation ba_3_
fault BA-4 $candidate 'Class::Held\(_\) => self\.read_linearizable\(out\)' \
  'Class::Held(held) => self.hold(held, view.register, out)' activation ba_4_
fault BA-5 $class \
  '\(!rules::broken\(Rule::AheadIsHeld\)\)\.then_some\(Held::LocalAhead\)(.*)=> Class::Held\(Held::LocalAhead\),\n(\s+\}\n\}\n\nimpl fmt)' \
  'None$1=> Class::Stale,\n$2' activation a8_9_forced_values
fault BA-6 $class 'let Some\(register\) = view\.register else \{[^}]*\};' \
  'let register = view.register.unwrap_or(Register::Committed(Age::ZERO));' activation row_8_
fault BA-8 $receiver 'if self\.phase == Phase::Ready \{\n(\s+self\.early)' 'if false {\n$1' \
  replication nothing_is_stored_before
fault BA-9 $machine 'out\.insert\(already, Output::Gate\(self\.gate\(\)\)\)' \
  'drop(already);\nout.push(Output::Gate(self.gate()))' activation ba_9_
fault BA-10 $candidate 'Class::Stale \| Class::Blank \| Class::Syncing => \{\n(\s+out\.push\(Output::Tell\(Notice::NotC)' \
  'Class::Stale => self.acquire(out),\nClass::Blank | Class::Syncing => {\n$1' activation ba_10_
fault BA-12 $class 'Standing::Syncing => Class::Syncing' 'Standing::Syncing => Class::InSync' \
  activation a_copy_that_was_begun
fault BA-13 $machine 'Some\(_\) => Phase::Closing \{[^}]*then: Then::Written \{ stop: true \} \}' \
  'Some(_) => Phase::Stopped' activation ba_13_
fault BR-1 $receiver 'out\.push\(Effect::Store\(number, request\)\);' \
  'out.push(Effect::Store(number, request));\nself.durable = number;\nself.answer(out);' \
  replication answers_follow_the_disk
fault BR-3 crates/replication/src/sender.rs '\|deadline\| now >= deadline' '|deadline| now > deadline.max(now)' \
  replication a_slow_replica_is_lost
fault BR-12 crates/replication/src/confirms.rs 'let dropped = self\.appended - self\.confirmed;\n\s+self\.confirmed = self\.appended;' \
  'let dropped = self.appended - self.confirmed;' replication br_12_
}

case ${1:-all} in
members) members ;;
pairs) pairs ;;
*) members; pairs ;;
esac
echo "$((count - missed)) of $count faults are noticed"
[ "$missed" = 0 ]
