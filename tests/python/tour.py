"""A tour of AMQP 0.9.1 and its extensions with pika.

    tour.py HOST PORT VHOST leveret|other

Every step is a function; the first one that fails ends the tour with its traceback.
"""

import sys
import time

import pika
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    NackError,
    UnroutableError,
)

HOST, PORT, VHOST, BROKER = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
OURS = BROKER == "leveret"
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def connect(**options):
    credentials = options.pop("credentials", pika.PlainCredentials("guest", "guest"))
    return pika.BlockingConnection(
        pika.ConnectionParameters(HOST, PORT, VHOST, credentials, **options)
    )


def until(what, probe, seconds=20):
    """Polls a condition; the tour never waits for time to pass."""
    deadline = time.monotonic() + seconds
    while True:
        value = probe()
        if value:
            return value
        assert time.monotonic() < deadline, "in vain: " + what
        time.sleep(0.01)


def take(channel, queue):
    def probe():
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        return method and (method, properties, body)

    return until("a message in " + queue, probe)


def refused(code, call):
    try:
        call()
    except (ChannelClosedByBroker, ConnectionClosedByBroker) as error:
        assert error.reply_code == code, error
        return error.reply_text
    raise AssertionError("expected %d" % code)


def confirms(connection):
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("confirms", durable=True)
    channel.basic_publish("", "confirms", b"m", PERSISTENT, mandatory=True)
    try:
        channel.basic_publish("", "nobody", b"m", PERSISTENT, mandatory=True)
        raise AssertionError("not returned")
    except UnroutableError as error:
        assert error.messages[0].method.reply_code == 312
    channel.queue_declare(
        "full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    try:
        for _ in range(5):
            channel.basic_publish("", "full", b"m", PERSISTENT)
        raise AssertionError("not refused")
    except NackError:
        pass
    assert take(channel, "confirms")[2] == b"m"
    channel.close()


def consuming(connection):
    channel = connection.channel()
    channel.queue_declare("consuming", durable=True)
    for n in range(10):
        channel.basic_publish("", "consuming", b"%d" % n, PERSISTENT)
    channel.basic_qos(prefetch_count=3)
    seen = []
    for method, _, body in channel.consume("consuming", inactivity_timeout=20):
        assert method is not None, seen
        seen.append(int(body))
        if len(seen) == 1:
            channel.basic_nack(method.delivery_tag, requeue=True)
        else:
            channel.basic_ack(method.delivery_tag)
        if len(seen) == 11:
            break
    assert sorted(seen) == [0] + list(range(10)), seen
    assert channel.cancel() == 0
    channel.basic_recover(requeue=True)
    channel.close()


def queues(connection):
    channel = connection.channel()
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-"), name
    channel.queue_declare("dead", durable=True)
    channel.queue_declare(
        "work",
        durable=True,
        arguments={
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
            "x-message-ttl": 50,
            "x-max-priority": 3,
            "x-expires": 600000,
        },
    )
    channel.basic_publish("", "work", b"expired", PERSISTENT)
    method, properties, body = take(channel, "dead")
    assert body == b"expired"
    death = properties.headers["x-death"][0]
    assert (death["queue"], death["reason"], death["count"]) == ("work", "expired", 1), death
    channel.queue_declare("bounded", durable=True, arguments={"x-max-length-bytes": 10})
    for n in range(4):
        channel.basic_publish("", "bounded", b"%d----" % n, PERSISTENT)
    until("two are left", lambda: channel.queue_declare("bounded", passive=True).method.message_count == 2)
    assert channel.queue_purge("bounded").method.message_count == 2
    assert channel.queue_delete("bounded").method.message_count == 0
    refused(404, lambda: channel.queue_declare("bounded", passive=True))
    channel = connection.channel()
    text = refused(406, lambda: channel.queue_declare("dead", durable=True, arguments={"x-max-length": 5}))
    assert "inequivalent arg 'x-max-length'" in text, text
    channel = connection.channel()
    channel.queue_declare("auto", durable=True, auto_delete=True)
    tag = channel.basic_consume("auto", lambda *_: None)
    channel.basic_cancel(tag)
    refused(404, lambda: until("gone", lambda: channel.queue_declare("auto", passive=True) and None))
    if OURS:
        channel = connection.channel()
        channel.queue_declare("transient")
        channel.basic_qos(prefetch_count=5, global_qos=True)
        channel.close()


def routing(connection):
    channel = connection.channel()
    for name, kind in [("front", "topic"), ("middle", "headers"), ("back", "fanout")]:
        channel.exchange_declare(
            name, kind, durable=True, arguments={"alternate-exchange": "back"} if name == "front" else None
        )
    channel.queue_declare("matched", durable=True)
    channel.queue_declare("rest", durable=True)
    channel.exchange_bind("middle", "front", "a.*")
    channel.queue_bind("matched", "middle", "", arguments={"x-match": "all", "k": 1})
    channel.queue_bind("rest", "back")
    channel.basic_publish("front", "a.b", b"headers", pika.BasicProperties(headers={"k": 1}))
    channel.basic_publish("front", "other", b"alternate", PERSISTENT)
    assert take(channel, "matched")[2] == b"headers"
    assert take(channel, "rest")[2] == b"alternate"
    channel.basic_publish(
        "", "matched", b"copies", pika.BasicProperties(headers={"CC": ["rest"], "BCC": ["rest"]})
    )
    method, properties, _ = take(channel, "rest")
    assert properties.headers == {"CC": ["rest"]}, properties.headers
    channel.exchange_unbind("middle", "front", "a.*")
    channel.queue_unbind("rest", "back")
    channel.exchange_delete("back")
    if OURS:
        channel.exchange_declare("ring", "x-consistent-hash", durable=True)
        channel.queue_bind("rest", "ring", "1")
        channel.basic_publish("ring", "any", b"hashed", PERSISTENT)
        assert take(channel, "rest")[2] == b"hashed"
    channel.close()


def reply_to(connection):
    client, server = connection.channel(), connection.channel()
    server.queue_declare("requests", durable=True)
    replies = []
    client.basic_consume(
        "amq.rabbitmq.reply-to", lambda _, __, ___, body: replies.append(body), auto_ack=True
    )
    client.basic_publish(
        "", "requests", b"q", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
    )
    _, properties, _ = take(server, "requests")
    server.basic_publish("", properties.reply_to, b"a")
    until("the answer", lambda: connection.process_data_events(0.01) or replies)
    assert replies == [b"a"]
    client.close()
    server.close()


def transactions(connection):
    channel = connection.channel()
    channel.queue_declare("tx", durable=True)
    channel.tx_select()
    channel.basic_publish("", "tx", b"1", PERSISTENT)
    channel.tx_rollback()
    channel.basic_publish("", "tx", b"2", PERSISTENT)
    channel.tx_commit()
    assert take(channel, "tx")[2] == b"2"
    channel.tx_commit()
    channel.close()


def cancel_notify(connection):
    channel = connection.channel()
    channel.queue_declare("goes", durable=True)
    channel.basic_consume("goes", lambda *_: None, consumer_tag="told")
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    other = connection.channel()
    other.queue_delete("goes")
    until("the cancel", lambda: connection.process_data_events(0.01) or cancelled)
    assert cancelled == ["told"]


def priorities(connection):
    channel = connection.channel()
    channel.queue_declare("prioritised", durable=True, arguments={"x-single-active-consumer": True})
    seen = []
    channel.basic_consume(
        "prioritised", lambda _, method, *rest: seen.append(method.consumer_tag), consumer_tag="first", auto_ack=True
    )
    channel.basic_consume(
        "prioritised", lambda _, method, *rest: seen.append(method.consumer_tag), consumer_tag="second", auto_ack=True
    )
    for _ in range(3):
        channel.basic_publish("", "prioritised", b"m", PERSISTENT)
    until("three messages", lambda: connection.process_data_events(0.01) or len(seen) == 3)
    assert seen == ["first"] * 3, seen
    channel.close()


def errors(connection):
    refused(403, lambda: connection.channel().exchange_declare("amq.own", "direct"))
    refused(404, lambda: connection.channel().basic_get("unheard-of"))
    channel = connection.channel()
    channel.basic_ack(99)
    refused(406, lambda: channel.queue_declare("anything", durable=True))
    other = connect()
    other.channel().queue_declare("locked", exclusive=True)
    refused(405, lambda: connection.channel().queue_declare("locked", passive=True))
    other.close()
    connection.channel().queue_declare("locked", exclusive=True)
    try:
        connect(credentials=pika.PlainCredentials("guest", "wrong"))
        raise AssertionError("logged in")
    except AMQPConnectionError:
        pass


def negotiation(_):
    small = connect(frame_max=4096 if OURS else 8192, channel_max=10, heartbeat=5)
    channel = small.channel()
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", name, b"x" * 100000)
    assert len(take(channel, name)[2]) == 100000
    small.update_secret("guest", "because")
    small.close()


def main():
    connection = connect()
    for step in [
        confirms,
        consuming,
        queues,
        routing,
        reply_to,
        transactions,
        cancel_notify,
        priorities,
        errors,
        negotiation,
    ]:
        print(step.__name__)
        step(connection)
    connection.close()


main()
