/* SPDX-License-Identifier: BSD-3-Clause */
/* In-band authentication: a whole target, and a host here that does as it should, or does not. */
#include <semaphore.h>
#include "unittest/nvmf/loop.h"

#define KEY_HOST "DHHC-1:01:Ri/aOmYf2dlR6skXAxhXB9TG90MtSxXxfeVxBOhYCRGHzziV:"
#define KEY_CTRLR                                                                                                      \
	"DHHC-1:03:wX+rrb7CNu6eP33j6zVkFZfhVr1LMDDO3PPqlJV+Ih8TQfE/7w/HYypHdgclJuLUxePSGAg9SaZyHBp0/"                  \
	"IP2Hz21o80=:"
#define KEY_OTHER "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"

#define AUTH_REQUIRED NVME_ST_DNR(CMD_SPECIFIC, AUTH_REQUIRED)
#define OUT_OF_PLACE  NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR)

static struct loop_cmd cmd;
static struct nvmf_connect_data data;
static uint8_t buf[DHCHAP_MESSAGE_MAX] __attribute__((aligned(8)));
static unsigned told;      /* failed authentications */
static unsigned connected; /* hosts that were said to be connected */

static void on_notice(const char *type, const char *text, const char *why)
{
	told += strcmp(type, "nvmf_auth_failed") == 0;
	connected += strcmp(type, "nvmf_host_connect") == 0;
}

static int setup(void)
{
	if (loop_add_key("host", KEY_HOST) != 0 || loop_add_key("ctrlr", KEY_CTRLR) != 0 ||
	    loop_add_key("other", KEY_OTHER) != 0) {
		return 1;
	}
	char why[NVMF_ERROR_MAX];
	int rc = loop_start();
	nvmf_set_notice_fn(on_notice);
	return rc != 0 ? rc : nvmf_subsystem_add_host(loop_subsystem(), LOOP_HOSTNQN, NULL, NULL, why);
}

static int teardown(void)
{
	int rc = loop_stop();

	keyring_file_remove("host");
	keyring_file_remove("ctrlr");
	keyring_file_remove("other");
	return rc | (keyring_next(NULL) != NULL);
}

static void set_keys(const char *key, const char *ctrlr_key)
{
	char why[NVMF_ERROR_MAX];

	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys(loop_subsystem(), LOOP_HOSTNQN, key, ctrlr_key, why), 0);
}

/* ---- The host ---- */

struct host {
	struct loop_conn *conn;
	const char *key, *ctrlr_key; /* names; the latter NULL: it does not ask who we are */
	unsigned hashes, groups;
	uint16_t t_id;
	struct dhchap_challenge challenge; /* its pointers into kept */
	struct dhchap_dh *dh;
	uint8_t kept[DHCHAP_MESSAGE_MAX], secret[DHCHAP_DH_MAX], value[DHCHAP_DH_MAX];
};

static void make_transfer(struct host *h, uint8_t fctype, void *message, uint32_t len)
{
	loop_cmd_init(&cmd, h->conn, nvme_admin_fabrics, 0);
	struct nvmf_auth_sqe *sqe = (struct nvmf_auth_sqe *)&cmd.sqe;
	loop_cmd_data(&cmd, message, len);
	sqe->fctype = fctype;
	sqe->secp = NVMF_AUTH_SECP;
	sqe->spsp0 = sqe->spsp1 = NVMF_AUTH_SPSP;
	sqe->length = htole32(len);
}

static uint16_t transfer(struct host *h, uint8_t fctype, void *message, uint32_t len)
{
	make_transfer(h, fctype, message, len);
	return loop_run(&cmd);
}

static uint16_t send_message(struct host *h, size_t len)
{
	return transfer(h, nvme_fabrics_type_auth_send, buf, (uint32_t)len);
}

/* Of what arrived: bytes that were in the target's data buffer before. Four in a row: a random number may have one. */
static unsigned stale_bytes(void)
{
	unsigned n = 0, row = 0;

	for (size_t i = 0; i < sizeof(buf); i++) {
		row = buf[i] == LOOP_STALE ? row + 1 : 0;
		n += row >= 4;
	}
	return n;
}

/* All that arrives was written for this host, whatever the length that it describes, and whatever the status. */
static uint16_t receive_message(struct host *h, size_t len)
{
	memset(buf, 0x55, sizeof(buf));
	uint16_t status = transfer(h, nvme_fabrics_type_auth_receive, buf, (uint32_t)len);
	CU_ASSERT_EQUAL(stale_bytes(), 0);
	return status;
}

/* Connects an admin queue; whether the target wants to be convinced. */
static bool connect_admin(struct host *h)
{
	h->conn = loop_open(&loop_address, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h->conn);
	loop_connect_init(&cmd, h->conn, &data, 0, NVMF_CNTLID_DYNAMIC);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	h->conn->cntlid = (uint16_t)le32toh(cmd.cqe.dw0);
	return le32toh(cmd.cqe.dw0) >> 16 == NVMF_AUTHREQ_ATR;
}

static struct host new_host(const char *key, const char *ctrlr_key)
{
	return (struct host){.key = key,
			     .ctrlr_key = ctrlr_key,
			     .hashes = DHCHAP_ALL_HASHES,
			     .groups = 1u << DHCHAP_GROUP_NULL,
			     .t_id = 7};
}

static void host_close(struct host *h)
{
	dhchap_dh_free(h->dh);
	loop_close(h->conn);
}

