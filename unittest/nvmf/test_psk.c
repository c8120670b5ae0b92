/* SPDX-License-Identifier: BSD-3-Clause */
/* Pre-shared keys of hosts: who finds them, and whom a connection that was made with one lets in. */
#include "tls/vault.h"
#include "unittest/nvmf/loop.h"

#define HOST "nqn.2024-01.io.varve:tls"

static struct loop_cmd cmd;
static struct nvmf_connect_data data;
static char why[NVMF_ERROR_MAX];

static int setup(void)
{
	if (loop_add_key("a", "NVMeTLSkey-1:01:Aw4ZJC86RVBbZnF8h5KdqLO+ydTf6vUACxYhLDdCTVhhy7Ks:") != 0 ||
	    loop_add_key("b", "NVMeTLSkey-1:00:Aw4ZJC86RVBbZnF8h5KdqLO+ydTf6vUACxYhLDdCTVhhy7Ks:") != 0 ||
	    loop_add_key("chap", "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:") != 0) {
		return 1;
	}
	return loop_start();
}

static int teardown(void)
{
	int rc = loop_stop();

	keyring_file_remove("a");
	keyring_file_remove("b");
	keyring_file_remove("chap");
	return rc | (keyring_next(NULL) != NULL);
}

/* The hash of the key that is found; -1: none is. */
static int found(const char *hostnqn, const char *subnqn)
{
	struct tls_psk psk;

	struct tls_identity identity = {.version = 1};

	snprintf(identity.hostnqn, sizeof(identity.hostnqn), "%s", hostnqn);
	snprintf(identity.subnqn, sizeof(identity.subnqn), "%s", subnqn);
	return nvmf_psk_find(loop_tgt(), &identity, &psk) ? psk.hash : -1;
}

static void remove_host(void)
{
	struct loop_wait wait = LOOP_WAIT;

	nvmf_subsystem_remove_host(loop_subsystem(), HOST, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
}

static void test_a_key_is_found_by_host_and_subsystem(void)
{
	struct nvmf_subsystem *s = loop_subsystem();

	CU_ASSERT_EQUAL(found(HOST, LOOP_SUBNQN), -1);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host_psk(s, HOST, NULL, NULL, "a", why), 0);
	CU_ASSERT_STRING_EQUAL(nvmf_subsystem_host_psk(s, HOST), "a");
	CU_ASSERT_EQUAL(found(HOST, LOOP_SUBNQN), DHCHAP_HASH_SHA256);
	CU_ASSERT_EQUAL(found(HOST "2", LOOP_SUBNQN), -1);
	CU_ASSERT_EQUAL(found(HOST, LOOP_SUBNQN "2"), -1);
	struct tls_psk psk;
	CU_ASSERT_FALSE(
		nvmf_psk_find(NULL, &(const struct tls_identity){.hostnqn = HOST, .subnqn = LOOP_SUBNQN}, &psk));
	remove_host();
	CU_ASSERT_EQUAL(found(HOST, LOOP_SUBNQN), -1);
}

static void test_a_key_is_replaced_and_otherwise_stays(void)
{
	struct nvmf_subsystem *s = loop_subsystem();

	CU_ASSERT_EQUAL(nvmf_subsystem_add_host(s, HOST, NULL, NULL, why), 0);
	CU_ASSERT_PTR_NULL(nvmf_subsystem_host_psk(s, HOST));
	CU_ASSERT_EQUAL(found(HOST, LOOP_SUBNQN), -1);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, NULL, NULL, "a", why), 0);
	CU_ASSERT_EQUAL(found(HOST, LOOP_SUBNQN), DHCHAP_HASH_SHA256);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, "chap", NULL, "b", why), 0);
	CU_ASSERT_EQUAL(found(HOST, LOOP_SUBNQN), DHCHAP_HASH_NONE);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, NULL, NULL, "a", why), 0);
	CU_ASSERT_STRING_EQUAL(nvmf_subsystem_host_psk(s, HOST), "a");
	CU_ASSERT_STRING_EQUAL(nvmf_subsystem_host_key(s, HOST, false), "chap");
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, NULL, "chap", "b", why), -EINVAL);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, "chap", "chap", "b", why), 0);
	CU_ASSERT_STRING_EQUAL(nvmf_subsystem_host_key(s, HOST, true), "chap");
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, "chap", NULL, NULL, why), 0);
	CU_ASSERT_PTR_NULL(nvmf_subsystem_host_key(s, HOST, true));
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys(s, HOST, NULL, NULL, why), 0);
	CU_ASSERT_PTR_NULL(nvmf_subsystem_host_key(s, HOST, false));
	CU_ASSERT_STRING_EQUAL(nvmf_subsystem_host_psk(s, HOST), "b");
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, NULL, NULL, "nothing", why), -ENOKEY);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, "nothing", NULL, "a", why), -ENOKEY);
	CU_ASSERT_STRING_EQUAL(nvmf_subsystem_host_psk(s, HOST), "b");
	remove_host();
}

