/* SPDX-License-Identifier: BSD-3-Clause */
/* What must be known of TLS 1.3 on the wire (RFC 8446) where OpenSSL does not see it: before and after the handshake.
 * All functions are pure. */
#ifndef TLS_WIRE_H
#define TLS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLS_RECORD_HEAD 5 /* bytes */

/* The bytes of a record with its head, from the first n bytes of it (1 to TLS_RECORD_HEAD); TLS_RECORD_HEAD while its
 * head is incomplete; -1: that is no record of TLS 1.3, or, with first, none that a connection begins with. */
int tls_record_bytes(const uint8_t *head, size_t n, bool first);

/* A record of which all is encrypted (5.2): head, content, type, tag; of padding there is no more than content may be.
 */
#define TLS_RECORD_TAG         16
#define TLS_RECORD_CONTENT_MAX 16384
#define TLS_RECORD_EXTRA       (TLS_RECORD_HEAD + 1 + TLS_RECORD_TAG)
#define TLS_RECORD_MAX         (TLS_RECORD_CONTENT_MAX + TLS_RECORD_EXTRA)
/* The bytes of such a record with its head, from that: TLS_RECORD_EXTRA to TLS_RECORD_MAX. -EINVAL: it is none of TLS
 * 1.3, or is not encrypted; -EMSGSIZE: it is longer; -EBADMSG: it is too short to have a tag. */
int tls_data_record_bytes(const uint8_t head[TLS_RECORD_HEAD]);

/* Types of records (5.1). */
enum { TLS_RECORD_ALERT = 21, TLS_RECORD_HANDSHAKE = 22, TLS_RECORD_DATA = 23 };

/* Alerts (6). */
#define TLS_ALERT_WARNING 1
#define TLS_ALERT_FATAL   2
enum {
	TLS_ALERT_CLOSE_NOTIFY = 0,
	TLS_ALERT_UNEXPECTED_MESSAGE = 10,
	TLS_ALERT_BAD_RECORD_MAC = 20,
	TLS_ALERT_RECORD_OVERFLOW = 22,
	TLS_ALERT_ILLEGAL_PARAMETER = 47,
	TLS_ALERT_DECODE_ERROR = 50,
	TLS_ALERT_INTERNAL_ERROR = 80,
	TLS_ALERT_USER_CANCELED = 90,
};

#define TLS_MESSAGES_MAX 16 /* messages (KeyUpdate, NewSessionTicket) that may come without payload between them */
/* Also with payload between them, so many KeyUpdates may come, for each costs as much time as hundreds of KB of
 * payload: then one for so many bytes of payload. */
#define TLS_UPDATES_MAX  16
#define TLS_UPDATE_BYTES 65536

/* How far the other side has got with what is no payload, after the handshake. Zeroed at first. */
struct tls_control {
	uint8_t type;    /* of the record that an incomplete message or alert is in */
	uint8_t head[4]; /* of the message; or the alert */
	bool in_update;  /* the body of KeyUpdate is to come: its one byte is not dropped */
	bool updated;  /* KeyUpdate has come: nothing may be behind it in its record. Who has followed it clears this */
	uint8_t have;  /* bytes of head */
	uint32_t left; /* bytes of the message's body that are to come, and are dropped */
	unsigned messages; /* since the last payload */
	unsigned updates;  /* KeyUpdates that are not paid for */
	size_t paid; /* bytes of payload: less than TLS_UPDATE_BYTES are left when the updates have been reduced */
};

enum tls_control_result {
	TLS_CONTROL_GO_ON,
	TLS_CONTROL_CLOSED,           /* close_notify */
	TLS_CONTROL_FAILED,           /* another alert: head[1] */
	TLS_CONTROL_KEY_UPDATE,       /* from the next record on it encrypts with other keys */
	TLS_CONTROL_KEY_UPDATE_ASKED, /* the same, and it asks this side to do so too */
	TLS_CONTROL_FLOOD,            /* more than TLS_MESSAGES_MAX messages, or than TLS_UPDATES_MAX KeyUpdates */
	TLS_CONTROL_MALFORMED,        /* KeyUpdate is not of one byte */
	TLS_CONTROL_ILLEGAL,          /* KeyUpdate has a value that there is not */
	TLS_CONTROL_WRONG,            /* nothing that may come now, or not so */
};

/* Takes n bytes of a record that is no payload; a record may come in pieces. ticket: it may send NewSessionTicket,
 * which is dropped, as the alert user_canceled is: close_notify follows it. */
enum tls_control_result tls_control_take(struct tls_control *c, uint8_t type, const uint8_t *bytes, size_t n,
					 bool ticket);
/* Payload has come: so many bytes, of which 0 count as a message does. False: in the middle of a message, or one too
 * many. */
bool tls_control_payload(struct tls_control *c, size_t bytes);

/* The next identity that a host offers, from the body of its extension pre_shared_key (4.2.11): *at is 0 at first, and
 * goes on. False: there are no more, or the rest is malformed. */
bool tls_offer_next(const uint8_t *ext, size_t ext_len, size_t *at, const char **identity, size_t *len);

#endif