/* What the target says in place of what is expected: 0 if it says what is expected. */
static uint8_t failure_in_buf(struct host *h, uint8_t expected)
{
	struct dhchap_header header;
	struct dhchap_failure failure;

	CU_ASSERT(dhchap_decode_header(buf, sizeof(buf), &header));
	CU_ASSERT_EQUAL(le16toh(header.t_id), h->t_id);
	if (header.type == DHCHAP_TYPE_DHCHAP && header.id == expected) {
		return DHCHAP_OK;
	}
	CU_ASSERT(header.type == DHCHAP_TYPE_COMMON && header.id == DHCHAP_ID_FAILURE1);
	CU_ASSERT_EQUAL(dhchap_decode_failure(buf, sizeof(buf), &failure), DHCHAP_OK);
	CU_ASSERT_EQUAL(failure.reason, DHCHAP_REASON_FAILURE);
	return failure.why;
}

static uint8_t negotiate(struct host *h)
{
	CU_ASSERT_EQUAL(send_message(h, dhchap_encode_negotiate(buf, h->t_id, 0, h->hashes, h->groups)), 0);
	CU_ASSERT_EQUAL(receive_message(h, sizeof(buf)), 0);
	uint8_t why = failure_in_buf(h, DHCHAP_ID_CHALLENGE);
	if (why == DHCHAP_OK) {
		memcpy(h->kept, buf, sizeof(h->kept));
		CU_ASSERT_EQUAL(dhchap_decode_challenge(h->kept, sizeof(h->kept), &h->challenge), DHCHAP_OK);
	}
	return why;
}

static void respond(const struct host *h, bool of_host, uint32_t seqnum, const uint8_t *challenge, uint8_t *response)
{
	struct keyring_key *key = keyring_get(of_host ? h->key : h->ctrlr_key);

	CU_ASSERT_EQUAL(dhchap_respond(&(struct dhchap_challenge_in){.secret = keyring_key_secret(key),
								     .hash = h->challenge.hash,
								     .of_host = of_host,
								     .hostnqn = LOOP_HOSTNQN,
								     .subnqn = LOOP_SUBNQN,
								     .seqnum = seqnum,
								     .t_id = h->t_id,
								     .challenge = challenge,
								     .dh_secret = h->secret,
								     .dh_secret_len = h->challenge.dh_len},
				       response),
			0);
	keyring_put(key);
}

static void exchange(struct host *h)
{
	if (h->challenge.dh_len != 0) {
		dhchap_dh_free(h->dh);
		CU_ASSERT_EQUAL_FATAL(dhchap_dh_generate(h->challenge.group, &h->dh), 0);
		CU_ASSERT_EQUAL(dhchap_dh_public(h->dh, h->value), 0);
		CU_ASSERT_EQUAL(dhchap_dh_secret(h->dh, h->challenge.dh_value, h->challenge.dh_len, h->secret), 0);
	}
}

#define SEQNUM UINT32_C(0x80000001)
static const uint8_t our_challenge[DHCHAP_HASH_MAX] = {1, 2, 3};

/* The Reply, right in everything, in buf. */
static size_t make_reply(struct host *h)
{
	uint8_t response[DHCHAP_HASH_MAX];
	struct dhchap_reply reply = {.challenge_valid = h->ctrlr_key != NULL,
				     .seqnum = h->ctrlr_key != NULL ? SEQNUM : 0,
				     .response = response,
				     .challenge = our_challenge,
				     .dh_value = h->value,
				     .dh_len = h->challenge.dh_len};

	exchange(h);
	respond(h, true, h->challenge.seqnum, h->challenge.challenge, response);
	return dhchap_encode_reply(buf, h->t_id, h->challenge.hash, &reply);
}

static uint8_t finish(struct host *h)
{
	struct dhchap_success1 success;
	uint8_t expected[DHCHAP_HASH_MAX];

	CU_ASSERT_EQUAL(receive_message(h, sizeof(buf)), 0);
	uint8_t why = failure_in_buf(h, DHCHAP_ID_SUCCESS1);
	if (why != DHCHAP_OK) {
		return why;
	}
	CU_ASSERT_EQUAL(dhchap_decode_success1(buf, sizeof(buf), h->challenge.hash, &success), DHCHAP_OK);
	CU_ASSERT_EQUAL(success.response_valid, h->ctrlr_key != NULL);
	if (h->ctrlr_key != NULL) {
		respond(h, false, SEQNUM, our_challenge, expected);
		if (!dhchap_equal(expected, success.response, dhchap_hash_bytes(h->challenge.hash))) {
			CU_ASSERT_EQUAL(
				send_message(h, dhchap_encode_failure(buf, h->t_id, DHCHAP_ID_FAILURE2, DHCHAP_FAILED)),
				0);
			return DHCHAP_FAILED;
		}
		CU_ASSERT_EQUAL(send_message(h, dhchap_encode_success2(buf, h->t_id)), 0);
	}
	return DHCHAP_OK;
}

static uint8_t authenticate(struct host *h)
{
	uint8_t why = negotiate(h);

	if (why != DHCHAP_OK) {
		return why;
	}
	CU_ASSERT_EQUAL(send_message(h, make_reply(h)), 0);
	return finish(h);
}

static uint16_t get_cap(struct host *h)
{
	uint64_t cap;

	return loop_property_get(h->conn, NVME_REG_CAP, 8, &cap);
}

static void expect_end(struct host *h)
{
	CU_ASSERT(loop_wait_closed(h->conn));
	host_close(h);
}

/* ---- Tests ---- */

