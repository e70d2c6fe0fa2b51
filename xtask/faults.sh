#!/bin/bash
# Puts faults of docs/reconciliation-faults.md back, one after the other, in a copy of the sources, and
# sees that the test which should notice it fails. Fails if one does not.
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

plan=crates/membership/src/plan.rs
schedule=crates/membership/src/scheduler.rs
fault BM-1 crates/membership/src/desired.rs '\[policy, operator_policy, argument\]' \
  '[policy, operator_policy, argument.map(|_| u64::MAX)]' membership bm_1_
fault BM-3 $plan 'filter\(\|member\| !observed\.runs\(member\)\)\.collect' 'filter(|_| false).collect' \
  membership bm_3_
fault BM-5 crates/membership/src/refusal.rs \
  '\| Self::Unconfirmed\n(\s+\| Self::Changing.*?)\| Self::LogTooLarge' \
  '\n$1| Self::Unconfirmed | Self::LogTooLarge' membership bm_5_
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
echo "$((count - missed)) of $count faults are noticed"
[ "$missed" = 0 ]
