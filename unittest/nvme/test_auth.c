/* SPDX-License-Identifier: BSD-3-Clause */
/* In-band authentication, the host's side: the messages that it sends, and how it treats a controller that lies. A
 * function of this file is the controller. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "dhchap/dhchap.h"
#include "env_dpdk/env.h"
#include "keyring/keyring.h"
#include "nvme/internal.h"
#include "thread/thread.h"
#include "unittest/unit.h"
#include "util/compiler.h"
#include "util/log.h"

#define KEY_HOST "DHHC-1:01:Ri/aOmYf2dlR6skXAxhXB9TG90MtSxXxfeVxBOhYCRGHzziV:"
#define KEY_CTRLR                                                                                                      \
	"DHHC-1:03:wX+rrb7CNu6eP33j6zVkFZfhVr1LMDDO3PPqlJV+Ih8TQfE/7w/HYypHdgclJuLUxePSGAg9SaZyHBp0/"                  \
	"IP2Hz21o80=:"
#define HOSTNQN "nqn.2026-11.io.varve:here"
#define SUBNQN  "nqn.2026-11.io.varve:there"
#define WAIT_US UINT64_C(120000000)
#define SEQNUM  UINT32_C(0x12345678)
#define ENTRIES 4

static const uint8_t our_challenge[DHCHAP_HASH_MAX] = {9, 8, 7};

static struct {
	struct nvme_ctrlr ctrlr;
	struct nvme_qpair qpair;
	struct keyring_key *host, *other; /* the host's key, and the controller's */
	struct nvme_request *due;         /* the command that waits for an answer */
	unsigned commands, ends;
	int error; /* of the end */
	char why[NVME_ERROR_MAX];
	uint16_t t_id;
	struct dhchap_dh *dh;
	uint8_t message[DHCHAP_MESSAGE_MAX]; /* the message that the host has sent, or receives next */
	uint8_t dh_secret[DHCHAP_DH_MAX];
	size_t len, dh_len;
} fx;

/* ---- The controller ---- */

static int submit(struct nvme_qpair *qpair, struct nvme_request *req)
{
	fx.due = req;
	fx.commands++;
	return 0;
}

static void flush(struct nvme_qpair *qpair)
{
}

static const struct nvme_transport_ops fake = {
	.transport = {.trtype = (enum nvme_trtype)7, .name = "FAKE", .fabrics = true},
	.submit = submit,
	.flush = flush};

static void answer(uint16_t status)
{
	struct nvme_request *req = fx.due;

	CU_ASSERT_PTR_NOT_NULL_FATAL(req);
	fx.due = NULL;
	nvme_qpair_complete(&fx.qpair,
			    &(struct nvme_cqe){.cid = req->cmd.cid, .status = htole16((uint16_t)(status << 1))});
}

static bool is_send_due(void)
{
	return fx.due != NULL && ((const struct nvmf_auth_sqe *)&fx.due->cmd)->fctype == nvme_fabrics_type_auth_send;
}

/* Copies the message that the host has sent to fx.message, and completes the command. */
static void take(uint8_t type, uint8_t id)
{
	struct dhchap_header header;

	CU_ASSERT_FATAL(is_send_due() && fx.due->data_len <= sizeof(fx.message));
	fx.len = fx.due->data_len;
	memcpy(fx.message, fx.due->iovs[0].iov_base, fx.len);
	CU_ASSERT(dhchap_decode_header(fx.message, fx.len, &header) && header.type == type && header.id == id);
	CU_ASSERT(id == DHCHAP_ID_NEGOTIATE || le16toh(header.t_id) == fx.t_id);
	fx.t_id = le16toh(header.t_id);
	answer(0);
}

/* Gives the host fx.message. */
static void give(void)
{
	CU_ASSERT_FATAL(fx.due != NULL && !is_send_due() && fx.due->data_len == sizeof(fx.message));
	memcpy(fx.due->iovs[0].iov_base, fx.message, sizeof(fx.message));
	answer(0);
}