static void test_a_host_without_a_key_need_not_authenticate(void)
{
	struct host h = new_host("host", NULL);

	set_keys(NULL, NULL);
	CU_ASSERT(!connect_admin(&h));
	CU_ASSERT_EQUAL(get_cap(&h), 0);
	CU_ASSERT_EQUAL(send_message(&h, dhchap_encode_negotiate(buf, 1, 0, DHCHAP_ALL_HASHES, 1)), OUT_OF_PLACE);
	CU_ASSERT_EQUAL(receive_message(&h, 100), OUT_OF_PLACE);
	host_close(&h);
}

static void test_before_authentication_nothing_else_is_accepted(void)
{
	struct host h = new_host("host", NULL);
	uint8_t id[4096];

	set_keys("host", NULL);
	CU_ASSERT(connect_admin(&h));
	CU_ASSERT_EQUAL(get_cap(&h), AUTH_REQUIRED);
	CU_ASSERT_EQUAL(loop_property_set(h.conn, NVME_REG_CC, 4, LOOP_CC_ENABLE), AUTH_REQUIRED);
	CU_ASSERT_EQUAL(loop_identify(h.conn, NVME_IDENTIFY_CNS_CTRL, 0, 0, id), AUTH_REQUIRED);
	loop_cmd_init(&cmd, h.conn, nvme_admin_keep_alive, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), AUTH_REQUIRED);
	loop_cmd_init(&cmd, h.conn, nvme_admin_async_event, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), AUTH_REQUIRED);
	loop_connect_init(&cmd, h.conn, &data, 0, NVMF_CNTLID_DYNAMIC);
	CU_ASSERT_EQUAL(loop_run(&cmd), OUT_OF_PLACE);
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_OK);
	CU_ASSERT_EQUAL(get_cap(&h), 0);
	host_close(&h);
}

static void test_every_hash_and_group_one_way_and_both(void)
{
	for (unsigned hash = DHCHAP_HASH_SHA256; hash < DHCHAP_HASHES; hash++) {
		for (unsigned group = 0; group < DHCHAP_GROUPS; group++) {
			struct host h = new_host("host", (hash + group) % 2 != 0 ? "ctrlr" : NULL);
			struct nvmf_ctrlr_info info;

			set_keys("host", "ctrlr");
			h.hashes = 1u << hash;
			h.groups = 1u << group;
			CU_ASSERT(connect_admin(&h));
			CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_OK);
			CU_ASSERT_EQUAL(get_cap(&h), 0);
			nvmf_ctrlr_get_info(nvmf_ctrlr_next(loop_subsystem(), NULL), &info);
			CU_ASSERT(info.auth.present);
			CU_ASSERT_STRING_EQUAL(info.auth.state, "completed");
			CU_ASSERT_STRING_EQUAL(info.auth.digest, dhchap_hash_name(hash));
			CU_ASSERT_STRING_EQUAL(info.auth.dhgroup, dhchap_group_name(group));
			host_close(&h);
		}
	}
}

static void test_the_strongest_that_both_have_is_taken(void)
{
	struct host h = new_host("host", NULL);

	set_keys("host", NULL);
	loop_tgt()->dhchap_groups = 1u << DHCHAP_GROUP_NULL | 1u << DHCHAP_GROUP_2048 | 1u << DHCHAP_GROUP_8192;
	h.hashes = 1u << DHCHAP_HASH_SHA256 | 1u << DHCHAP_HASH_SHA384;
	h.groups = 1u << DHCHAP_GROUP_NULL | 1u << DHCHAP_GROUP_2048 | 1u << DHCHAP_GROUP_3072;
	connect_admin(&h);
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_OK);
	CU_ASSERT(h.challenge.hash == DHCHAP_HASH_SHA384 && h.challenge.group == DHCHAP_GROUP_2048);
	loop_tgt()->dhchap_groups = DHCHAP_ALL_GROUPS;
	host_close(&h);
}

static void test_what_the_target_does_not_allow_is_unusable(void)
{
	struct host h = new_host("host", NULL);

	set_keys("host", NULL);
	loop_tgt()->dhchap_hashes = 1u << DHCHAP_HASH_SHA512;
	h.hashes = 1u << DHCHAP_HASH_SHA256;
	connect_admin(&h);
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_HASH_UNUSABLE);
	loop_tgt()->dhchap_hashes = DHCHAP_ALL_HASHES;
	expect_end(&h);
	loop_tgt()->dhchap_groups = 1u << DHCHAP_GROUP_4096;
	h = new_host("host", NULL);
	connect_admin(&h);
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_GROUP_UNUSABLE);
	loop_tgt()->dhchap_groups = DHCHAP_ALL_GROUPS;
	expect_end(&h);
}

static void test_a_wrong_key_is_told_and_ends_the_connection(void)
{
	for (unsigned group = 0; group < 2; group++) {
		struct host h = new_host("other", NULL);
		unsigned before = told, before_connected = connected;

		set_keys("host", NULL);
		h.groups = 1u << group;
		connect_admin(&h);
		CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_FAILED);
		CU_ASSERT(told > before || told != 0); /* they are limited in number */
		CU_ASSERT_EQUAL(get_cap(&h), AUTH_REQUIRED);
		CU_ASSERT_EQUAL(send_message(&h, dhchap_encode_negotiate(buf, 1, 0, DHCHAP_ALL_HASHES, 1)),
				OUT_OF_PLACE);
		expect_end(&h);
		CU_ASSERT_PTR_NULL(nvmf_ctrlr_next(loop_subsystem(), NULL));
		CU_ASSERT_EQUAL(connected, before_connected);
	}
}