static void test_a_name_that_is_kept_is_shown_until_there_is_a_key(void)
{
	struct nvmf_subsystem *s = loop_subsystem();

	CU_ASSERT_EQUAL(nvmf_subsystem_keep_psk_name(s, HOST, "none"), -ENOENT);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host(s, HOST, NULL, NULL, why), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_keep_psk_name(s, HOST, "first"), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_keep_psk_name(s, HOST, "none"), 0);
	CU_ASSERT_STRING_EQUAL(nvmf_subsystem_host_psk(s, HOST), "none");
	CU_ASSERT_FALSE(nvmf_subsystem_host_psk_counts(s, HOST));
	CU_ASSERT_EQUAL(found(HOST, LOOP_SUBNQN), -1);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, NULL, NULL, "a", why), 0);
	CU_ASSERT_STRING_EQUAL(nvmf_subsystem_host_psk(s, HOST), "a");
	CU_ASSERT_TRUE(nvmf_subsystem_host_psk_counts(s, HOST));
	CU_ASSERT_EQUAL(found(HOST, LOOP_SUBNQN), DHCHAP_HASH_SHA256);
	remove_host();
}

static bool found_compat(void)
{
	struct tls_psk psk;

	CU_ASSERT(
		nvmf_psk_find(loop_tgt(), &(const struct tls_identity){.hostnqn = HOST, .subnqn = LOOP_SUBNQN}, &psk));
	return psk.compat;
}

static void test_a_host_that_derives_as_older_libnvme_keeps_that_with_other_keys(void)
{
	struct nvmf_subsystem *s = loop_subsystem();

	CU_ASSERT_EQUAL(nvmf_subsystem_set_psk_compat(s, HOST, true), -ENOENT);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host(s, HOST, NULL, NULL, why), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_psk_compat(s, HOST, true), 0); /* there is no key yet */
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, NULL, NULL, "a", why), 0);
	CU_ASSERT(found_compat());
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, NULL, NULL, "b", why), 0);
	CU_ASSERT(found_compat());
	CU_ASSERT(nvmf_subsystem_psk_compat(s, HOST));
	CU_ASSERT_EQUAL(nvmf_subsystem_set_psk_compat(s, HOST, false), 0);
	CU_ASSERT_FALSE(found_compat());
	CU_ASSERT_FALSE(keyring_key_psk(nvmf_hosts_find(&s->hosts, HOST)->psk_key)->compat);
	remove_host();
}

static const struct nvmf_host *chap_host(void)
{
	return nvmf_hosts_find(&loop_subsystem()->hosts, HOST);
}

static struct nvmf_psk *make_key(unsigned hash, uint8_t seed, const struct nvmf_ctrlr *replaces)
{
	uint8_t bytes[DHCHAP_HASH_MAX];

	memset(bytes, seed, sizeof(bytes));
	return nvmf_psk_generate(loop_subsystem(), chap_host(), hash, bytes, replaces);
}

/* Generates a key of `hash` from a seed, and tells whether it could be. */
static bool generate(unsigned hash, uint8_t seed)
{
	struct nvmf_psk *p = make_key(hash, seed, NULL);

	if (p != NULL) {
		nvmf_psk_publish(p, chap_host());
	}
	return p != NULL;
}

/* The same in place of the one that is in force for the host's only controller. */
static bool replace(uint8_t seed)
{
	struct nvmf_ctrlr *ctrlr = TAILQ_FIRST(&loop_subsystem()->ctrlrs);
	struct nvmf_psk *p = make_key(DHCHAP_HASH_SHA256, seed, ctrlr);

	CU_ASSERT_PTR_NOT_NULL_FATAL(ctrlr);
	if (p != NULL) {
		nvmf_psk_replace(p, chap_host(), ctrlr);
	}
	return p != NULL;
}