static void make_challenge(unsigned hash, unsigned group)
{
	uint8_t value[DHCHAP_DH_MAX] = {0};
	struct dhchap_challenge c = {.hash = (uint8_t)hash,
				     .group = (uint8_t)group,
				     .seqnum = SEQNUM,
				     .challenge = our_challenge,
				     .dh_value = value,
				     .dh_len = (uint16_t)dhchap_group_bytes(group)};

	if (group != DHCHAP_GROUP_NULL) {
		CU_ASSERT_EQUAL_FATAL(dhchap_dh_generate(group, &fx.dh), 0);
		CU_ASSERT_EQUAL(dhchap_dh_public(fx.dh, value), 0);
	}
	dhchap_encode_challenge(fx.message, fx.t_id, &c);
}

static void respond(bool of_host, uint32_t seqnum, const uint8_t *challenge, uint8_t *response)
{
	CU_ASSERT_EQUAL(
		dhchap_respond(&(struct dhchap_challenge_in){.secret = keyring_key_secret(of_host ? fx.host : fx.other),
							     .hash = DHCHAP_HASH_SHA256,
							     .of_host = of_host,
							     .hostnqn = HOSTNQN,
							     .subnqn = SUBNQN,
							     .seqnum = seqnum,
							     .t_id = fx.t_id,
							     .challenge = challenge,
							     .dh_secret = fx.dh_secret,
							     .dh_secret_len = fx.dh_len},
			       response),
		0);
}

/* Looks at the Reply, and makes the response to the challenge in it. */
static void check_reply(unsigned group, bool both_ways, uint8_t response[DHCHAP_HASH_MAX])
{
	uint8_t expected[DHCHAP_HASH_MAX];
	struct dhchap_reply reply;

	CU_ASSERT_EQUAL_FATAL(dhchap_decode_reply(fx.message, fx.len, DHCHAP_HASH_SHA256, group, 0, &reply), DHCHAP_OK);
	if (fx.dh != NULL) {
		CU_ASSERT_EQUAL(dhchap_dh_secret(fx.dh, reply.dh_value, reply.dh_len, fx.dh_secret), 0);
		fx.dh_len = dhchap_group_bytes(group);
	}
	respond(true, SEQNUM, our_challenge, expected);
	CU_ASSERT(dhchap_equal(expected, reply.response, 32));
	CU_ASSERT_EQUAL(reply.challenge_valid, both_ways);
	CU_ASSERT_NOT_EQUAL(reply.seqnum, 0); /* also if only the host authenticates: 0 requests a secure channel */
	if (both_ways) {
		respond(false, reply.seqnum, reply.challenge, response);
	}
}

/* ---- The host ---- */

static void ended(void *arg, int error, const char *why)
{
	fx.ends++;
	fx.error = error;
	snprintf(fx.why, sizeof(fx.why), "%s", why);
}

static void begin(bool both_ways)
{
	fx.due = NULL;
	fx.commands = fx.ends = 0;
	fx.dh_len = 0;
	CU_ASSERT_EQUAL_FATAL(nvme_auth_start(&fx.qpair, fx.host, both_ways ? fx.other : NULL, ended, NULL), 0);
	CU_ASSERT_EQUAL(nvme_auth_start(&fx.qpair, fx.host, NULL, ended, NULL), -EBUSY);
}

static void offer_challenge(unsigned hash, unsigned group)
{
	take(DHCHAP_TYPE_COMMON, DHCHAP_ID_NEGOTIATE);
	make_challenge(hash, group);
}

static bool goes_on(void *arg)
{
	return fx.due != NULL || fx.ends != 0;
}

/* The authentication has ended once, with this error, and has freed all that it had. */
static void end(int error, const char *why)
{
	CU_ASSERT(thread_control_wait(goes_on, NULL, WAIT_US));
	CU_ASSERT(fx.ends == 1 && fx.due == NULL);
	CU_ASSERT_EQUAL(fx.error, error);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.why, why));
	CU_ASSERT(fx.qpair.auth == NULL && nvme_qpair_outstanding(&fx.qpair) == 0);
	CU_ASSERT(keyring_key_refs(fx.host) == 2 && keyring_key_refs(fx.other) == 2);
	dhchap_dh_free(fx.dh);
	fx.dh = NULL;
}