static void test_a_host_is_said_to_be_connected_once_it_has_proved_who_it_is(void)
{
	struct host h = new_host("host", NULL);
	unsigned before = connected;

	set_keys("host", NULL);
	CU_ASSERT_TRUE(connect_admin(&h));
	CU_ASSERT_EQUAL(connected, before);
	CU_ASSERT_EQUAL(authenticate(&h), 0);
	CU_ASSERT_EQUAL(connected, before + 1);
	CU_ASSERT_EQUAL(authenticate(&h), 0); /* again: it is connected already */
	CU_ASSERT_EQUAL(connected, before + 1);
	host_close(&h);
}

static void test_a_controller_without_a_key_cannot_prove_anything(void)
{
	struct host h = new_host("host", "ctrlr");

	set_keys("host", NULL);
	connect_admin(&h);
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_FAILED);
	expect_end(&h);
}

static void test_a_host_that_does_not_believe_the_controller_ends_it(void)
{
	struct host h = new_host("host", "other");

	set_keys("host", "ctrlr");
	connect_admin(&h);
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_FAILED);
	CU_ASSERT_EQUAL(get_cap(&h), AUTH_REQUIRED);
	expect_end(&h);
}

/* This transport has no TLS, as RDMA has none. */
static void test_a_secure_channel_needs_a_transport_with_tls(void)
{
	for (uint8_t sc_c = DHCHAP_SC_NEW_TLS_PSK; sc_c <= DHCHAP_SC_REPLACE_TLS_PSK; sc_c++) {
		struct host h = new_host("host", NULL);

		set_keys("host", NULL);
		connect_admin(&h);
		CU_ASSERT_EQUAL(
			send_message(&h, dhchap_encode_negotiate(buf, h.t_id, sc_c, h.hashes, DHCHAP_ALL_GROUPS)), 0);
		CU_ASSERT_EQUAL(receive_message(&h, sizeof(buf)), 0);
		CU_ASSERT_EQUAL(failure_in_buf(&h, DHCHAP_ID_CHALLENGE), DHCHAP_SCC_MISMATCH);
		expect_end(&h);
	}
}

static void test_a_host_may_refuse_the_challenge(void)
{
	struct host h = new_host("host", NULL);

	set_keys("host", NULL);
	connect_admin(&h);
	CU_ASSERT_EQUAL(negotiate(&h), DHCHAP_OK);
	CU_ASSERT_EQUAL(send_message(&h, dhchap_encode_failure(buf, h.t_id, DHCHAP_ID_FAILURE2, DHCHAP_GROUP_UNUSABLE)),
			0);
	expect_end(&h);
}

/* Messages out of order: 0 to 3 are sent instead of the first or the second that is due. */
static size_t make_message(struct host *h, unsigned what)
{
	static const uint8_t zeroes[DHCHAP_HASH_MAX];

	switch (what) {
	case 0:
		return dhchap_encode_reply(buf, h->t_id, DHCHAP_HASH_SHA512,
					   &(struct dhchap_reply){.response = zeroes});
	case 1:
		return dhchap_encode_success2(buf, h->t_id);
	case 2:
		return dhchap_encode_negotiate(buf, h->t_id, 0, DHCHAP_ALL_HASHES, 1);
	case 3:
		return dhchap_encode_failure(buf, h->t_id, DHCHAP_ID_FAILURE1, 1);
	case 4:
		return dhchap_encode_success1(buf, h->t_id, DHCHAP_HASH_SHA256, NULL);
	default:
		memset(buf, 0xff, sizeof(buf));
		h->t_id = 0xffff;
		return sizeof(buf);
	}
}

static void test_messages_out_of_order_fail(void)
{
	for (unsigned step = 0; step < 2; step++) {
		for (unsigned what = 0; what <= 5; what++) {
			struct host h = new_host("host", NULL);

			if ((step == 0 && what == 2) || (step == 1 && what == 0)) {
				continue; /* these are in order */
			}
			set_keys("host", NULL);
			connect_admin(&h);
			if (step == 1) {
				CU_ASSERT_EQUAL(negotiate(&h), DHCHAP_OK);
			}
			CU_ASSERT_EQUAL(send_message(&h, make_message(&h, what)), 0);
			CU_ASSERT_EQUAL(receive_message(&h, 8), 0);
			CU_ASSERT_EQUAL(((struct dhchap_failure_wire *)buf)->why, DHCHAP_INCORRECT_MESSAGE);
			expect_end(&h);
		}
	}
}

static void test_fetching_what_is_not_there_fails(void)
{
	struct host h = new_host("host", NULL);

	set_keys("host", NULL);
	connect_admin(&h);
	CU_ASSERT_EQUAL(receive_message(&h, sizeof(buf)), 0);
	CU_ASSERT_EQUAL(((struct dhchap_failure_wire *)buf)->why, DHCHAP_INCORRECT_MESSAGE);
	expect_end(&h);
}

static void test_a_reply_that_was_heard_before_is_worth_nothing(void)
{
	struct host first = new_host("host", NULL), second = new_host("host", NULL);
	static uint8_t heard[DHCHAP_MESSAGE_MAX];

	set_keys("host", NULL);
	connect_admin(&first);
	CU_ASSERT_EQUAL(negotiate(&first), DHCHAP_OK);
	size_t len = make_reply(&first);
	memcpy(heard, buf, len);
	CU_ASSERT_EQUAL(send_message(&first, len), 0);
	CU_ASSERT_EQUAL(finish(&first), DHCHAP_OK);
	connect_admin(&second);
	CU_ASSERT_EQUAL(negotiate(&second), DHCHAP_OK);
	memcpy(buf, heard, len);
	CU_ASSERT_EQUAL(send_message(&second, len), 0);
	CU_ASSERT_EQUAL(finish(&second), DHCHAP_FAILED);
	CU_ASSERT_EQUAL(get_cap(&first), 0);
	expect_end(&second);
	host_close(&first);
}

