use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const STREAMS: u64 = 3;

/// A journal as its operations leave it; refuses what a journal must not be given.
#[derive(Debug, Default, Clone, PartialEq)]
struct Copy {
    records: BTreeMap<(StreamId, Seq), (Vec<u8>, Vec<u8>)>,
    highest: BTreeMap<StreamId, Seq>,
}

impl Copy {
    fn take(&mut self, op: &Op) {
        match op {
            Op::Put { stream, seq, head, payload: Payload::Bytes(bytes), .. } => {
                let highest = self.highest.entry(*stream).or_insert(Seq(0));
                assert!(*seq > *highest, "{seq} after {highest}");
                *highest = *seq;
                let record = (head.as_slice().to_vec(), bytes.to_vec());
                self.records.insert((*stream, *seq), record);
            }
            Op::Put { .. } => panic!("only bytes in here"),
            Op::Note { stream, seq, bytes } => {
                if let Some((head, _)) = self.records.get_mut(&(*stream, *seq)) {
                    *head = bytes.as_slice().to_vec();
                }
            }
            Op::Release { stream, first, last } => {
                self.records.retain(|(of, seq), _| of != stream || seq < first || seq > last);
            }
            Op::Drop { stream } => self.records.retain(|(of, _), _| of != stream),
        }
    }

    fn survey(&self, stream: StreamId, from: Seq, most: usize) -> Survey {
        let all = self.records.range((stream, from)..=(stream, Seq(u64::MAX)));
        let records: Vec<(Seq, Head)> =
            all.take(most).map(|((_, seq), (head, _))| (*seq, Head::new(head))).collect();
        let highest = self.highest.get(&stream).copied().unwrap_or(Seq(0));
        let ends = records.len() < most;
        let reached = match records.last() {
            Some((last, _)) if !ends => *last,
            _ => highest.max(Seq(from.0 - 1)),
        };
        Survey { records, reached, ends }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(u64),
    Note(u64, u64),
    Release(u64, u64, u64),
    Drop(u64),
    Look,
    /// How many of those that were asked for fit.
    Read(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let stream = || 0..STREAMS;
    prop_oneof![
        4 => stream().prop_map(Step::Put),
        2 => (stream(), 1..20_u64).prop_map(|(stream, seq)| Step::Note(stream, seq)),
        2 => (stream(), 1..20_u64, 0..4_u64).prop_map(|(stream, first, more)| Step::Release(stream, first, first + more)),
        1 => stream().prop_map(Step::Drop),
        3 => Just(Step::Look),
        3 => (1..4_usize).prop_map(Step::Read),
    ]
}

struct Scene {
    active: Copy,
    replica: Copy,
    backfill: Option<Backfill>,
    /// Looked at and not read.
    asked: Option<(StreamId, Vec<Seq>)>,
    dropped: Vec<StreamId>,
    count: u64,
}

impl Scene {
    fn submit(&mut self, op: Op) {
        self.active.take(&op);
        if let Some(backfill) = &mut self.backfill {
            for op in backfill.live(vec![op]) {
                self.replica.take(&op);
            }
        }
    }

    fn look(&mut self) -> bool {
        let Some(backfill) = &mut self.backfill else { return false };
        if self.asked.is_some() {
            return false;
        }
        let Some((stream, from)) = backfill.next() else { return false };
        let survey = self.active.survey(stream, from, 3);
        let wanted = backfill.surveyed(stream, survey);
        self.asked = Some((stream, wanted.into_iter().map(|(seq, _)| seq).collect()));
        true
    }

    fn read(&mut self, most: usize) {
        let Some(backfill) = &mut self.backfill else { return };
        let Some((stream, seqs)) = self.asked.take() else { return };
        let upto = seqs.get(most.max(1) - 1).copied();
        let found = seqs.into_iter().take(most).filter_map(|seq| {
            let (_, payload) = self.active.records.get(&(stream, seq))?;
            Some((seq, Bytes::copy_from_slice(payload)))
        });
        for op in backfill.read(found.collect(), upto) {
            self.replica.take(&op);
        }
    }

    fn perform(&mut self, step: &Step) {
        self.count += 1;
        let head = Head::new(&self.count.to_le_bytes());
        match *step {
            Step::Put(number) => {
                let stream = StreamId(number);
                if self.dropped.contains(&stream) {
                    return;
                }
                let seq = self.active.highest.get(&stream).copied().unwrap_or(Seq(0)).next();
                let payload = Payload::Bytes(Bytes::copy_from_slice(&self.count.to_be_bytes()));
                self.submit(Op::Put { stream, seq, class: Class::Bulk, head, payload });
            }
            Step::Note(stream, seq) => {
                self.submit(Op::Note { stream: StreamId(stream), seq: Seq(seq), bytes: head });
            }
            Step::Release(stream, first, last) => {
                let stream = StreamId(stream);
                self.submit(Op::Release { stream, first: Seq(first), last: Seq(last) });
            }
            Step::Drop(stream) => {
                self.dropped.push(StreamId(stream));
                self.submit(Op::Drop { stream: StreamId(stream) });
            }
            Step::Look => drop(self.look()),
            Step::Read(most) => self.read(most),
        }
    }
}

proptest! {
    /// Whatever is put, noted, released and dropped while the copy runs: in the end both have the
    /// same, the copy never got a position out of order, and none will be given twice.
    #[test]
    fn both_copies_are_the_same_in_the_end(
        before in proptest::collection::vec(step(), 0..60),
        during in proptest::collection::vec(step(), 0..80),
        after in proptest::collection::vec(step(), 0..20),
    ) {
        let mut scene = Scene {
            active: Copy::default(),
            replica: Copy::default(),
            backfill: None,
            asked: None,
            dropped: Vec::new(),
            count: 0,
        };
        for step in &before {
 scene.perform(step);
}
        let streams = (0..STREAMS).map(StreamId).filter(|stream| !scene.dropped.contains(stream));
        scene.backfill = Some(Backfill::new(streams));
        for step in &during {
 scene.perform(step);
}
        loop {
            scene.read(usize::MAX);
            if !scene.look() {
                break;
            }
        }
        for step in &after {
 scene.perform(step);
}
        prop_assert_eq!(&scene.active.records, &scene.replica.records);
        for (stream, highest) in &scene.active.highest {
            if !scene.dropped.contains(stream) {
                prop_assert_eq!(Some(highest), scene.replica.highest.get(stream));
            }
        }
    }
}
