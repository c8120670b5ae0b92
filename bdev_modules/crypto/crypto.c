/* SPDX-License-Identifier: BSD-3-Clause */
/* How crypto bdevs are made, wait for their bases, and go. */
#include "bdev_modules/crypto/crypto.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/keys.h"
#include "env_dpdk/iobuf.h"
#include "util/log.h"

/* One that is not there for want of its base. */
struct crypto_waiting {
	struct vbdev_waiting w;
	char key_name[256];
	char rekey_key_name[256], rekey_journal_bdev_name[256]; /* "": there is no rekey */
	uint64_t rekey_mib_per_second;
};

static void crypto_examine(struct bdev *b);
static void crypto_fini(void);

static struct bdev_module bdev_crypto_module = {
	.name = "crypto", .io_ctx_room = crypto_io_ctx_size, .examine = crypto_examine, .fini = crypto_fini};
BDEV_MODULE_REGISTER(bdev_crypto_module)

const char *crypto_waiting_for_key(const char *key_name)
{
	const struct vbdev_waiting *w;

	for (w = NULL; (w = vbdev_waiting_next(w)) != NULL;) {
		const struct crypto_waiting *c = (const struct crypto_waiting *)w;
		if (w->module == &bdev_crypto_module &&
		    (strcmp(c->key_name, key_name) == 0 || strcmp(c->rekey_key_name, key_name) == 0)) {
			return w->name;
		}
	}
	return NULL;
}

void crypto_dump_info(const struct bdev *b, struct json_t *driver_specific)
{
	const struct crypto_bdev *c = (const struct crypto_bdev *)b;

	json_t *crypto = json_pack("{s:s, s:s, s:s}", "base_bdev_name", vbdev_base_name(&c->v), "name", b->name,
				   "key_name", crypto_key_name(c->keys->key));

	crypto_rekey_dump_info(c, crypto);
	json_object_set_new(driver_specific, "crypto", crypto);
}

static void crypto_free(struct vbdev *v)
{
	struct crypto_bdev *c = (struct crypto_bdev *)v;

	crypto_key_put(c->keys->key);
	crypto_rekey_free(c);
	free(v);
	crypto_key_sweep();
}

/* Keeps how to make one when its base comes. */
static int crypto_wait(const struct bdev_crypto_opts *opts, char *error)
{
	struct crypto_waiting *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	vbdev_waiting_init(&c->w, &bdev_crypto_module, opts->name, opts->base_bdev_name, opts->uuid);
	snprintf(c->key_name, sizeof(c->key_name), "%s", opts->key_name);
	if (opts->rekey_key_name != NULL) {
		snprintf(c->rekey_key_name, sizeof(c->rekey_key_name), "%s", opts->rekey_key_name);
		snprintf(c->rekey_journal_bdev_name, sizeof(c->rekey_journal_bdev_name), "%s",
			 opts->rekey_journal_bdev_name);
		c->rekey_mib_per_second = opts->rekey_mib_per_second;
	}
	vbdev_waiting_add(&c->w);
	return 0;
}

static void crypto_base_removed(const struct vbdev *v)
{
	char error[BDEV_ERROR_MAX];
	struct bdev_crypto_opts opts;

	crypto_rekey_base_removed((const struct crypto_bdev *)v);
	if (bdev_crypto_get(&v->bdev, &opts) && crypto_wait(&opts, error) != 0) {
		log_error("bdev %s: will not come back with its base: %s", v->bdev.name, error);
	}
}