static void test_replies_of_a_wrong_form_fail(void)
{
	for (unsigned what = 0; what < 5; what++) {
		struct host h = new_host("host", NULL);

		set_keys("host", "ctrlr");
		h.groups = 1u << DHCHAP_GROUP_2048;
		connect_admin(&h);
		CU_ASSERT_EQUAL(negotiate(&h), DHCHAP_OK);
		size_t len = make_reply(&h);
		struct dhchap_reply_wire *m = (void *)buf;
		if (what == 0) {
			len = sizeof(buf); /* oversized */
		} else if (what == 1) {
			len = 7;
		} else if (what == 2) {
			m->challenge_valid = 1; /* with sequence number 0 */
		} else if (what == 3) {
			memset(m->values + 2 * m->hash_len, 0, 256); /* a DH value of 0 */
		} else {
			m->hash_len = 32;
		}
		CU_ASSERT_EQUAL(send_message(&h, len), 0);
		CU_ASSERT_EQUAL(receive_message(&h, 8), 0);
		CU_ASSERT_EQUAL(((struct dhchap_failure_wire *)buf)->why, DHCHAP_INCORRECT_PAYLOAD);
		expect_end(&h);
	}
}

static void test_another_transactions_id_fails(void)
{
	struct host h = new_host("host", NULL);

	set_keys("host", NULL);
	connect_admin(&h);
	CU_ASSERT_EQUAL(negotiate(&h), DHCHAP_OK);
	size_t len = make_reply(&h);
	((struct dhchap_header *)buf)->t_id = htole16(8);
	CU_ASSERT_EQUAL(send_message(&h, len), 0);
	CU_ASSERT_EQUAL(finish(&h), DHCHAP_INCORRECT_MESSAGE);
	expect_end(&h);
}

static void test_a_host_without_room_may_come_again(void)
{
	struct host h = new_host("host", NULL);

	set_keys("host", NULL);
	connect_admin(&h);
	CU_ASSERT_EQUAL(
		send_message(&h, dhchap_encode_negotiate(buf, h.t_id, 0, DHCHAP_ALL_HASHES, 1u << DHCHAP_GROUP_2048)),
		0);
	CU_ASSERT_EQUAL(receive_message(&h, 16 + 64 + 255), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	CU_ASSERT_EQUAL(receive_message(&h, 16 + 64 + 256), 0);
	CU_ASSERT_EQUAL(failure_in_buf(&h, DHCHAP_ID_CHALLENGE), DHCHAP_OK);
	host_close(&h);
}

static void test_commands_of_a_wrong_form_are_refused(void)
{
	static const struct {
		uint8_t secp, spsp0, spsp1;
		uint32_t length;
	} bad[] = {{0xe8, 1, 1, 72}, {0xe9, 0, 1, 72}, {0xe9, 1, 2, 72}, {0xe9, 1, 1, 0}, {0xe9, 1, 1, 4097}};
	struct host h = new_host("host", NULL);

	set_keys("host", NULL);
	connect_admin(&h);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		loop_cmd_init(&cmd, h.conn, nvme_admin_fabrics, 0);
		struct nvmf_auth_sqe *sqe = (struct nvmf_auth_sqe *)&cmd.sqe;
		loop_cmd_data(&cmd, buf, 72);
		sqe->fctype = nvme_fabrics_type_auth_send;
		sqe->secp = bad[i].secp;
		sqe->spsp0 = bad[i].spsp0;
		sqe->spsp1 = bad[i].spsp1;
		sqe->length = htole32(bad[i].length);
		CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	}
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_OK);
	host_close(&h);
}

static void test_before_connect_there_is_no_authentication(void)
{
	struct host h = new_host("host", NULL);

	h.conn = loop_open(&loop_address, 0);
	CU_ASSERT_EQUAL(send_message(&h, dhchap_encode_negotiate(buf, 1, 0, DHCHAP_ALL_HASHES, 1)), OUT_OF_PLACE);
	CU_ASSERT_EQUAL(receive_message(&h, 100), OUT_OF_PLACE);
	host_close(&h);
}

static void test_a_transaction_that_stalls_ends(void)
{
	for (unsigned step = 0; step < 3; step++) {
		struct host h = new_host("host", NULL);

		set_keys("host", NULL);
		loop_tgt()->auth_timeout_us = 60 * UINT64_C(1000000);
		connect_admin(&h);
		loop_tgt()->auth_timeout_us = 1000; /* for what follows; the first step has had its time */
		if (step == 0) {
			host_close(&h);
			loop_tgt()->auth_timeout_us = 1000;
			connect_admin(&h);
		} else if (step == 1) {
			CU_ASSERT_EQUAL(send_message(&h, dhchap_encode_negotiate(buf, 1, 0, DHCHAP_ALL_HASHES, 1)), 0);
		} else {
			loop_tgt()->auth_timeout_us = 60 * UINT64_C(1000000);
			CU_ASSERT_EQUAL(negotiate(&h), DHCHAP_OK);
			size_t len = make_reply(&h);
			loop_tgt()->auth_timeout_us = 1000;
			CU_ASSERT_EQUAL(send_message(&h, len), 0);
		}
		expect_end(&h);
		loop_tgt()->auth_timeout_us = 0;
	}
}