/* The host has found an error: it tells the controller the reason, and ends. */
static void expect_failure2(uint8_t why, const char *text)
{
	struct dhchap_failure failure;

	CU_ASSERT_FATAL(thread_control_wait(goes_on, NULL, WAIT_US));
	take(DHCHAP_TYPE_COMMON, DHCHAP_ID_FAILURE2);
	CU_ASSERT_EQUAL(dhchap_decode_failure(fx.message, fx.len, &failure), DHCHAP_OK);
	CU_ASSERT_EQUAL(failure.why, why);
	end(-EACCES, text);
}

/* Leads the transaction up to the Reply, and computes the response to its challenge. */
static void reply(unsigned group, bool both_ways, uint8_t response[DHCHAP_HASH_MAX])
{
	begin(both_ways);
	offer_challenge(DHCHAP_HASH_SHA256, group);
	give();
	CU_ASSERT_FATAL(thread_control_wait(goes_on, NULL, WAIT_US));
	take(DHCHAP_TYPE_DHCHAP, DHCHAP_ID_REPLY);
	check_reply(group, both_ways, response);
}

/* ---- Tests ---- */

static void test_one_way_and_both(void)
{
	for (unsigned group = DHCHAP_GROUP_NULL; group <= DHCHAP_GROUP_2048; group++) {
		uint8_t response[DHCHAP_HASH_MAX];

		reply(group, false, response);
		dhchap_encode_success1(fx.message, fx.t_id, DHCHAP_HASH_SHA256, NULL);
		give();
		end(0, "");
		reply(group, true, response);
		dhchap_encode_success1(fx.message, fx.t_id, DHCHAP_HASH_SHA256, response);
		give();
		take(DHCHAP_TYPE_DHCHAP, DHCHAP_ID_SUCCESS2);
		end(0, "");
	}
}

static void test_what_is_offered_is_what_the_options_have(void)
{
	struct dhchap_negotiate offer;

	begin(false);
	take(DHCHAP_TYPE_COMMON, DHCHAP_ID_NEGOTIATE);
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(fx.message, fx.len, &offer), DHCHAP_OK);
	CU_ASSERT(offer.hashes == fx.ctrlr.opts.dhchap_hashes && offer.groups == fx.ctrlr.opts.dhchap_groups);
	dhchap_encode_failure(fx.message, fx.t_id, DHCHAP_ID_FAILURE1, DHCHAP_HASH_UNUSABLE);
	give();
	end(-EACCES, "hash function not usable");
}

static void test_a_controller_that_does_not_know_its_key_is_refused(void)
{
	for (unsigned what = 0; what < 2; what++) {
		uint8_t response[DHCHAP_HASH_MAX];

		reply(DHCHAP_GROUP_NULL, true, response);
		response[31] ^= 1;
		dhchap_encode_success1(fx.message, fx.t_id, DHCHAP_HASH_SHA256, what == 0 ? response : NULL);
		give();
		expect_failure2(DHCHAP_FAILED, "dhchap_ctrlr_key");
	}
}

static void test_a_challenge_that_was_not_asked_for_is_refused(void)
{
	static const struct {
		unsigned hash, group;
		uint8_t why;
	} bad[] = {
		{DHCHAP_HASH_SHA512, DHCHAP_GROUP_NULL, DHCHAP_HASH_UNUSABLE},  /* it exists, but was not offered */
		{DHCHAP_HASH_SHA256, DHCHAP_GROUP_3072, DHCHAP_GROUP_UNUSABLE}, /* likewise */
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		begin(false);
		offer_challenge(bad[i].hash, bad[i].group);
		give();
		expect_failure2(bad[i].why, "not usable");
	}
}