static struct tls_identity identity_of(unsigned hash, uint8_t seed)
{
	struct tls_identity id = {.version = 1, .generated = true, .hostnqn = HOST, .subnqn = LOOP_SUBNQN};
	struct tls_psk psk = {.hash = (uint8_t)hash, .len = (uint8_t)dhchap_hash_bytes(hash), .generated = true};

	memset(psk.bytes, seed, psk.len);
	CU_ASSERT_EQUAL(tls_psk_digest(&psk, HOST, LOOP_SUBNQN, id.digest), 0);
	return id;
}

static bool finds(unsigned hash, uint8_t seed)
{
	struct tls_identity id = identity_of(hash, seed);
	struct tls_psk psk;
	bool found = nvmf_psk_find(loop_tgt(), &id, &psk);

	CU_ASSERT(!found || (psk.generated && psk.hash == hash && psk.bytes[0] == seed));
	return found;
}

static void add_chap_host(void)
{
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host(loop_subsystem(), HOST, "chap", NULL, why), 0);
	CU_ASSERT_FALSE(nvmf_psk_any_generated(loop_tgt()));
}

static void test_generated_keys_are_found_until_the_host_is_removed(void)
{
	add_chap_host();
	CU_ASSERT(generate(DHCHAP_HASH_SHA256, 1));
	CU_ASSERT(generate(DHCHAP_HASH_SHA384, 2));
	CU_ASSERT(nvmf_psk_any_generated(loop_tgt()));
	CU_ASSERT_FALSE(nvmf_psk_any_generated(NULL));
	CU_ASSERT(finds(DHCHAP_HASH_SHA256, 1));
	CU_ASSERT(finds(DHCHAP_HASH_SHA384, 2));
	CU_ASSERT_FALSE(finds(DHCHAP_HASH_SHA256, 2));
	CU_ASSERT_EQUAL(found(HOST, LOOP_SUBNQN), -1); /* it is no configured one */
	remove_host();
	CU_ASSERT_FALSE(finds(DHCHAP_HASH_SHA256, 1));
	CU_ASSERT_FALSE(nvmf_psk_any_generated(loop_tgt()));
	CU_ASSERT_EQUAL(tls_vault_used(), 0);
}

static void test_generated_keys_go_with_the_key_that_proved_the_host(void)
{
	struct nvmf_subsystem *s = loop_subsystem();

	add_chap_host();
	CU_ASSERT(generate(DHCHAP_HASH_SHA256, 1));
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys_psk(s, HOST, NULL, NULL, "a", why), 0); /* that key stays */
	CU_ASSERT(finds(DHCHAP_HASH_SHA256, 1));
	CU_ASSERT_EQUAL(found(HOST, LOOP_SUBNQN), DHCHAP_HASH_SHA256);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_keys(s, HOST, NULL, NULL, why), 0);
	CU_ASSERT_FALSE(finds(DHCHAP_HASH_SHA256, 1));
	CU_ASSERT_EQUAL(tls_vault_used(), 0);
	remove_host();
}

/* A controller of the host whose admin queue was connected with that key. */
static struct loop_conn *connect_with_generated(const struct tls_identity *id)
{
	struct loop_conn *c = loop_open(&loop_address, 0);

	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	((struct nvmf_qpair *)c->qp)->secured_by = id;
	loop_connect_init(&cmd, c, &data, 0, NVMF_CNTLID_DYNAMIC);
	snprintf((char *)data.hostnqn, sizeof(data.hostnqn), "%s", HOST);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_SUCCESS);
	CU_ASSERT_EQUAL(le32toh(cmd.cqe.dw0) >> 16, 0); /* it need not authenticate again */
	return c;
}