static void test_commands_that_fail_do_not_keep_a_transaction_alive(void)
{
	struct host h = new_host("host", NULL);
	uint16_t status;

	set_keys("host", NULL);
	loop_tgt()->auth_timeout_us = 60 * UINT64_C(1000000);
	connect_admin(&h);
	loop_tgt()->auth_timeout_us = 100000;
	CU_ASSERT_EQUAL(send_message(&h, dhchap_encode_negotiate(buf, h.t_id, 0, DHCHAP_ALL_HASHES, 1)), 0);
	uint64_t end = env_ticks() + env_us_to_ticks(20 * UINT64_C(1000000));
	do {
		status = receive_message(&h, 8); /* too little for the challenge */
	} while (!loop_given_up(status) && env_ticks() < end);
	CU_ASSERT(loop_given_up(status));
	expect_end(&h);
	loop_tgt()->auth_timeout_us = 0;
}

/* Is asked before the first round, and after it. */
static bool after_a_round(void *asked)
{
	return (*(unsigned *)asked)++ > 0;
}

/* As after SIGSTOP and SIGCONT, with the control thread the first to run. */
static void test_a_host_does_not_stall_while_the_target_is_away(void)
{
	struct host h = new_host("host", NULL);
	unsigned asked = 0;

	set_keys("host", NULL);
	loop_tgt()->auth_timeout_us = 1000000;
	connect_admin(&h);
	uint64_t end = env_ticks() + env_us_to_ticks(2500000);
	while (env_ticks() < end) {
	}
	thread_control_wait(after_a_round, &asked, 0);
	loop_tgt()->auth_timeout_us = 60000000; /* what matters is over */
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_OK);
	loop_tgt()->auth_timeout_us = 0;
	host_close(&h);
}

static void test_a_host_that_goes_while_we_compute_leaves_nothing(void)
{
	for (unsigned i = 0; i < 4; i++) {
		struct host h = new_host("host", NULL);

		set_keys("host", NULL);
		h.groups = 1u << DHCHAP_GROUP_8192;
		connect_admin(&h);
		CU_ASSERT_EQUAL(send_message(&h, dhchap_encode_negotiate(buf, h.t_id, 0, h.hashes, h.groups)), 0);
		loop_cmd_init(&cmd, h.conn, nvme_admin_fabrics, 0);
		struct nvmf_auth_sqe *sqe = (struct nvmf_auth_sqe *)&cmd.sqe;
		loop_cmd_data(&cmd, buf, sizeof(buf));
		sqe->fctype = nvme_fabrics_type_auth_receive;
		sqe->secp = NVMF_AUTH_SECP;
		sqe->spsp0 = sqe->spsp1 = NVMF_AUTH_SPSP;
		sqe->length = htole32(sizeof(buf));
		loop_submit(&cmd);
		host_close(&h);
		loop_wait(&cmd);
	}
}

/* What the helper thread has to do before it comes to our host. */
struct others {
	struct worker_job job;
	sem_t end;
	uint64_t until; /* ticks */
};

static void be_busy(struct worker_job *job)
{
	sem_wait(&container_of(job, struct others, job)->end);
}

static void others_done(struct worker_job *job)
{
	container_of(job, struct others, job)->until = 0;
}

static bool is_time(void *arg)
{
	return env_ticks() >= ((const struct others *)arg)->until;
}

static void test_a_host_that_waits_for_us_is_not_silent(void)
{
	struct host h = new_host("host", NULL);
	struct others others = {.job = {.work = be_busy, .done = others_done}};

	set_keys("host", NULL);
	h.conn = loop_open(&loop_address, 0);
	loop_connect_init(&cmd, h.conn, &data, 0, NVMF_CNTLID_DYNAMIC);
	((struct nvmf_connect_sqe *)&cmd.sqe)->kato = htole32(300);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	sem_init(&others.end, 0, 0);
	dhchap_run(&others.job);
	CU_ASSERT_EQUAL(send_message(&h, dhchap_encode_negotiate(buf, h.t_id, 0, h.hashes, 1u << DHCHAP_GROUP_2048)),
			0);
	make_transfer(&h, nvme_fabrics_type_auth_receive, buf, sizeof(buf));
	loop_submit(&cmd);
	others.until = env_ticks() + env_us_to_ticks(1000000); /* its keep-alive timer runs out twice */
	CU_ASSERT(loop_until(is_time, &others));
	others.until = UINT64_MAX;
	sem_post(&others.end);
	CU_ASSERT_EQUAL(loop_wait(&cmd), 0);
	CU_ASSERT_EQUAL(failure_in_buf(&h, DHCHAP_ID_CHALLENGE), DHCHAP_OK);
	CU_ASSERT(loop_until(is_time, &others));
	sem_destroy(&others.end);
	host_close(&h);
}

/* ---- I/O queues, and again ---- */

static struct host attach(void)
{
	struct host h = new_host("host", NULL);

	set_keys("host", "ctrlr");
	CU_ASSERT(connect_admin(&h));
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_OK);
	CU_ASSERT_EQUAL(loop_property_set(h.conn, NVME_REG_CC, 4, LOOP_CC_ENABLE), 0);
	return h;
}

static struct host connect_io(const struct host *admin)
{
	struct host h = new_host("host", NULL);

	h.conn = loop_open(&loop_address, 1);
	loop_connect_init(&cmd, h.conn, &data, 1, admin->conn->cntlid);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_EQUAL(le32toh(cmd.cqe.dw0) >> 16, NVMF_AUTHREQ_ATR);
	return h;
}

