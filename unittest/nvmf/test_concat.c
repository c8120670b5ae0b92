/* SPDX-License-Identifier: BSD-3-Clause */
/* Secure channel concatenation: what a host's authentication makes of the keys that it generates. The transport says
 * that it has TLS; the admin queue is said to have been connected with a key. */
#include "tls/vault.h"
#include "unittest/nvmf/loop.h"

#define T_ID 7
#define LATE (env_ticks() + 2 * NVMF_PSK_UNUSED_S * env_ticks_hz())

static struct loop_cmd cmd;
static struct nvmf_connect_data data;
static uint8_t buf[DHCHAP_MESSAGE_MAX] __attribute__((aligned(8)));
static char why[NVMF_ERROR_MAX];

static int setup(void)
{
	static struct nvmf_transport_ops ops;
	int rc = loop_add_key("host", "DHHC-1:01:Ri/aOmYf2dlR6skXAxhXB9TG90MtSxXxfeVxBOhYCRGHzziV:");

	rc = rc == 0 ? loop_start() : rc;
	if (rc == 0) {
		struct nvmf_transport *t = nvmf_transport_find(loop_tgt(), "LOOP");
		ops = *t->ops;
		ops.listen_secure = ops.listen;
		t->ops = &ops;
		rc = nvmf_subsystem_add_host(loop_subsystem(), LOOP_HOSTNQN, "host", NULL, why);
	}
	return rc;
}

static int teardown(void)
{
	int rc = loop_stop();

	keyring_file_remove("host");
	return rc | (keyring_next(NULL) != NULL) | (tls_vault_used() != 0);
}

static struct tls_identity identity_of(const uint8_t *bytes)
{
	struct tls_identity id = {.version = 1, .generated = true, .hostnqn = LOOP_HOSTNQN, .subnqn = LOOP_SUBNQN};
	struct tls_psk psk = {.hash = DHCHAP_HASH_SHA256, .len = 32, .generated = true};

	memcpy(psk.bytes, bytes, psk.len);
	CU_ASSERT_EQUAL(tls_psk_digest(&psk, LOOP_HOSTNQN, LOOP_SUBNQN, id.digest), 0);
	return id;
}

static bool finds(const uint8_t *bytes)
{
	struct tls_identity id = identity_of(bytes);
	struct tls_psk psk;

	return nvmf_psk_find(loop_tgt(), &id, &psk);
}

/* ---- The host ---- */

static void transfer(struct loop_conn *c, uint8_t fctype, size_t len)
{
	loop_cmd_init(&cmd, c, nvme_admin_fabrics, 0);
	struct nvmf_auth_sqe *sqe = (struct nvmf_auth_sqe *)&cmd.sqe;
	loop_cmd_data(&cmd, buf, (uint32_t)len);
	sqe->fctype = fctype;
	sqe->secp = NVMF_AUTH_SECP;
	sqe->spsp0 = sqe->spsp1 = NVMF_AUTH_SPSP;
	sqe->length = htole32((uint32_t)len);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
}

/* The target's next message. False: it is a failure. */
static bool receive(struct loop_conn *c, uint8_t id)
{
	struct dhchap_header header;

	transfer(c, nvme_fabrics_type_auth_receive, sizeof(buf));
	CU_ASSERT(dhchap_decode_header(buf, sizeof(buf), &header));
	return header.type == DHCHAP_TYPE_DHCHAP && header.id == id;
}

/* The reply to a challenge, and the key that is generated in it. Its length. */
static size_t make_reply(const struct dhchap_challenge *c, uint8_t sc_c, uint8_t psk[DHCHAP_HASH_MAX])
{
	static uint8_t response[DHCHAP_HASH_MAX], value[DHCHAP_DH_MAX], secret[DHCHAP_DH_MAX];
	static const uint8_t own[DHCHAP_HASH_MAX] = {1, 2, 3};
	struct keyring_key *key = keyring_get("host");
	struct dhchap_dh *dh;

	CU_ASSERT_EQUAL_FATAL(dhchap_dh_generate(c->group, &dh), 0);
	CU_ASSERT_EQUAL(dhchap_dh_public(dh, value), 0);
	CU_ASSERT_EQUAL(dhchap_dh_secret(dh, c->dh_value, c->dh_len, secret), 0);
	dhchap_dh_free(dh);
	CU_ASSERT_EQUAL(dhchap_respond(&(struct dhchap_challenge_in){.secret = keyring_key_secret(key),
								     .hash = c->hash,
								     .of_host = true,
								     .hostnqn = LOOP_HOSTNQN,
								     .subnqn = LOOP_SUBNQN,
								     .seqnum = c->seqnum,
								     .t_id = T_ID,
								     .challenge = c->challenge,
								     .dh_secret = secret,
								     .dh_secret_len = c->dh_len,
								     .sc_c = sc_c},
				       response),
			0);
	keyring_put(key);
	CU_ASSERT_EQUAL(dhchap_generate_psk(c->hash, secret, c->dh_len, c->challenge, own, psk), 0);
	return dhchap_encode_reply(buf, T_ID, c->hash,
				   &(struct dhchap_reply){.challenge_valid = true,
							  .response = response,
							  .challenge = own,
							  .dh_value = value,
							  .dh_len = c->dh_len});
}

