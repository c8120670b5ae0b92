/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/wire.h"

#include <errno.h>

#define RECORD_MAX (16384 + 256) /* bytes behind the head (5.2) */
#define AGE_BYTES  4             /* obfuscated_ticket_age, behind an identity */

#define TICKET_MAX (1u << 16) /* bytes of a NewSessionTicket (4.6.1); those of usual size have hundreds */

enum { CHANGE_CIPHER_SPEC = 20 };
enum { NEW_SESSION_TICKET = 4, KEY_UPDATE = 24 };

static unsigned get_be16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

int tls_record_bytes(const uint8_t *head, size_t n, bool first)
{
	if (head[0] < CHANGE_CIPHER_SPEC || head[0] > TLS_RECORD_DATA || (first && head[0] != TLS_RECORD_HANDSHAKE) ||
	    (n > 1 && head[1] != 3)) {
		return -1;
	}
	if (n < TLS_RECORD_HEAD) {
		return TLS_RECORD_HEAD;
	}
	unsigned bytes = get_be16(head + 3);

	return bytes != 0 && bytes <= RECORD_MAX ? TLS_RECORD_HEAD + (int)bytes : -1;
}

int tls_data_record_bytes(const uint8_t head[TLS_RECORD_HEAD])
{
	int bytes = TLS_RECORD_HEAD + (int)get_be16(head + 3);

	if (head[0] != TLS_RECORD_DATA || head[1] != 3) {
		return -EINVAL;
	}
	return bytes > TLS_RECORD_MAX ? -EMSGSIZE : bytes < TLS_RECORD_EXTRA ? -EBADMSG : bytes;
}

bool tls_offer_next(const uint8_t *ext, size_t ext_len, size_t *at, const char **identity, size_t *len)
{
	size_t end = ext_len >= 2 ? 2 + (size_t)get_be16(ext) : 0;

	*at = *at == 0 ? 2 : *at;
	if (end > ext_len || *at + 2 > end) {
		return false;
	}
	*len = get_be16(ext + *at);
	if (*at + 2 + *len + AGE_BYTES > end) {
		return false;
	}
	*identity = (const char *)ext + *at + 2;
	*at += 2 + *len + AGE_BYTES;
	return true;
}

/* The two bytes of an alert are here. */
static enum tls_control_result take_alert(struct tls_control *c)
{
	if (c->head[1] == TLS_ALERT_USER_CANCELED) {
		c->have = 0;
		return ++c->messages <= TLS_MESSAGES_MAX ? TLS_CONTROL_GO_ON : TLS_CONTROL_FLOOD;
	}
	return c->head[1] == TLS_ALERT_CLOSE_NOTIFY ? TLS_CONTROL_CLOSED : TLS_CONTROL_FAILED;
}

/* The head of a message is here. */
static enum tls_control_result take_message(struct tls_control *c, bool ticket)
{
	c->left = (uint32_t)c->head[1] << 16 | get_be16(c->head + 2);
	c->have = 0;
	c->in_update = c->head[0] == KEY_UPDATE && c->left == 1;
	if (c->head[0] == KEY_UPDATE && c->left != 1) {
		return TLS_CONTROL_MALFORMED;
	}
	if (!c->in_update && (c->head[0] != NEW_SESSION_TICKET || !ticket || c->left > TICKET_MAX)) {
		return TLS_CONTROL_WRONG;
	}
	c->updates += c->in_update;
	c->messages++;
	return c->messages <= TLS_MESSAGES_MAX && c->updates <= TLS_UPDATES_MAX ? TLS_CONTROL_GO_ON : TLS_CONTROL_FLOOD;
}

/* The body of KeyUpdate is here (4.6.3). */
static enum tls_control_result take_update(struct tls_control *c, uint8_t asks)
{
	c->left = 0;
	c->in_update = false;
	c->updated = asks <= 1;
	return asks == 0 ? TLS_CONTROL_KEY_UPDATE : asks == 1 ? TLS_CONTROL_KEY_UPDATE_ASKED : TLS_CONTROL_ILLEGAL;
}

/* The next byte of a head, or of an alert. */
static enum tls_control_result take_byte(struct tls_control *c, uint8_t byte, bool ticket)
{
	c->head[c->have++] = byte;
	if (c->type == TLS_RECORD_ALERT) {
		return c->have == 2 ? take_alert(c) : TLS_CONTROL_GO_ON;
	}
	return c->have == sizeof(c->head) ? take_message(c, ticket) : TLS_CONTROL_GO_ON;
}

enum tls_control_result tls_control_take(struct tls_control *c, uint8_t type, const uint8_t *bytes, size_t n,
					 bool ticket)
{
	bool is_amid = c->have != 0 || c->left != 0;
	enum tls_control_result result = TLS_CONTROL_GO_ON;
	size_t at = 0;

	if ((type != TLS_RECORD_ALERT && type != TLS_RECORD_HANDSHAKE) || n == 0 || (is_amid && type != c->type) ||
	    c->updated) {
		return TLS_CONTROL_WRONG;
	}
	c->type = type;
	while (at < n && result == TLS_CONTROL_GO_ON) {
		size_t skipped = n - at < c->left ? n - at : c->left;

		if (c->in_update) {
			result = take_update(c, bytes[at++]);
		} else if (skipped != 0) {
			at += skipped;
			c->left -= (uint32_t)skipped;
		} else {
			result = take_byte(c, bytes[at++], ticket);
		}
	}
	return c->updated && at < n ? TLS_CONTROL_WRONG : result;
}

bool tls_control_payload(struct tls_control *c, size_t bytes)
{
	size_t paid = (c->paid + bytes) / TLS_UPDATE_BYTES;

	c->paid = (c->paid + bytes) % TLS_UPDATE_BYTES;
	c->updates = c->updates > paid ? c->updates - (unsigned)paid : 0;
	c->messages = bytes != 0 ? 0 : c->messages + 1;
	return c->have == 0 && c->left == 0 && c->messages <= TLS_MESSAGES_MAX;
}