static void test_io_queues_authenticate_too(void)
{
	uint32_t nsid = loop_add_malloc_ns("auth0", 512, 2048);
	struct host admin = attach(), io = connect_io(&admin);
	uint8_t block[512];

	CU_ASSERT_EQUAL(loop_rw(io.conn, nvme_cmd_read, nsid, 0, 0, block, 512), AUTH_REQUIRED);
	CU_ASSERT_EQUAL(authenticate(&io), DHCHAP_OK);
	CU_ASSERT_EQUAL(loop_rw(io.conn, nvme_cmd_read, nsid, 0, 0, block, 512), 0);
	host_close(&io);
	host_close(&admin);
	loop_remove_malloc_ns(nsid, "auth0");
}

static void test_an_io_queue_that_fails_goes_alone(void)
{
	struct host admin = attach(), io = connect_io(&admin);

	io.key = "other";
	CU_ASSERT_EQUAL(authenticate(&io), DHCHAP_FAILED);
	expect_end(&io);
	CU_ASSERT_EQUAL(get_cap(&admin), 0);
	host_close(&admin);
}

static void test_a_host_authenticates_again_beside_its_io(void)
{
	uint32_t nsid = loop_add_malloc_ns("auth0", 512, 2048);
	struct host admin = attach(), io = connect_io(&admin);
	uint8_t block[512];

	CU_ASSERT_EQUAL(authenticate(&io), DHCHAP_OK);
	set_keys("other", "ctrlr"); /* what holds, holds on */
	CU_ASSERT_EQUAL(loop_rw(io.conn, nvme_cmd_read, nsid, 0, 0, block, 512), 0);
	admin.key = io.key = "other";
	admin.ctrlr_key = io.ctrlr_key = "ctrlr";
	admin.groups = io.groups = 1u << DHCHAP_GROUP_2048;
	CU_ASSERT_EQUAL(negotiate(&io), DHCHAP_OK);
	CU_ASSERT_EQUAL(loop_rw(io.conn, nvme_cmd_write, nsid, 0, 0, block, 512), 0);
	CU_ASSERT_EQUAL(send_message(&io, make_reply(&io)), 0);
	CU_ASSERT_EQUAL(loop_rw(io.conn, nvme_cmd_read, nsid, 0, 0, block, 512), 0);
	CU_ASSERT_EQUAL(finish(&io), DHCHAP_OK);
	CU_ASSERT_EQUAL(authenticate(&admin), DHCHAP_OK);
	CU_ASSERT_EQUAL(authenticate(&admin), DHCHAP_OK);
	CU_ASSERT_EQUAL(get_cap(&admin), 0);
	CU_ASSERT_EQUAL(loop_rw(io.conn, nvme_cmd_read, nsid, 0, 0, block, 512), 0);
	host_close(&io);
	host_close(&admin);
	loop_remove_malloc_ns(nsid, "auth0");
}

/* The one message that a host may send beside its I/O, as a half of a pair. */
static uint16_t send_fused(struct host *h, uint8_t half)
{
	make_transfer(h, nvme_fabrics_type_auth_send, buf,
		      (uint32_t)dhchap_encode_negotiate(buf, h->t_id, 0, h->hashes, h->groups));
	cmd.sqe.flags |= half;
	return loop_run(&cmd);
}

static void make_half(struct loop_cmd *c, const struct host *h, uint8_t opcode, uint32_t nsid, uint8_t half,
		      void *block)
{
	loop_cmd_init(c, h->conn, opcode, nsid);
	loop_cmd_data(c, block, 512);
	c->sqe.flags |= half;
}

static void test_authentication_is_no_half_of_a_fused_pair(void)
{
	uint32_t nsid = loop_add_malloc_ns("auth0", 512, 2048);
	struct host admin = attach(), io = connect_io(&admin);
	uint8_t block[512] = {0};
	struct loop_cmd half;

	CU_ASSERT_EQUAL(authenticate(&io), DHCHAP_OK);
	CU_ASSERT_EQUAL(send_fused(&io, NVME_FUSE_FIRST), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	make_half(&half, &io, nvme_cmd_write, nsid, NVME_FUSE_SECOND, block);
	CU_ASSERT_EQUAL(loop_run(&half), NVME_ST_DNR(GENERIC, FUSED_MISSING));
	make_half(&half, &io, nvme_cmd_compare, nsid, NVME_FUSE_FIRST, block);
	loop_submit(&half);
	CU_ASSERT_EQUAL(send_fused(&io, NVME_FUSE_SECOND), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	CU_ASSERT_EQUAL(loop_wait(&half), NVME_ST_DNR(GENERIC, FUSED_MISSING));
	CU_ASSERT_EQUAL(authenticate(&io), DHCHAP_OK);
	CU_ASSERT_EQUAL(loop_rw(io.conn, nvme_cmd_read, nsid, 0, 0, block, 512), 0);
	host_close(&io);
	host_close(&admin);
	loop_remove_malloc_ns(nsid, "auth0");
}

static void test_failing_again_ends_the_association(void)
{
	struct host h = attach();

	h.key = "other";
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_FAILED);
	expect_end(&h);
}

static void test_keys_that_come_later_can_be_used(void)
{
	struct host h = new_host("host", NULL);

	set_keys(NULL, NULL);
	CU_ASSERT(!connect_admin(&h));
	set_keys("host", NULL);
	CU_ASSERT_EQUAL(get_cap(&h), 0);
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_OK);
	host_close(&h);
}

static __thread bool no_memory;

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
	return no_memory ? NULL : __real_calloc(count, bytes);
}

static void test_a_host_may_try_again_where_there_was_no_memory(void)
{
	struct host h = new_host("host", NULL);

	set_keys(NULL, NULL);
	CU_ASSERT(!connect_admin(&h));
	set_keys("host", NULL);
	no_memory = true;
	uint16_t status = send_message(&h, dhchap_encode_negotiate(buf, h.t_id, 0, h.hashes, h.groups));
	no_memory = false;
	CU_ASSERT_EQUAL(status, NVME_ST(GENERIC, INTERNAL));
	CU_ASSERT_EQUAL(authenticate(&h), DHCHAP_OK);
	host_close(&h);
}