static void spoil_challenge(unsigned what)
{
	struct dhchap_challenge_wire *m = (void *)fx.message;

	switch (what) {
	case 0:
		m->hash = 0;
		break;
	case 1:
		m->hash = 0xff;
		break;
	case 2:
		m->group = 0xff;
		break;
	case 3:
		m->hash_len = 0xff;
		break;
	case 4:
		m->dh_len = 0xffff;
		break;
	case 5:
		m->dh_len = 0;
		break;
	case 6:
		memset(m->values + 32, 0, 256);
		break;
	case 7:
		memset(m->values + 32, 0xff, 256);
		break;
	case 8:
		m->header.id = DHCHAP_ID_SUCCESS1;
		break;
	case 9:
		m->header.type = DHCHAP_TYPE_COMMON;
		break;
	case 10:
		m->header.t_id ^= htole16(1);
		break;
	default:
		memset(fx.message, 0xff, sizeof(fx.message));
		break;
	}
}

static void test_a_challenge_of_a_wrong_form_is_refused(void)
{
	static const uint8_t whys[] = {
		DHCHAP_HASH_UNUSABLE,     DHCHAP_HASH_UNUSABLE,     DHCHAP_GROUP_UNUSABLE,    DHCHAP_INCORRECT_PAYLOAD,
		DHCHAP_INCORRECT_PAYLOAD, DHCHAP_INCORRECT_PAYLOAD, DHCHAP_INCORRECT_PAYLOAD, DHCHAP_INCORRECT_PAYLOAD,
		DHCHAP_INCORRECT_MESSAGE, DHCHAP_INCORRECT_MESSAGE, DHCHAP_INCORRECT_MESSAGE, DHCHAP_INCORRECT_MESSAGE,
	};

	for (unsigned what = 0; what < ARRAY_SIZE(whys); what++) {
		begin(true);
		offer_challenge(DHCHAP_HASH_SHA256, DHCHAP_GROUP_2048);
		spoil_challenge(what);
		give();
		expect_failure2(whys[what], "");
	}
}

static void test_a_success_of_a_wrong_form_is_refused(void)
{
	static const uint8_t whys[] = {DHCHAP_INCORRECT_PAYLOAD, DHCHAP_INCORRECT_PAYLOAD, DHCHAP_INCORRECT_MESSAGE,
				       DHCHAP_INCORRECT_MESSAGE};

	for (unsigned what = 0; what < ARRAY_SIZE(whys); what++) {
		uint8_t response[DHCHAP_HASH_MAX];
		struct dhchap_success1_wire *m = (void *)fx.message;

		reply(DHCHAP_GROUP_NULL, true, response);
		dhchap_encode_success1(fx.message, fx.t_id, DHCHAP_HASH_SHA256, response);
		m->hash_len = what == 0 ? 64 : m->hash_len;
		m->response_valid = what == 1 ? 2 : m->response_valid;
		m->header.id = what == 2 ? DHCHAP_ID_CHALLENGE : m->header.id;
		m->header.t_id ^= htole16(what == 3);
		give();
		expect_failure2(whys[what], "");
	}
}

/* Leads a transaction to its command number `to`; the last is 4, both ways. */
static void walk(unsigned to)
{
	uint8_t response[DHCHAP_HASH_MAX];

	begin(true);
	if (to > 0) {
		offer_challenge(DHCHAP_HASH_SHA256, DHCHAP_GROUP_NULL);
	}
	if (to > 1) {
		give();
	}
	if (to > 2) {
		take(DHCHAP_TYPE_DHCHAP, DHCHAP_ID_REPLY);
		check_reply(DHCHAP_GROUP_NULL, true, response);
	}
	if (to > 3) {
		dhchap_encode_success1(fx.message, fx.t_id, DHCHAP_HASH_SHA256, response);
		give();
	}
	CU_ASSERT_EQUAL(fx.commands, to + 1);
}

static void test_a_command_that_fails_ends_it_and_is_named(void)
{
	static const char *const names[] = {"AUTH_Negotiate", "DH-HMAC-CHAP_Challenge", "DH-HMAC-CHAP_Reply",
					    "DH-HMAC-CHAP_Success1", "DH-HMAC-CHAP_Success2"};

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		walk(i);
		answer(NVME_ST_DNR(GENERIC, INVALID_FIELD));
		end(-EIO, names[i]);
	}
}

