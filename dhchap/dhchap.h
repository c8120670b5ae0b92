/* SPDX-License-Identifier: BSD-3-Clause */
/* DH-HMAC-CHAP (NVM Express Base Specification 2.0c, 8.13.5), for hosts and targets: secrets, the arithmetic, the
 * messages, and a helper thread for what is slow. Who sends what when is not here: that is nvme/auth.c and nvmf/auth.c.
 *
 * All but the helper thread is pure: bytes in, bytes or an error out, on any thread. What fails leaves nothing in
 * OpenSSL's list of the thread's errors. Secrets never reach a log or a trace; who holds one in memory of its own
 * cleanses it. */
#ifndef DHCHAP_DHCHAP_H
#define DHCHAP_DHCHAP_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <nvme/types.h>
#include "thread/worker.h"

#define DHCHAP_ERROR_MAX 160

/* ---- Hash functions and groups: figures 8.13.5 HashID and DHgID ---- */

enum dhchap_hash {
	DHCHAP_HASH_NONE = 0, /* of secrets only: it is not transformed */
	DHCHAP_HASH_SHA256 = 1,
	DHCHAP_HASH_SHA384 = 2,
	DHCHAP_HASH_SHA512 = 3,
	DHCHAP_HASHES,
};
enum dhchap_group {
	DHCHAP_GROUP_NULL = 0,
	DHCHAP_GROUP_2048 = 1,
	DHCHAP_GROUP_3072 = 2,
	DHCHAP_GROUP_4096 = 3,
	DHCHAP_GROUP_6144 = 4,
	DHCHAP_GROUP_8192 = 5,
	DHCHAP_GROUPS,
};
/* Sets of them: bit 1 << id. */
#define DHCHAP_ALL_HASHES (1u << DHCHAP_HASH_SHA256 | 1u << DHCHAP_HASH_SHA384 | 1u << DHCHAP_HASH_SHA512)
#define DHCHAP_ALL_GROUPS ((1u << DHCHAP_GROUPS) - 1)

#define DHCHAP_HASH_MAX 64   /* bytes of the longest hash */
#define DHCHAP_DH_MAX   1024 /* bytes of the largest group's numbers */

/* Bytes of a hash; 0: no such function. */
size_t dhchap_hash_bytes(unsigned hash);
/* Bytes of a group's numbers; 0: the null group, or no such group. */
size_t dhchap_group_bytes(unsigned group);
/* "sha256", "ffdhe2048", "null"; "unknown" for what is none. */
const char *dhchap_hash_name(unsigned hash);
const char *dhchap_group_name(unsigned group);
/* The id, or -EINVAL. */
int dhchap_hash_by_name(const char *name);
int dhchap_group_by_name(const char *name);
/* The strongest of a set: its id, or -1 for an empty one. */
int dhchap_strongest(unsigned set);

/* ---- Secrets: 8.13.5.8 ---- */

struct dhchap_secret {
	uint8_t hash; /* enum dhchap_hash: what it is transformed with */
	uint8_t len;  /* 32, 48 or 64 */
	uint8_t bytes[DHCHAP_HASH_MAX];
};
/* Reads "DHHC-1:XX:BASE64:", white space around it allowed. 0, or -EINVAL and why: which part is wrong and what is
 * allowed, without any of the secret. */
int dhchap_secret_parse(const char *text, size_t len, struct dhchap_secret *secret, char why[DHCHAP_ERROR_MAX]);
void dhchap_cleanse(void *secret, size_t len);
/* Secrets, or what is made from them: in a time that does not depend on where they differ. */
bool dhchap_equal(const void *a, const void *b, size_t len);

/* ---- The arithmetic: 8.13.5.4 to 8.13.5.6 ---- */

/* The key that a secret stands for, of the one who is called nqn: *len bytes. 0, or -EIO (OpenSSL has no such
 * function). */
int dhchap_transform(const struct dhchap_secret *secret, const char *nqn, uint8_t key[DHCHAP_HASH_MAX], size_t *len);