static void test_keys_that_are_not_there_are_refused(void)
{
	char why[NVMF_ERROR_MAX];

	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys(loop_subsystem(), LOOP_HOSTNQN, "nothing", NULL, why), -ENOKEY);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys(loop_subsystem(), LOOP_HOSTNQN, "host", "nothing", why), -ENOKEY);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys(loop_subsystem(), LOOP_HOSTNQN, NULL, "ctrlr", why), -EINVAL);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys(loop_subsystem(), "nqn.2024-01.io.varve:nobody", "host", NULL, why),
			-ENOENT);
	set_keys("host", "ctrlr");
	CU_ASSERT_STRING_EQUAL(nvmf_subsystem_host_key(loop_subsystem(), LOOP_HOSTNQN, false), "host");
	CU_ASSERT_STRING_EQUAL(nvmf_subsystem_host_key(loop_subsystem(), LOOP_HOSTNQN, true), "ctrlr");
}

/* Also for a moment: it is not added and taken away again, which hosts that look at the discovery log could tell, and
 * want of memory prevent. */
static void test_a_host_whose_keys_are_not_there_is_not_let_in(void)
{
	static const char host[] = "nqn.2024-01.io.varve:new";
	static const struct {
		const char *nqn, *key, *ctrlr_key;
		int rc;
		const char *named;
	} refused[] = {
		{host, "nothing", NULL, -ENOKEY, "nothing"},         {host, "host", "nothing", -ENOKEY, "nothing"},
		{host, NULL, "ctrlr", -EINVAL, "dhchap_ctrlr_key"},  {"nonsense", "host", "ctrlr", -EINVAL, "nonsense"},
		{LOOP_HOSTNQN, "host", "ctrlr", -EEXIST, "already"},
	};
	uint64_t generation = loop_tgt()->generation;
	char why[NVMF_ERROR_MAX];

	set_keys(NULL, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		why[0] = 0;
		CU_ASSERT_EQUAL(nvmf_subsystem_add_host(loop_subsystem(), refused[i].nqn, refused[i].key,
							refused[i].ctrlr_key, why),
				refused[i].rc);
		CU_ASSERT_PTR_NOT_NULL(strstr(why, refused[i].named));
		CU_ASSERT_EQUAL(loop_tgt()->generation, generation);
		CU_ASSERT_PTR_NULL(nvmf_hosts_find(&loop_subsystem()->hosts, host));
	}
	CU_ASSERT_EQUAL(keyring_key_refs(keyring_next(NULL)), 1); /* the ring's: nothing is held */
	CU_ASSERT_PTR_NULL(nvmf_subsystem_host_key(loop_subsystem(), LOOP_HOSTNQN, false));
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host(loop_subsystem(), host, "host", "ctrlr", why), 0);
	CU_ASSERT(loop_tgt()->generation != generation && nvmf_auth_required(loop_subsystem(), host));
	struct loop_wait wait = LOOP_WAIT;
	nvmf_subsystem_remove_host(loop_subsystem(), host, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_a_host_without_a_key_need_not_authenticate),
	UNIT(test_before_authentication_nothing_else_is_accepted),
	UNIT(test_every_hash_and_group_one_way_and_both),
	UNIT(test_the_strongest_that_both_have_is_taken),
	UNIT(test_what_the_target_does_not_allow_is_unusable),
	UNIT(test_a_host_is_said_to_be_connected_once_it_has_proved_who_it_is),
	UNIT(test_a_wrong_key_is_told_and_ends_the_connection),
	UNIT(test_a_controller_without_a_key_cannot_prove_anything),
	UNIT(test_a_host_that_does_not_believe_the_controller_ends_it),
	UNIT(test_a_secure_channel_needs_a_transport_with_tls),
	UNIT(test_a_host_may_refuse_the_challenge),
	UNIT(test_messages_out_of_order_fail),
	UNIT(test_fetching_what_is_not_there_fails),
	UNIT(test_a_reply_that_was_heard_before_is_worth_nothing),
	UNIT(test_replies_of_a_wrong_form_fail),
	UNIT(test_another_transactions_id_fails),
	UNIT(test_a_host_without_room_may_come_again),
	UNIT(test_commands_of_a_wrong_form_are_refused),
	UNIT(test_before_connect_there_is_no_authentication),
	UNIT(test_a_transaction_that_stalls_ends),
	UNIT(test_commands_that_fail_do_not_keep_a_transaction_alive),
	UNIT(test_a_host_does_not_stall_while_the_target_is_away),
	UNIT(test_a_host_that_goes_while_we_compute_leaves_nothing),
	UNIT(test_a_host_that_waits_for_us_is_not_silent),
	UNIT(test_io_queues_authenticate_too),
	UNIT(test_an_io_queue_that_fails_goes_alone),
	UNIT(test_a_host_authenticates_again_beside_its_io),
	UNIT(test_authentication_is_no_half_of_a_fused_pair),
	UNIT(test_failing_again_ends_the_association),
	UNIT(test_keys_that_come_later_can_be_used),
	UNIT(test_a_host_may_try_again_where_there_was_no_memory),
	UNIT(test_keys_that_are_not_there_are_refused),
	UNIT(test_a_host_whose_keys_are_not_there_is_not_let_in),
	UNIT_END,
};
UNIT_MAIN("nvmf_auth", tests, setup, teardown)