/* Whether blocks of that base can be encrypted. */
static int crypto_base_check(const struct bdev *base, char *error)
{
	uint32_t bytes = bdev_block_size(base);

	if (bdev_get_md(base)->size != 0) {
		return bdev_error(error, -EINVAL,
				  "bdev '%.150s' has %u bytes of metadata per block, which cannot be encrypted: a base "
				  "without metadata is needed",
				  bdev_name(base), bdev_get_md(base)->size);
	}
	if (bytes < XTS_UNIT_MIN || bytes > CRYPTO_BLOCK_MAX) {
		return bdev_error(error, -EINVAL, "bdev '%.150s' has blocks of %u bytes: %u to %u can be encrypted",
				  bdev_name(base), bytes, XTS_UNIT_MIN, CRYPTO_BLOCK_MAX);
	}
	if (bytes > iobuf_size(IOBUF_LARGE)) {
		return bdev_error(error, -EINVAL,
				  "bdev '%.100s' has blocks of %u bytes, which do not fit into data buffers of %u: "
				  "raise large_bufsize (iobuf_set_options)",
				  bdev_name(base), bytes, iobuf_size(IOBUF_LARGE));
	}
	return 0;
}

static void crypto_fill_in(struct crypto_bdev *c, const struct bdev_crypto_opts *opts)
{
	const uint32_t passed = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_UNMAP | 1u << BDEV_IO_FLUSH |
				1u << BDEV_IO_RESET | 1u << BDEV_IO_ABORT | 1u << BDEV_IO_VERIFY |
				1u << BDEV_IO_WRITE_UNCORRECTABLE;
	struct bdev *b = &c->v.bdev;

	/* All other types mean plain data, or another place: the layer makes reads and writes of them. */
	b->io_types &= passed;
	c->clears_reads = b->leaves_buffers;
	b->leaves_buffers = false;
	b->product_name = "crypto";
	b->module = &bdev_crypto_module;
	b->ops = &crypto_ops;
	if (opts->uuid != NULL) {
		memcpy(b->uuid, opts->uuid, sizeof(b->uuid));
	}
}

