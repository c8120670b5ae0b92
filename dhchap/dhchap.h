/* SPDX-License-Identifier: BSD-3-Clause */
/* DH-HMAC-CHAP (NVM Express Base Specification 2.0c, 8.13.5), for hosts and targets: secrets, the arithmetic, the
 * messages, and a queue of worker jobs for the slow calculations. The protocol, which side sends which message when, is
 * in nvme/auth.c and nvmf/auth.c.
 *
 * Except dhchap_seqnum(), dhchap_run() and dhchap_stop(), the functions keep no state and may be called on any thread.
 * One that fails leaves nothing in the thread's list of OpenSSL errors. Secrets never reach a log or a trace; code that
 * copies one overwrites the copy with dhchap_cleanse(). */
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
	DHCHAP_HASH_NONE = 0, /* of secrets alone: the secret is not transformed */
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
/* Sets of hash functions and of groups: bit 1 << id. */
#define DHCHAP_ALL_HASHES (1u << DHCHAP_HASH_SHA256 | 1u << DHCHAP_HASH_SHA384 | 1u << DHCHAP_HASH_SHA512)
#define DHCHAP_ALL_GROUPS ((1u << DHCHAP_GROUPS) - 1)

#define DHCHAP_HASH_MAX 64   /* bytes of the longest hash */
#define DHCHAP_DH_MAX   1024 /* bytes of the largest group's numbers */

/* Bytes of a hash; 0: no such hash function. */
size_t dhchap_hash_bytes(unsigned hash);
/* Bytes of a group's numbers; 0: the null group, or no such group. */
size_t dhchap_group_bytes(unsigned group);
/* The name of a hash function: "sha256"; "unknown": no such function. */
const char *dhchap_hash_name(unsigned hash);
/* The name of a group: "ffdhe2048", "null"; "unknown": no such group. */
const char *dhchap_group_name(unsigned group);
/* The hash function of that name, or -EINVAL. */
int dhchap_hash_by_name(const char *name);
/* The group of that name, or -EINVAL. */
int dhchap_group_by_name(const char *name);
/* The id of the strongest hash function or group of a set; -1: the set is empty. */
int dhchap_strongest(unsigned set);

/* ---- Secrets: 8.13.5.8 ---- */

struct dhchap_secret {
	uint8_t hash; /* enum dhchap_hash that the secret is transformed with */
	uint8_t len;  /* 32, 48 or 64 */
	uint8_t bytes[DHCHAP_HASH_MAX];
};
/* Parses "DHHC-1:XX:BASE64:", with or without white space around it. 0; or -EINVAL, and why says which part is wrong
 * and what is allowed, without any byte of the secret. */
int dhchap_secret_parse(const char *text, size_t len, struct dhchap_secret *secret, char why[DHCHAP_ERROR_MAX]);
/* Decodes the last part of such a text, or of a TLS key in the interchange format (tls/psk.h): base64 of a key of 32,
 * 48 or 64 bytes and its CRC-32. 0; or -EINVAL, and why says what is wrong. */
int dhchap_key_decode(const char *text, size_t len, uint8_t key[DHCHAP_HASH_MAX], uint8_t *key_len,
		      char why[DHCHAP_ERROR_MAX]);
/* Overwrites a secret with zeroes, also where the compiler sees that nobody reads them. */
void dhchap_cleanse(void *secret, size_t len);
/* Whether two secrets, or values made from secrets, are equal. Takes a time that does not depend on where they
 * differ. */
bool dhchap_equal(const void *a, const void *b, size_t len);

/* ---- The arithmetic: 8.13.5.4 to 8.13.5.6 ---- */

/* Transforms the secret of the host or subsystem called nqn into its key, of *len bytes. 0, or -EIO: OpenSSL lacks the
 * hash function. */
int dhchap_transform(const struct dhchap_secret *secret, const char *nqn, uint8_t key[DHCHAP_HASH_MAX], size_t *len);

struct dhchap_challenge_in {
	const struct dhchap_secret *secret; /* of the side that answers */
	uint8_t hash;
	bool of_host; /* the host answers; else the controller */
	const char *hostnqn, *subnqn;
	uint32_t seqnum;
	uint16_t t_id;
	const uint8_t *challenge; /* as long as the hash */
	const uint8_t *dh_secret; /* the shared secret of Diffie-Hellman */
	size_t dh_secret_len;     /* 0: the null group */
	uint8_t sc_c;             /* enum dhchap_sc_c that the host has asked for */
};
/* Calculates the response to a challenge, as long as the hash. 0 or -EIO. */
int dhchap_respond(const struct dhchap_challenge_in *in, uint8_t response[DHCHAP_HASH_MAX]);
/* Calculates the generated PSK (8.13.5.9), as long as the hash, from the shared secret of Diffie-Hellman and both
 * challenges: the controller's, the host's. 0 or -EIO. */
int dhchap_generate_psk(unsigned hash, const uint8_t *dh_secret, size_t dh_secret_len, const uint8_t *of_ctrlr,
			const uint8_t *of_host, uint8_t psk[DHCHAP_HASH_MAX]);