static void test_generated_keys_last_as_long_as_they_are_used(void)
{
	uint64_t hz = env_ticks_hz();

	add_chap_host();
	CU_ASSERT(generate(DHCHAP_HASH_SHA256, 1));
	CU_ASSERT(generate(DHCHAP_HASH_SHA256, 2));
	struct tls_identity id = identity_of(DHCHAP_HASH_SHA256, 1);
	struct loop_conn *c = connect_with_generated(&id);
	nvmf_psk_expire(env_ticks() + (NVMF_PSK_UNUSED_S - 60) * hz);
	CU_ASSERT(finds(DHCHAP_HASH_SHA256, 2));
	nvmf_psk_expire(env_ticks() + NVMF_PSK_UNUSED_S * hz);
	CU_ASSERT_FALSE(finds(DHCHAP_HASH_SHA256, 2));
	CU_ASSERT(finds(DHCHAP_HASH_SHA256, 1));
	loop_close(c);
	nvmf_psk_expire(env_ticks() + NVMF_PSK_UNUSED_S * hz);
	CU_ASSERT_FALSE(finds(DHCHAP_HASH_SHA256, 1));
	CU_ASSERT_EQUAL(tls_vault_used(), 0);
	remove_host();
}

static void test_a_key_that_replaced_another_is_in_force(void)
{
	uint64_t late = env_ticks() + 2 * NVMF_PSK_UNUSED_S * env_ticks_hz();

	add_chap_host();
	CU_ASSERT(generate(DHCHAP_HASH_SHA256, 1));
	struct tls_identity id = identity_of(DHCHAP_HASH_SHA256, 1);
	struct loop_conn *c = connect_with_generated(&id);
	CU_ASSERT(generate(DHCHAP_HASH_SHA256, 9)); /* of another connection */
	for (uint8_t seed = 2; seed < 5; seed++) {
		CU_ASSERT(replace(seed));
		CU_ASSERT_FALSE(finds(DHCHAP_HASH_SHA256, (uint8_t)(seed - 1)));
		CU_ASSERT_EQUAL(finds(DHCHAP_HASH_SHA256, 9), seed == 2);
		nvmf_psk_expire(late);
		CU_ASSERT(finds(DHCHAP_HASH_SHA256, seed));
		CU_ASSERT_EQUAL(tls_vault_used(), 1);
	}
	loop_close(c);
	nvmf_psk_expire(late);
	CU_ASSERT_FALSE(finds(DHCHAP_HASH_SHA256, 4));
	CU_ASSERT_EQUAL(tls_vault_used(), 0);
	remove_host();
}

static void test_a_host_has_only_so_many_generated_keys(void)
{
	add_chap_host();
	for (unsigned i = 1; i <= 40; i++) {
		CU_ASSERT(generate(DHCHAP_HASH_SHA256, (uint8_t)i));
		CU_ASSERT(finds(DHCHAP_HASH_SHA256, (uint8_t)i));
	}
	CU_ASSERT_EQUAL(tls_vault_used(), 16);
	CU_ASSERT_FALSE(finds(DHCHAP_HASH_SHA256, 24));
	CU_ASSERT(finds(DHCHAP_HASH_SHA256, 25));
	struct tls_psk *taken[TLS_VAULT_KEYS];
	unsigned n = 0;
	while ((taken[n] = tls_vault_get()) != NULL) {
		n++;
	}
	CU_ASSERT_EQUAL(n, TLS_VAULT_KEYS - 16);
	remove_host();
	add_chap_host();
	for (unsigned i = 1; i <= 16; i++) {
		CU_ASSERT(generate(DHCHAP_HASH_SHA256, (uint8_t)i));
	}
	while (n > 0) {
		CU_ASSERT_EQUAL(taken[--n]->len, 0); /* an earlier key is not left there */
		tls_vault_put(taken[n]);
	}
	remove_host();
	CU_ASSERT_EQUAL(tls_vault_used(), 0);
}

static void test_keys_that_are_used_leave_room_for_others(void)
{
	add_chap_host();
	CU_ASSERT(generate(DHCHAP_HASH_SHA256, 1));
	struct tls_identity id = identity_of(DHCHAP_HASH_SHA256, 1);
	struct loop_conn *c = connect_with_generated(&id);
	for (uint8_t i = 2; i < 2 + 17; i++) {
		CU_ASSERT(generate(DHCHAP_HASH_SHA256, i));
		CU_ASSERT_EQUAL(finds(DHCHAP_HASH_SHA256, 2), i < 2 + 16);
		CU_ASSERT(finds(DHCHAP_HASH_SHA256, 1));
	}
	CU_ASSERT_EQUAL(tls_vault_used(), 1 + 16);
	CU_ASSERT(replace(40)); /* it is used at once, in place of another */
	CU_ASSERT(finds(DHCHAP_HASH_SHA256, 3));
	CU_ASSERT_EQUAL(tls_vault_used(), 1 + 16);
	loop_close(c);
	remove_host();
}