struct dhchap_challenge_in {
	const struct dhchap_secret *secret; /* of who answers */
	uint8_t hash;
	bool of_host; /* the host answers; else the controller */
	const char *hostnqn, *subnqn;
	uint32_t seqnum;
	uint16_t t_id;
	const uint8_t *challenge; /* as long as the hash */
	const uint8_t *dh_secret; /* what both sides have from Diffie-Hellman */
	size_t dh_secret_len;     /* 0: the null group */
};
/* What the one who is challenged answers: as long as the hash. 0 or -EIO. */
int dhchap_respond(const struct dhchap_challenge_in *in, uint8_t response[DHCHAP_HASH_MAX]);
/* Random bytes for a challenge: 0 or -EIO. */
int dhchap_random(void *to, size_t len);
/* A sequence number: never 0, never the same twice until all have been used. Control thread. */
uint32_t dhchap_seqnum(void);

/* Diffie-Hellman with a group of RFC 7919. Slow: milliseconds, up to a tenth of a second. */
struct dhchap_dh;
/* A new pair of keys. 0, -EINVAL (no such group), -EIO. */
int dhchap_dh_generate(unsigned group, struct dhchap_dh **dh);
/* The public one, big-endian, dhchap_group_bytes() long. 0 or -EIO. */
int dhchap_dh_public(const struct dhchap_dh *dh, uint8_t value[DHCHAP_DH_MAX]);
/* What both sides have, dhchap_group_bytes() long. -EINVAL: the other's value is none of the group (0, 1, p - 1 and
 * above). */
int dhchap_dh_secret(const struct dhchap_dh *dh, const uint8_t *peer, size_t peer_len, uint8_t secret[DHCHAP_DH_MAX]);
void dhchap_dh_free(struct dhchap_dh *dh); /* NULL: nothing */

/* ---- Messages: 8.13.5.2, 8.13.5.3; little-endian, packed by layout ---- */

#define DHCHAP_MESSAGE_MAX 4096 /* what we take, and offer to take; the longest is 16 + 2 * 64 + 1024 bytes */

enum dhchap_type { DHCHAP_TYPE_COMMON = 0, DHCHAP_TYPE_DHCHAP = 1 };
enum dhchap_id {
	DHCHAP_ID_NEGOTIATE = 0x00, /* common */
	DHCHAP_ID_CHALLENGE = 0x01,
	DHCHAP_ID_REPLY = 0x02,
	DHCHAP_ID_SUCCESS1 = 0x03,
	DHCHAP_ID_SUCCESS2 = 0x04,
	DHCHAP_ID_FAILURE2 = 0xf0, /* common */
	DHCHAP_ID_FAILURE1 = 0xf1, /* common */
};
enum dhchap_reason { DHCHAP_REASON_FAILURE = 1 };
/* Reason code explanations of the failure messages. 0: nothing has failed. */
enum dhchap_why {
	DHCHAP_OK = 0,
	DHCHAP_FAILED = 1,
	DHCHAP_PROTOCOL_UNUSABLE = 2,
	DHCHAP_SCC_MISMATCH = 3, /* secure channel concatenation */
	DHCHAP_HASH_UNUSABLE = 4,
	DHCHAP_GROUP_UNUSABLE = 5,
	DHCHAP_INCORRECT_PAYLOAD = 6,
	DHCHAP_INCORRECT_MESSAGE = 7,
};
const char *dhchap_why_text(unsigned why);