static void test_one_that_is_cancelled_tells_nobody_and_leaves_nothing(void)
{
	for (unsigned i = 0; i <= 4; i++) {
		walk(i);
		nvme_auth_cancel(&fx.qpair);
		CU_ASSERT_PTR_NULL(fx.qpair.auth);
		answer(NVME_ST(GENERIC, ABORT_QUEUE)); /* as the end of the queue pair does */
		CU_ASSERT(fx.ends == 0 && fx.due == NULL);
		CU_ASSERT(keyring_key_refs(fx.host) == 2 && keyring_key_refs(fx.other) == 2);
	}
}

static bool key_is_given_back(void *arg)
{
	return keyring_key_refs(fx.host) == 2;
}

static void test_one_that_is_cancelled_while_we_compute_ends_after_it(void)
{
	begin(false);
	offer_challenge(DHCHAP_HASH_SHA256, DHCHAP_GROUP_2048);
	give();
	CU_ASSERT_PTR_NULL(fx.due);
	nvme_auth_cancel(&fx.qpair);
	CU_ASSERT(thread_control_wait(key_is_given_back, NULL, WAIT_US));
	CU_ASSERT(fx.ends == 0 && fx.due == NULL);
	dhchap_dh_free(fx.dh);
	fx.dh = NULL;
}

/* ---- */

static struct keyring_key *add_key(const char *name, const char *text)
{
	char path[] = "/tmp/varve-nvme-auth-XXXXXX", error[KEYRING_ERROR_MAX];
	int fd = mkstemp(path);
	bool ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text) && keyring_file_add(name, path, error) == 0;

	close(fd);
	unlink(path);
	return ok ? keyring_get(name) : NULL;
}

static int setup(void)
{
	const struct env_opts env = {.name = "unit",
				     .cores = "[0]",
				     .oversubscribe = true,
				     .instance_id = -1,
				     .no_huge = true,
				     .no_pci = true};
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE};
	char error[ENV_ERROR_MAX];

	log_set_print_level(LOG_LEVEL_DISABLED);
	fx.host = add_key("host", KEY_HOST);
	fx.other = add_key("ctrlr", KEY_CTRLR);
	fx.ctrlr.ops = &fake;
	strcpy(fx.ctrlr.opts.hostnqn, HOSTNQN);
	strcpy(fx.ctrlr.trid.subnqn, SUBNQN);
	fx.ctrlr.opts.dhchap_hashes = 1u << DHCHAP_HASH_SHA256;
	fx.ctrlr.opts.dhchap_groups = 1u << DHCHAP_GROUP_NULL | 1u << DHCHAP_GROUP_2048;
	if (fx.host == NULL || fx.other == NULL || env_init(&env, error) != 0 || thread_lib_start(&opts) != 0) {
		return -1;
	}
	return nvme_qpair_init(&fx.qpair, &fx.ctrlr, 0, ENTRIES);
}

static int teardown(void)
{
	nvme_qpair_fini(&fx.qpair);
	keyring_put(fx.host);
	keyring_put(fx.other);
	keyring_file_remove("host");
	keyring_file_remove("ctrlr");
	thread_lib_stop();
	env_fini();
	return keyring_next(NULL) != NULL;
}

static const struct unit_test tests[] = {
	UNIT(test_one_way_and_both),
	UNIT(test_what_is_offered_is_what_the_options_have),
	UNIT(test_a_controller_that_does_not_know_its_key_is_refused),
	UNIT(test_a_challenge_that_was_not_asked_for_is_refused),
	UNIT(test_a_challenge_of_a_wrong_form_is_refused),
	UNIT(test_a_success_of_a_wrong_form_is_refused),
	UNIT(test_a_command_that_fails_ends_it_and_is_named),
	UNIT(test_one_that_is_cancelled_tells_nobody_and_leaves_nothing),
	UNIT(test_one_that_is_cancelled_while_we_compute_ends_after_it),
	UNIT_END,
};
UNIT_MAIN("nvme_auth", tests, setup, teardown)