/* As many as one host may have, also before handshakes find them; and those of another. */
#define HOST_KEYS 256

static void test_a_host_does_not_take_all_the_room(void)
{
	struct nvmf_subsystem *s = loop_subsystem();
	static struct nvmf_psk *taken[HOST_KEYS];
	static const uint8_t bytes[DHCHAP_HASH_MAX];

	add_chap_host();
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host(s, HOST "2", "chap", NULL, why), 0);
	for (unsigned i = 0; i < HOST_KEYS; i++) {
		taken[i] = make_key(DHCHAP_HASH_SHA256, (uint8_t)i, NULL);
		CU_ASSERT_PTR_NOT_NULL(taken[i]);
	}
	CU_ASSERT_PTR_NULL(make_key(DHCHAP_HASH_SHA256, 1, NULL));
	struct nvmf_psk *other =
		nvmf_psk_generate(s, nvmf_hosts_find(&s->hosts, HOST "2"), DHCHAP_HASH_SHA256, bytes, NULL);
	CU_ASSERT_PTR_NOT_NULL(other);
	nvmf_psk_discard(other);
	for (unsigned i = 0; i < HOST_KEYS; i++) {
		nvmf_psk_discard(taken[i]);
		CU_ASSERT(i != 0 || generate(DHCHAP_HASH_SHA256, 1));
	}
	struct loop_wait wait = LOOP_WAIT;
	nvmf_subsystem_remove_host(s, HOST "2", loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
	remove_host();
	CU_ASSERT_EQUAL(tls_vault_used(), 0);
}

static void test_where_there_is_no_room_a_key_takes_the_place_of_the_one_that_it_replaces(void)
{
	static struct nvmf_psk *own[HOST_KEYS - 1];
	static struct tls_psk *taken[TLS_VAULT_KEYS];
	unsigned n = 0;

	add_chap_host();
	CU_ASSERT(generate(DHCHAP_HASH_SHA256, 1));
	struct tls_identity id = identity_of(DHCHAP_HASH_SHA256, 1);
	struct loop_conn *c = connect_with_generated(&id);
	for (unsigned i = 0; i < HOST_KEYS - 1; i++) {
		own[i] = make_key(DHCHAP_HASH_SHA256, (uint8_t)i, NULL);
	}
	CU_ASSERT(replace(2)); /* the host has no room */
	CU_ASSERT_EQUAL(tls_vault_used(), HOST_KEYS);
	for (unsigned i = 0; i < HOST_KEYS - 1; i++) {
		nvmf_psk_discard(own[i]);
	}
	while ((taken[n] = tls_vault_get()) != NULL) {
		n++;
	}
	CU_ASSERT_FALSE(generate(DHCHAP_HASH_SHA256, 9));
	CU_ASSERT(finds(DHCHAP_HASH_SHA256, 2));
	CU_ASSERT(replace(3)); /* nobody has */
	CU_ASSERT_FALSE(finds(DHCHAP_HASH_SHA256, 2));
	CU_ASSERT(finds(DHCHAP_HASH_SHA256, 3));
	nvmf_psk_discard(make_key(DHCHAP_HASH_SHA256, 4, TAILQ_FIRST(&loop_subsystem()->ctrlrs)));
	taken[n++] = tls_vault_get(); /* its place */
	CU_ASSERT_FALSE(replace(5));  /* none was in force */
	while (n > 0) {
		tls_vault_put(taken[--n]);
	}
	loop_close(c);
	remove_host();
	CU_ASSERT_EQUAL(tls_vault_used(), 0);
}

static void test_keys_for_something_else_are_refused(void)
{
	struct nvmf_subsystem *s = loop_subsystem();

	CU_ASSERT_EQUAL(nvmf_subsystem_add_host_psk(s, HOST, NULL, NULL, "chap", why), -ENOKEY);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "parameter \"psk\" is \"chap\": that key is for DH-HMAC-CHAP"));
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host_psk(s, HOST, "a", NULL, NULL, why), -ENOKEY);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "parameter \"dhchap_key\" is \"a\": that key is for TLS"));
	CU_ASSERT_PTR_NULL(nvmf_hosts_find(&s->hosts, HOST));
	for (struct keyring_key *key = keyring_next(NULL); key != NULL; key = keyring_next(key)) {
		CU_ASSERT_EQUAL(keyring_key_refs(key), 1);
	}
}

