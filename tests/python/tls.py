"""TLS steps with pika: tls.py PORT STEP, run in a folder with ca.pem, client.pem and client.key."""

import socket
import ssl
import sys

import pika
from pika.credentials import ExternalCredentials, PlainCredentials
from pika.exceptions import AMQPError

PORT, STEP = int(sys.argv[1]), sys.argv[2]


def context(certificate=False):
    tls = ssl.create_default_context(cafile="ca.pem")
    if certificate:
        tls.load_cert_chain("client.pem", "client.key")
    return tls


def connect(credentials, certificate=False):
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "localhost",
            PORT,
            credentials=credentials,
            ssl_options=pika.SSLOptions(context(certificate), "localhost"),
        )
    )


def round_trip(connection, user=None):
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    properties = pika.BasicProperties(user_id=user)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"x" * 300000, properties, mandatory=True)
    _, _, body = channel.basic_get(queue, auto_ack=True)
    assert body == b"x" * 300000
    connection.close()


if STEP == "plain":
    round_trip(connect(PlainCredentials("guest", "guest")))
elif STEP == "external":
    # The user-id check proves who we are.
    round_trip(connect(ExternalCredentials(), certificate=True), "somebody")
    print("somebody")
elif STEP == "external-without-certificate":
    try:
        connect(ExternalCredentials())
    except (AMQPError, OSError):
        sys.exit(0)
    sys.exit("logged in")
elif STEP == "plaintext-on-the-tls-port":
    plain = socket.create_connection(("localhost", PORT))
    plain.sendall(b"AMQP\x00\x00\x09\x01")
    plain.settimeout(20)
    answer = b""
    try:
        while piece := plain.recv(100):
            answer += piece
    except ConnectionError:
        pass
    assert not answer.startswith(b"AMQP"), answer
    round_trip(connect(PlainCredentials("guest", "guest")))
elif STEP == "serial":
    print(ssl.get_server_certificate(("127.0.0.1", PORT)))
else:
    sys.exit("unknown step")