/* Fills a challenge with random bytes. 0 or -EIO. */
int dhchap_random(void *to, size_t len);
/* The next sequence number: never 0, and none twice until all have been used. Control thread. */
uint32_t dhchap_seqnum(void);

/* A pair of keys for Diffie-Hellman with a group of RFC 7919. Calculations take milliseconds, up to a tenth of a
 * second: for worker jobs. */
struct dhchap_dh;
/* Generates a pair of keys, for dhchap_dh_free(). 0, -EINVAL (no such group) or -EIO. */
int dhchap_dh_generate(unsigned group, struct dhchap_dh **dh);
/* Writes the public key, big-endian, of dhchap_group_bytes(). 0 or -EIO. */
int dhchap_dh_public(const struct dhchap_dh *dh, uint8_t value[DHCHAP_DH_MAX]);
/* Calculates the shared secret, of dhchap_group_bytes(), from the peer's public key. 0; -EINVAL: the peer's value is
 * not in the group (0, 1, p - 1 and above); or -EIO. */
int dhchap_dh_secret(const struct dhchap_dh *dh, const uint8_t *peer, size_t peer_len, uint8_t secret[DHCHAP_DH_MAX]);
/* Frees a pair of keys; NULL is ignored. */
void dhchap_dh_free(struct dhchap_dh *dh);

/* ---- Messages: 8.13.5.2, 8.13.5.3; little-endian, packed by layout ---- */

#define DHCHAP_MESSAGE_MAX 4096 /* bytes that we accept, and offer; the longest has 16 + 2 * 64 + 1024 bytes */

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
/* Secure channel concatenation, which a host may ask for in Negotiate: both sides generate a PSK, by which the host's
 * next connections are made over TLS. */
enum dhchap_sc_c {
	DHCHAP_SC_NONE = 0,
	DHCHAP_SC_NEW_TLS_PSK = 2,     /* on a connection without TLS */
	DHCHAP_SC_REPLACE_TLS_PSK = 3, /* on one over TLS with a generated PSK */
};
/* The explanation in words, for logs. */
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

/* Decoded messages. Pointers point into the message. */
struct dhchap_negotiate {
	uint8_t sc_c;            /* enum dhchap_sc_c */
	unsigned hashes, groups; /* sets, without ids that we do not know */
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

/* Decodes the header that all messages have. False: the message is too short. */
bool dhchap_decode_header(const void *data, size_t len, struct dhchap_header *header);
/* Decodes a Negotiate message, for the target. This and the following take a message whose header has been decoded, and
 * return DHCHAP_OK, or what is wrong with the message (enum dhchap_why). */
uint8_t dhchap_decode_negotiate(const void *data, size_t len, struct dhchap_negotiate *out);
/* Decodes a Reply message to a challenge with that hash function and group, for the target. With sc_c it has to have a
 * challenge, whose sequence number 0 says that the controller need not answer; without, 0 is refused. */
uint8_t dhchap_decode_reply(const void *data, size_t len, unsigned hash, unsigned group, uint8_t sc_c,
			    struct dhchap_reply *out);
/* Checks a Success2 message, for the target. */
uint8_t dhchap_decode_success2(const void *data, size_t len);
/* Decodes a Failure1 or Failure2 message, for both sides. */
uint8_t dhchap_decode_failure(const void *data, size_t len, struct dhchap_failure *out);
/* Decodes a Challenge message, for the host. data may be longer than the message. */
uint8_t dhchap_decode_challenge(const void *data, size_t len, struct dhchap_challenge *out);
/* Decodes a Success1 message with that hash function, for the host. data may be longer than the message. */
uint8_t dhchap_decode_success1(const void *data, size_t len, unsigned hash, struct dhchap_success1 *out);

/* Writes a Negotiate message of the transaction t_id, with sc_c and sets of hash functions and groups. This and the
 * following write into DHCHAP_MESSAGE_MAX bytes at `to`, and return the length of the message. */
size_t dhchap_encode_negotiate(void *to, uint16_t t_id, uint8_t sc_c, unsigned hashes, unsigned groups);
/* Writes a Challenge message. Its hash function and group must exist. */
size_t dhchap_encode_challenge(void *to, uint16_t t_id, const struct dhchap_challenge *m);
/* Writes a Reply message; m->challenge NULL: the host does not challenge the controller. */
size_t dhchap_encode_reply(void *to, uint16_t t_id, unsigned hash, const struct dhchap_reply *m);
/* Writes a Success1 message; response NULL: the controller was not challenged. */
size_t dhchap_encode_success1(void *to, uint16_t t_id, unsigned hash, const uint8_t *response);
/* Writes a Success2 message. */
size_t dhchap_encode_success2(void *to, uint16_t t_id);
/* Writes a Failure1 or Failure2 message (id), with its explanation. */
size_t dhchap_encode_failure(void *to, uint16_t t_id, uint8_t id, uint8_t why);

/* ---- Worker jobs ---- */

/* Runs a job on a worker thread (worker_run()), one at a time: so many hosts that authenticate at once take one core
 * and no more. Control thread. */
void dhchap_run(struct worker_job *job);
/* Waits until all jobs have ended. For the end of the process, when nobody starts a job any more. Control thread,
 * outside of its loop. */
void dhchap_stop(void);

#endif
