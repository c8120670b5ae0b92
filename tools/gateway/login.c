/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/login.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define N_ADDRESSES   1024
#define WAITING_MAX   8
#define REMEMBERED_MS (5 * 60 * 1000)
#define TAG_SIZE      32

/* What is known of a user. */
struct login_state {
	uint8_t tag[TAG_SIZE]; /* of the last right password */
	uint64_t tag_until_ms; /* 0: there is none */
	uint64_t rate_at_ms;
	double tokens; /* requests that may come at once */
};

/* Each failure takes a token; GATEWAY_LOGIN_WAIT_MS bring one back. */
struct login_address {
	uint8_t address[GATEWAY_ADDRESS_SIZE];
	uint64_t last_ms;  /* 0: unused */
	uint64_t spent_ms; /* tokens that are spent, in the time that brings them back, as of last_ms */
};

struct gateway_login {
	pthread_mutex_t lock; /* of all below */
	pthread_mutex_t hash; /* held while a password is hashed; never taken with lock held */
	struct gateway_users users;
	struct login_state *states; /* one for each user */
	struct login_address addresses[N_ADDRESSES];
	unsigned waiting;
	uint32_t rate;
	uint8_t key[32];
	struct gateway_user nobody; /* hashed for names that are unknown, so that they take as long as others */
};

struct gateway_login *gateway_login_new(uint32_t rate)
{
	struct gateway_login *l = calloc(1, sizeof(*l));

	if (l == NULL || RAND_bytes(l->key, sizeof(l->key)) != 1 ||
	    RAND_bytes(l->nobody.salt, sizeof(l->nobody.salt)) != 1) {
		free(l);
		return NULL;
	}
	pthread_mutex_init(&l->lock, NULL);
	pthread_mutex_init(&l->hash, NULL);
	l->rate = rate;
	l->nobody.iterations = GATEWAY_ITERATIONS; /* there are no users yet */
	return l;
}

void gateway_login_free(struct gateway_login *l)
{
	if (l != NULL) {
		gateway_users_free(&l->users);
		free(l->states);
		OPENSSL_cleanse(l->key, sizeof(l->key));
		free(l);
	}
}

/* What the password of an unknown name is hashed with: as much as that of the user who takes longest. */
static uint32_t login_most_iterations(const struct gateway_users *users)
{
	uint32_t most = 0;

	for (size_t i = 0; i < users->n; i++) {
		most = users->list[i].iterations > most ? users->list[i].iterations : most;
	}
	return most != 0 ? most : GATEWAY_ITERATIONS;
}

void gateway_login_set_users(struct gateway_login *l, struct gateway_users *users)
{
	struct login_state *states = calloc(users->n + 1, sizeof(*states));

	pthread_mutex_lock(&l->lock);
	if (states == NULL) { /* nobody is let in */
		gateway_users_free(users);
	}
	gateway_users_free(&l->users);
	free(l->states);
	l->users = *users;
	l->states = states;
	l->nobody.iterations = login_most_iterations(&l->users);
	pthread_mutex_unlock(&l->lock);
	*users = (struct gateway_users){0};
}

static bool login_tag(const struct gateway_login *l, const struct gateway_credentials *c, uint8_t tag[TAG_SIZE])
{
	return HMAC(EVP_sha256(), l->key, sizeof(l->key), (const uint8_t *)c, sizeof(*c), tag, NULL) != NULL;
}

/* What this address has spent by now. */
static uint64_t login_spent_ms(const struct login_address *a, uint64_t now_ms)
{
	uint64_t passed = now_ms > a->last_ms ? now_ms - a->last_ms : 0;

	return a->spent_ms > passed ? a->spent_ms - passed : 0;
}

/* The address's entry; if it has none, the one that was used least recently becomes its own. */
static struct login_address *login_address_get(struct gateway_login *l, const uint8_t address[GATEWAY_ADDRESS_SIZE])
{
	struct login_address *oldest = &l->addresses[0];

	for (size_t i = 0; i < N_ADDRESSES; i++) {
		struct login_address *a = &l->addresses[i];
		if (a->last_ms != 0 && memcmp(a->address, address, GATEWAY_ADDRESS_SIZE) == 0) {
			return a;
		}
		if (a->last_ms < oldest->last_ms) {
			oldest = a;
		}
	}
	*oldest = (struct login_address){0};
	memcpy(oldest->address, address, GATEWAY_ADDRESS_SIZE);
	return oldest;
}

