use super::*;
use crate::frame;
use crate::method::write_method;
use amq_protocol::protocol::AMQPClass;
use amq_protocol::protocol::basic::{self, AMQPMethod};
use proptest::prelude::*;

fn settlements() -> impl Strategy<Value = Settlement> {
    (any::<u64>(), any::<bool>(), any::<bool>(), 0..3_u8).prop_map(
        |(delivery_tag, multiple, requeue, which)| match which {
            0 => Settlement::Ack { delivery_tag, multiple },
            1 => Settlement::Nack { delivery_tag, multiple, requeue },
            _ => Settlement::Reject { delivery_tag, requeue },
        },
    )
}

#[test]
fn golden_bytes() {
    let mut out = BytesMut::new();
    write(&mut out, 1, Settlement::Nack { delivery_tag: 3, multiple: true, requeue: true });
    assert_eq!(&out[..], [1, 0, 1, 0, 0, 0, 13, 0, 60, 0, 120, 0, 0, 0, 0, 0, 0, 0, 3, 3, 0xCE]);
}

proptest! {
    #[test]
    fn settlements_are_what_amq_protocol_writes(
        settlement in settlements(), channel in any::<u16>(),
    ) {
        let method = match settlement {
            Settlement::Ack { delivery_tag, multiple } => {
                AMQPMethod::Ack(basic::Ack { delivery_tag, multiple })
            }
            Settlement::Nack { delivery_tag, multiple, requeue } => {
                AMQPMethod::Nack(basic::Nack { delivery_tag, multiple, requeue })
            }
            Settlement::Reject { delivery_tag, requeue } => {
                AMQPMethod::Reject(basic::Reject { delivery_tag, requeue })
            }
        };
        let (mut ours, mut theirs) = (BytesMut::new(), BytesMut::new());
        write(&mut ours, channel, settlement);
        write_method(&mut theirs, channel, &AMQPClass::Basic(method));
        prop_assert_eq!(&ours, &theirs);
        let payload = frame::decode(&mut ours, 0).unwrap().unwrap().payload;
        prop_assert_eq!(parse(&payload), Some(settlement));
        prop_assert_eq!(parse(&payload[..12]), None);
    }
}