struct dhchap_header {
	uint8_t type, id;
	uint8_t rsvd2[2];
	__le16 t_id;
};
struct dhchap_protocol_wire {
	uint8_t auth_id; /* DHCHAP_TYPE_DHCHAP */
	uint8_t rsvd1, num_hashes, num_groups;
	uint8_t hashes[30], groups[30];
};
struct dhchap_negotiate_wire {
	struct dhchap_header header;
	uint8_t sc_c, num_protocols;
	struct dhchap_protocol_wire protocols[];
};
struct dhchap_challenge_wire {
	struct dhchap_header header;
	uint8_t hash_len, rsvd7, hash, group;
	__le16 dh_len;
	__le32 seqnum;
	uint8_t values[]; /* the challenge, the DH value */
};
struct dhchap_reply_wire {
	struct dhchap_header header;
	uint8_t hash_len, rsvd7, challenge_valid, rsvd9;
	__le16 dh_len;
	__le32 seqnum;
	uint8_t values[]; /* the response, a challenge, the DH value */
};
struct dhchap_success1_wire {
	struct dhchap_header header;
	uint8_t hash_len, rsvd7, response_valid, rsvd9[7];
	uint8_t values[]; /* the response, if it is valid */
};
struct dhchap_success2_wire {
	struct dhchap_header header;
	uint8_t rsvd6[10];
};
struct dhchap_failure_wire {
	struct dhchap_header header;
	uint8_t reason, why;
};
_Static_assert(sizeof(struct dhchap_header) == 6 && sizeof(struct dhchap_protocol_wire) == 64, "Base 8.13.5");
_Static_assert(sizeof(struct dhchap_negotiate_wire) == 8 && sizeof(struct dhchap_challenge_wire) == 16, "Base 8.13.5");
_Static_assert(sizeof(struct dhchap_reply_wire) == 16 && sizeof(struct dhchap_success1_wire) == 16, "Base 8.13.5");
_Static_assert(sizeof(struct dhchap_success2_wire) == 16 && sizeof(struct dhchap_failure_wire) == 8, "Base 8.13.5");
_Static_assert(offsetof(struct dhchap_challenge_wire, seqnum) == 12, "Base 8.13.5");

/* What the messages say, once decoded. Pointers are into the message. */
struct dhchap_negotiate {
	unsigned hashes, groups; /* sets; what we do not know is left out */
};
struct dhchap_challenge {
	uint8_t hash, group;
	uint32_t seqnum;
	const uint8_t *challenge, *dh_value;
	uint16_t dh_len;
};
struct dhchap_reply {
	bool challenge_valid;
	uint32_t seqnum;
	const uint8_t *response, *challenge, *dh_value;
	uint16_t dh_len;
};
struct dhchap_success1 {
	bool response_valid;
	const uint8_t *response;
};
struct dhchap_failure {
	uint8_t reason, why;
};

/* What is common to all: false if there is less than that. */
bool dhchap_decode_header(const void *data, size_t len, struct dhchap_header *header);
/* The rest, of a message whose header fits: DHCHAP_OK, or what is wrong with it (enum dhchap_why). Target: */
uint8_t dhchap_decode_negotiate(const void *data, size_t len, struct dhchap_negotiate *out);
uint8_t dhchap_decode_reply(const void *data, size_t len, unsigned hash, unsigned group, struct dhchap_reply *out);
uint8_t dhchap_decode_success2(const void *data, size_t len);
uint8_t dhchap_decode_failure(const void *data, size_t len, struct dhchap_failure *out);
/* Host; data may be followed by bytes that belong to no message. */
uint8_t dhchap_decode_challenge(const void *data, size_t len, struct dhchap_challenge *out);
uint8_t dhchap_decode_success1(const void *data, size_t len, unsigned hash, struct dhchap_success1 *out);

/* Write a message into DHCHAP_MESSAGE_MAX bytes: its length. Hash and group are known ones; a NULL challenge or
 * response: none. */
size_t dhchap_encode_negotiate(void *to, uint16_t t_id, unsigned hashes, unsigned groups);
size_t dhchap_encode_challenge(void *to, uint16_t t_id, const struct dhchap_challenge *m);
size_t dhchap_encode_reply(void *to, uint16_t t_id, unsigned hash, const struct dhchap_reply *m);
size_t dhchap_encode_success1(void *to, uint16_t t_id, unsigned hash, const uint8_t *response);
size_t dhchap_encode_success2(void *to, uint16_t t_id);
size_t dhchap_encode_failure(void *to, uint16_t t_id, uint8_t id, uint8_t why);

/* ---- What is slow ---- */

/* Control thread. One job at a time: a crowd of hosts that all want to be authenticated takes one core and no more. */
void dhchap_run(struct worker_job *job);
/* The process ends, and nobody is left who would run one: waits for what is under way. Control thread, outside of its
 * loop. */
void dhchap_stop(void);

#endif