/* Takes a token for a password that may be wrong. */
static bool login_address_take(struct gateway_login *l, const uint8_t address[GATEWAY_ADDRESS_SIZE], uint64_t now_ms)
{
	struct login_address *a = login_address_get(l, address);
	uint64_t spent = login_spent_ms(a, now_ms);
	bool may = spent + GATEWAY_LOGIN_WAIT_MS <= GATEWAY_LOGIN_FAILURES * GATEWAY_LOGIN_WAIT_MS;

	a->spent_ms = spent + (may ? GATEWAY_LOGIN_WAIT_MS : 0);
	a->last_ms = now_ms + 1; /* never 0 */
	return may;
}

/* The password was right. */
static void login_address_give_back(struct gateway_login *l, const uint8_t address[GATEWAY_ADDRESS_SIZE])
{
	struct login_address *a = login_address_get(l, address);

	a->spent_ms -= a->spent_ms < GATEWAY_LOGIN_WAIT_MS ? a->spent_ms : GATEWAY_LOGIN_WAIT_MS;
}

static enum gateway_login_result login_rate(struct gateway_login *l, struct login_state *s, uint64_t now_ms)
{
	if (l->rate == 0) {
		return GATEWAY_LOGIN_OK;
	}
	uint64_t passed = now_ms > s->rate_at_ms ? now_ms - s->rate_at_ms : 0;
	double tokens = s->tokens + (double)passed * l->rate / 1000;
	s->tokens = s->rate_at_ms == 0 || tokens > l->rate ? l->rate : tokens;
	s->rate_at_ms = now_ms + 1;
	if (s->tokens < 1) {
		return GATEWAY_LOGIN_RATE;
	}
	s->tokens -= 1;
	return GATEWAY_LOGIN_OK;
}

/* With the lock held: a right password that is remembered ends the check here; otherwise *user is what it must be
 * hashed with. */
static bool login_begin(struct gateway_login *l, const struct gateway_credentials *c, const uint8_t *tag,
			const uint8_t *address, uint64_t now_ms, struct gateway_user *user,
			enum gateway_login_result *result)
{
	const struct gateway_user *found = gateway_users_find(&l->users, c->name);
	struct login_state *s = found != NULL ? &l->states[found - l->users.list] : NULL;

	*user = found != NULL ? *found : l->nobody;
	if (s != NULL && now_ms < s->tag_until_ms && CRYPTO_memcmp(tag, s->tag, TAG_SIZE) == 0) {
		*result = login_rate(l, s, now_ms);
		return true;
	}
	if (l->waiting >= WAITING_MAX) {
		*result = GATEWAY_LOGIN_BUSY;
		return true;
	}
	if (!login_address_take(l, address, now_ms)) {
		*result = GATEWAY_LOGIN_LIMITED;
		return true;
	}
	l->waiting++;
	return false;
}

/* With the lock held. right: the password is that of `user`, which the file may not have any more. */
static enum gateway_login_result login_end(struct gateway_login *l, const struct gateway_user *user, bool right,
					   const uint8_t *tag, const uint8_t *address, uint64_t now_ms)
{
	const struct gateway_user *found = gateway_users_find(&l->users, user->name);

	l->waiting--;
	if (!right || found == NULL || found->role != user->role ||
	    memcmp(found->hash, user->hash, sizeof(user->hash)) != 0) {
		return GATEWAY_LOGIN_WRONG;
	}
	struct login_state *s = &l->states[found - l->users.list];
	login_address_give_back(l, address);
	memcpy(s->tag, tag, TAG_SIZE);
	s->tag_until_ms = now_ms + REMEMBERED_MS;
	return login_rate(l, s, now_ms);
}

static bool login_hash(struct gateway_login *l, const struct gateway_user *user, const char *password)
{
	uint8_t hash[GATEWAY_HASH_SIZE] = {0};

	pthread_mutex_lock(&l->hash);
	bool right = gateway_user_hash(user, password, hash);
	pthread_mutex_unlock(&l->hash);
	return CRYPTO_memcmp(hash, user->hash, sizeof(hash)) == 0 && right && user->name[0] != '\0';
}

enum gateway_login_result gateway_login_check(struct gateway_login *l, const struct gateway_credentials *c,
					      const uint8_t address[GATEWAY_ADDRESS_SIZE], uint64_t now_ms,
					      enum gateway_role *role)
{
	enum gateway_login_result result;
	struct gateway_user user;
	uint8_t tag[TAG_SIZE];

	if (!login_tag(l, c, tag)) {
		return GATEWAY_LOGIN_BUSY;
	}
	pthread_mutex_lock(&l->lock);
	bool ended = login_begin(l, c, tag, address, now_ms, &user, &result);
	pthread_mutex_unlock(&l->lock);
	if (!ended) {
		bool right = login_hash(l, &user, c->password);
		pthread_mutex_lock(&l->lock);
		result = login_end(l, &user, right, tag, address, now_ms);
		pthread_mutex_unlock(&l->lock);
	}
	if (result == GATEWAY_LOGIN_OK) {
		*role = user.role;
	}
	return result;
}