static uint16_t connect_secured_by(const char *hostnqn, const char *subnqn)
{
	struct tls_identity identity = {.version = 1};
	struct loop_conn *c = loop_open(&loop_address, 0);

	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	snprintf(identity.hostnqn, sizeof(identity.hostnqn), "%s", hostnqn);
	snprintf(identity.subnqn, sizeof(identity.subnqn), "%s", subnqn);
	((struct nvmf_qpair *)c->qp)->secured_by = &identity;
	loop_connect_init(&cmd, c, &data, 0, NVMF_CNTLID_DYNAMIC);
	uint16_t status = loop_run(&cmd);
	loop_close(c);
	return status;
}

static void test_the_key_says_who_connects_and_to_what(void)
{
	const uint16_t refused = NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST);

	CU_ASSERT_EQUAL(connect_secured_by(LOOP_HOSTNQN, LOOP_SUBNQN), NVME_ST_SUCCESS);
	CU_ASSERT_EQUAL(connect_secured_by(HOST, LOOP_SUBNQN), refused);
	CU_ASSERT_EQUAL(connect_secured_by(LOOP_HOSTNQN, LOOP_SUBNQN "2"), refused);
	CU_ASSERT_EQUAL(connect_secured_by(HOST, LOOP_SUBNQN "2"), refused);
}

/* It was accepted before its address became a secure one. */
static void test_a_connection_without_tls_is_not_let_in_where_it_is_demanded(void)
{
	struct loop_conn *c = loop_open(&loop_address, 0);
	struct nvmf_listen *listen = nvmf_subsystem_find_listener(loop_subsystem(), &loop_address)->listen;

	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	listen->secure = true;
	loop_connect_init(&cmd, c, &data, 0, NVMF_CNTLID_DYNAMIC);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST));
	strcpy(data.subsysnqn, NVMF_DISCOVERY_NQN); /* nor may it read the discovery log */
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST));
	listen->secure = false;
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_SUCCESS);
	loop_close(c);
}

static void test_the_queues_of_a_controller_are_all_encrypted_or_none_is(void)
{
	struct tls_identity identity = {.version = 1, .hostnqn = LOOP_HOSTNQN, .subnqn = LOOP_SUBNQN};

	for (unsigned i = 0; i < 2; i++) { /* which of them is */
		struct loop_conn *admin = loop_open(&loop_address, 0), *io = loop_open(&loop_address, 1);

		CU_ASSERT_FATAL(admin != NULL && io != NULL);
		((struct nvmf_qpair *)(i == 0 ? admin : io)->qp)->secured_by = &identity;
		loop_connect_init(&cmd, admin, &data, 0, NVMF_CNTLID_DYNAMIC);
		CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_SUCCESS);
		uint16_t cntlid = (uint16_t)le32toh(cmd.cqe.dw0);
		loop_connect_init(&cmd, io, &data, 1, cntlid);
		CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST));
		loop_close(io);
		loop_close(admin);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_a_key_is_found_by_host_and_subsystem),
	UNIT(test_a_key_is_replaced_and_otherwise_stays),
	UNIT(test_a_name_that_is_kept_is_shown_until_there_is_a_key),
	UNIT(test_a_host_that_derives_as_older_libnvme_keeps_that_with_other_keys),
	UNIT(test_generated_keys_are_found_until_the_host_is_removed),
	UNIT(test_generated_keys_go_with_the_key_that_proved_the_host),
	UNIT(test_generated_keys_last_as_long_as_they_are_used),
	UNIT(test_a_key_that_replaced_another_is_in_force),
	UNIT(test_a_host_has_only_so_many_generated_keys),
	UNIT(test_keys_that_are_used_leave_room_for_others),
	UNIT(test_a_host_does_not_take_all_the_room),
	UNIT(test_where_there_is_no_room_a_key_takes_the_place_of_the_one_that_it_replaces),
	UNIT(test_keys_for_something_else_are_refused),
	UNIT(test_the_key_says_who_connects_and_to_what),
	UNIT(test_a_connection_without_tls_is_not_let_in_where_it_is_demanded),
	UNIT(test_the_queues_of_a_controller_are_all_encrypted_or_none_is),
	UNIT_END,
};
UNIT_MAIN("nvmf-psk", tests, setup, teardown)