/* Whether the host is authenticated; and the key that it has generated. */
static bool authenticate(struct loop_conn *c, uint8_t sc_c, uint8_t psk[DHCHAP_HASH_MAX])
{
	static uint8_t kept[DHCHAP_MESSAGE_MAX];
	struct dhchap_challenge challenge;

	transfer(c, nvme_fabrics_type_auth_send,
		 dhchap_encode_negotiate(buf, T_ID, sc_c, 1u << DHCHAP_HASH_SHA256, 1u << DHCHAP_GROUP_2048));
	CU_ASSERT_FATAL(receive(c, DHCHAP_ID_CHALLENGE));
	memcpy(kept, buf, sizeof(kept)); /* which the challenge points into */
	CU_ASSERT_EQUAL_FATAL(dhchap_decode_challenge(kept, sizeof(kept), &challenge), DHCHAP_OK);
	transfer(c, nvme_fabrics_type_auth_send, make_reply(&challenge, sc_c, psk));
	return receive(c, DHCHAP_ID_SUCCESS1);
}

/* by: the key of its connection; NULL: it is not encrypted. */
static struct loop_conn *connect_admin(const struct tls_identity *by)
{
	struct loop_conn *c = loop_open(&loop_address, 0);

	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	((struct nvmf_qpair *)c->qp)->secured_by = by;
	loop_connect_init(&cmd, c, &data, 0, NVMF_CNTLID_DYNAMIC);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_SUCCESS);
	return c;
}

static bool is_alive(struct loop_conn *c)
{
	uint64_t cap;

	return loop_property_get(c, NVME_REG_CAP, 8, &cap) == 0;
}

/* ---- Tests ---- */

/* A connection whose key has just been generated on one without TLS. */
static struct loop_conn *connect_with_new(struct tls_identity *id, uint8_t psk[DHCHAP_HASH_MAX])
{
	struct loop_conn *plain = connect_admin(NULL);

	CU_ASSERT(authenticate(plain, DHCHAP_SC_NEW_TLS_PSK, psk));
	CU_ASSERT(finds(psk));
	loop_close(plain);
	*id = identity_of(psk);
	return connect_admin(id);
}

static void test_each_replacement_is_in_force_until_the_next(void)
{
	uint8_t psk[4][DHCHAP_HASH_MAX];
	struct tls_identity id;
	struct loop_conn *c = connect_with_new(&id, psk[0]);

	for (unsigned i = 1; i < 4; i++) {
		CU_ASSERT(authenticate(c, DHCHAP_SC_REPLACE_TLS_PSK, psk[i]));
		CU_ASSERT_FALSE(finds(psk[i - 1]));
		nvmf_psk_expire(LATE);
		CU_ASSERT(finds(psk[i]));
		CU_ASSERT_EQUAL(tls_vault_used(), 1);
	}
	loop_close(c);
	nvmf_psk_expire(LATE);
	CU_ASSERT_EQUAL(tls_vault_used(), 0);
}

static void test_without_room_a_controller_lives_and_none_begins(void)
{
	static struct tls_psk *taken[TLS_VAULT_KEYS];
	uint8_t psk[3][DHCHAP_HASH_MAX];
	struct tls_identity id;
	struct loop_conn *c = connect_with_new(&id, psk[0]);
	unsigned n = 0;

	while ((taken[n] = tls_vault_get()) != NULL) {
		n++;
	}
	CU_ASSERT(authenticate(c, DHCHAP_SC_REPLACE_TLS_PSK, psk[1]));
	CU_ASSERT_FALSE(finds(psk[0]));
	CU_ASSERT(finds(psk[1]));
	nvmf_psk_forget_generated(nvmf_hosts_find(&loop_subsystem()->hosts, LOOP_HOSTNQN));
	taken[n++] = tls_vault_get();
	CU_ASSERT(authenticate(c, DHCHAP_SC_REPLACE_TLS_PSK, psk[2])); /* nothing to replace */
	CU_ASSERT_FALSE(finds(psk[2]));
	CU_ASSERT(is_alive(c));
	struct loop_conn *plain = connect_admin(NULL);
	CU_ASSERT_FALSE(authenticate(plain, DHCHAP_SC_NEW_TLS_PSK, psk[2]));
	CU_ASSERT(loop_wait_closed(plain));
	loop_close(plain);
	while (n > 0) {
		tls_vault_put(taken[--n]);
	}
	CU_ASSERT(authenticate(c, DHCHAP_SC_REPLACE_TLS_PSK, psk[2]));
	CU_ASSERT(finds(psk[2]));
	loop_close(c);
	nvmf_psk_expire(LATE);
	CU_ASSERT_EQUAL(tls_vault_used(), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_each_replacement_is_in_force_until_the_next),
	UNIT(test_without_room_a_controller_lives_and_none_begins),
	UNIT_END,
};
UNIT_MAIN("nvmf-concat", tests, setup, teardown)