/* -ENODEV: there is no such base. */
static int crypto_make(const struct bdev_crypto_opts *opts, char *error)
{
	struct crypto_key *key = crypto_key_find(opts->key_name);

	if (key == NULL) {
		return bdev_error(error, -ENOENT, "key_name '%.150s': there is no such key (accel_crypto_key_create)",
				  opts->key_name);
	}
	struct crypto_bdev *c = aligned_alloc(64, (sizeof(*c) + 63) & ~(size_t)63);
	if (c == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	memset(c, 0, sizeof(*c));
	c->single.key = key;
	c->keys = &c->single;
	c->v.free = crypto_free;
	c->v.base_removed = crypto_base_removed;
	c->v.is_busy = crypto_rekey_is_busy;
	int rc = vbdev_open(&c->v, opts->name, opts->base_bdev_name, opts->name, error);
	if (rc != 0) {
		free(c);
		return rc;
	}
	rc = crypto_base_check(bdev_desc_bdev(c->v.base), error);
	if (rc == 0 && opts->rekey_key_name != NULL) {
		rc = crypto_rekey_prepare(c, opts, error);
	}
	if (rc != 0) {
		bdev_close(c->v.base);
		free(c);
		return rc;
	}
	crypto_key_hold(key);
	crypto_fill_in(c, opts);
	crypto_buffers_init();
	rc = vbdev_register(&c->v, error);
	if (rc == 0 && c->rekey != NULL) {
		crypto_rekey_resume(c);
	}
	return rc;
}

/* What crypto_wait() keeps. */
static int rekey_names_check(const struct bdev_crypto_opts *opts, char *error)
{
	const size_t max = sizeof(((struct crypto_waiting *)NULL)->rekey_key_name) - 1;

	if (opts->rekey_key_name != NULL &&
	    (strlen(opts->rekey_key_name) > max || strlen(opts->rekey_journal_bdev_name) > max)) {
		return bdev_error(error, -EINVAL,
				  "rekey_key_name and rekey_journal_bdev_name have %zu and %zu bytes: may have %zu at "
				  "most",
				  strlen(opts->rekey_key_name), strlen(opts->rekey_journal_bdev_name), max);
	}
	return 0;
}

int bdev_crypto_create(const struct bdev_crypto_opts *opts, char *error)
{
	int rc = bdev_check_name(opts->name, error);

	rc = rc != 0 ? rc : rekey_names_check(opts, error);
	rc = rc != 0 ? rc : vbdev_waiting_check(opts->name, opts->base_bdev_name, error);
	rc = rc != 0 ? rc : crypto_make(opts, error);
	return rc == -ENODEV ? crypto_wait(opts, error) : rc;
}

static int crypto_base_came(const struct vbdev_waiting *w, char *error)
{
	struct bdev_crypto_opts opts = {0};

	bdev_crypto_get_waiting(w, &opts);
	/* The list of those that wait lacks w meanwhile: a key that is the bdev's own must outlive a failure. */
	struct crypto_key *key = crypto_key_find(opts.key_name);
	if (key != NULL) {
		crypto_key_hold(key);
	}
	int rc = crypto_make(&opts, error);
	if (key != NULL) {
		crypto_key_put(key);
	}
	return rc;
}

static bool waits_for_journal(const struct vbdev_waiting *w, const struct bdev *b)
{
	const struct crypto_waiting *c = (const struct crypto_waiting *)w;

	return w->module == &bdev_crypto_module && c->rekey_journal_bdev_name[0] != 0 &&
	       bdev_find(c->rekey_journal_bdev_name) == b;
}

/* A bdev that has a journal has come: those whose base is there already, each once. What is made, or fails, changes the
 * list. */
static void crypto_journal_came(const struct bdev *b)
{
	const struct vbdev_waiting *w;
	unsigned n = 0;

	for (w = NULL; (w = vbdev_waiting_next(w)) != NULL;) {
		n += waits_for_journal(w, b);
	}
	for (; n > 0; n--) {
		for (w = vbdev_waiting_next(NULL); w != NULL && !waits_for_journal(w, b);) {
			w = vbdev_waiting_next(w);
		}
		const struct bdev *base = w != NULL ? bdev_find(w->base_name) : NULL;
		if (base != NULL) {
			vbdev_waiting_examine(base, &bdev_crypto_module, crypto_base_came);
		}
	}
}

static void crypto_examine(struct bdev *b)
{
	vbdev_waiting_examine(b, &bdev_crypto_module, crypto_base_came);
	crypto_journal_came(b);
	crypto_rekey_examine(b);
	crypto_former_examine(b);
}

static void crypto_fini(void)
{
	vbdev_waiting_free(&bdev_crypto_module);
	crypto_former_fini();
	crypto_key_fini();
	crypto_buffers_fini();
}

struct bdev *bdev_crypto_find(const char *name)
{
	return bdev_find_of(name, &bdev_crypto_module);
}

void bdev_crypto_delete(const char *name, bdev_delete_cb cb, void *arg)
{
	vbdev_waiting_delete(name, &bdev_crypto_module, cb, arg);
	crypto_key_sweep(); /* that of one that only waited */
}

bool bdev_crypto_get_waiting(const struct vbdev_waiting *w, struct bdev_crypto_opts *opts)
{
	static const uint8_t none[16];

	if (w->module != &bdev_crypto_module) {
		return false;
	}
	*opts = (struct bdev_crypto_opts){.name = w->name,
					  .base_bdev_name = w->base_name,
					  .key_name = ((const struct crypto_waiting *)w)->key_name};
	opts->uuid = memcmp(w->uuid, none, sizeof(none)) != 0 ? w->uuid : NULL;
	const struct crypto_waiting *c = (const struct crypto_waiting *)w;
	if (c->rekey_key_name[0] != 0) {
		opts->rekey_key_name = c->rekey_key_name;
		opts->rekey_journal_bdev_name = c->rekey_journal_bdev_name;
		opts->rekey_mib_per_second = c->rekey_mib_per_second;
	}
	return true;
}

bool bdev_crypto_get(const struct bdev *b, struct bdev_crypto_opts *opts)
{
	if (b->module != &bdev_crypto_module) {
		return false;
	}
	const struct crypto_bdev *c = (const struct crypto_bdev *)b;
	*opts = (struct bdev_crypto_opts){.name = b->name,
					  .base_bdev_name = vbdev_base_name(&c->v),
					  .key_name = crypto_key_name(c->keys->key),
					  .uuid = b->uuid};
	crypto_rekey_get(c, opts);
	return true;
}
