/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys from files: which are taken, and how long they live. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#include "keyring/keyring.h"
#include "unittest/unit.h"
#include "util/secret.h"

#define SECRET "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\n"

static char folder[] = "/tmp/varve-keyring-XXXXXX";
static char path[PATH_MAX];
static char error[KEYRING_ERROR_MAX];

static int setup(void)
{
	if (mkdtemp(folder) == NULL) {
		return 1;
	}
	snprintf(path, sizeof(path), "%s/key", folder);
	return 0;
}

static int teardown(void)
{
	unlink(path);
	return rmdir(folder);
}

static void write_file(const char *text, mode_t mode)
{
	unlink(path);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	CU_ASSERT_EQUAL(fchmod(fd, mode), 0);
	close(fd);
}

static void test_a_key_is_read_and_forgotten(void)
{
	write_file(SECRET, 0600);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), -EEXIST);
	struct keyring_key *key = keyring_get("a");
	CU_ASSERT_PTR_NOT_NULL_FATAL(key);
	CU_ASSERT_STRING_EQUAL(keyring_key_path(key), path);
	CU_ASSERT_EQUAL(keyring_key_secret(key)->len, 32);
	CU_ASSERT_EQUAL(keyring_key_refs(key), 2);
	keyring_put(key);
	CU_ASSERT_EQUAL(keyring_file_remove("a"), 0);
	CU_ASSERT_EQUAL(keyring_file_remove("a"), -ENOENT);
	CU_ASSERT_PTR_NULL(keyring_get("a"));
	CU_ASSERT_PTR_NULL(keyring_next(NULL));
}

static void test_all_keys_can_be_removed_at_once(void)
{
	write_file(SECRET, 0600);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
	CU_ASSERT_EQUAL(keyring_file_add("b", path, error), 0);
	CU_ASSERT_EQUAL(keyring_file_add("c", path, error), 0);
	struct keyring_key *used = keyring_get("b"), *gone = keyring_get("c");
	CU_ASSERT_EQUAL(keyring_file_remove("c"), 0);
	keyring_clear();
	CU_ASSERT_PTR_NULL(keyring_get("a"));
	CU_ASSERT_PTR_NULL(keyring_get("b"));
	CU_ASSERT(keyring_key_removed(used) && keyring_key_refs(used) == 1);
	CU_ASSERT_EQUAL(keyring_key_refs(gone), 1);
	keyring_put(used);
	keyring_put(gone);
	CU_ASSERT_PTR_NULL(keyring_next(NULL));
	keyring_clear();
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
	keyring_clear();
	CU_ASSERT_PTR_NULL(keyring_next(NULL));
}

/* A process that has to be again what it was does not depend on what has become of the files. */
static void test_keys_that_were_set_aside_come_back_without_their_files(void)
{
	write_file(SECRET, 0600);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
	CU_ASSERT_EQUAL(keyring_file_add("b", path, error), 0);
	CU_ASSERT_EQUAL(keyring_file_add("c", path, error), 0);
	keyring_set_aside();
	CU_ASSERT_PTR_NULL(keyring_get("a"));
	unlink(path);
	CU_ASSERT_EQUAL(keyring_file_add("b", path, error), 0);
	CU_ASSERT_EQUAL(keyring_file_add("b", path, error), -EEXIST);
	CU_ASSERT_EQUAL(keyring_file_add("a", "/none", error), -ENOENT); /* that is another one */
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
	struct keyring_key *key = keyring_get("a");
	CU_ASSERT_PTR_NOT_NULL_FATAL(key);
	CU_ASSERT_EQUAL(keyring_key_secret(key)->bytes[0], 0x89);
	CU_ASSERT_EQUAL(keyring_key_refs(key), 2);
	keyring_put(key);
	keyring_forget_set_aside();
	CU_ASSERT_EQUAL(keyring_file_add("c", path, error), -ENOENT);
	CU_ASSERT_PTR_NULL(keyring_next(keyring_next(keyring_next(NULL))));
	keyring_set_aside();
	keyring_clear();
	CU_ASSERT_PTR_NULL(keyring_next(NULL));
}

static void test_a_removed_key_in_use_comes_back_too(void)
{
	write_file(SECRET, 0600);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
	struct keyring_key *first = keyring_get("a");
	CU_ASSERT_EQUAL(keyring_file_remove("a"), 0);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
	struct keyring_key *last = keyring_get("a");
	CU_ASSERT_EQUAL(keyring_file_remove("a"), 0);
	CU_ASSERT(!keyring_key_is_saved(first) && keyring_key_is_saved(last));
	keyring_keep_removed();
	keyring_keep_removed();
	CU_ASSERT(keyring_key_refs(first) == 1 && keyring_key_refs(last) == 2); /* what is saved, once */
	keyring_put(first);
	keyring_put(last);
	keyring_set_aside();
	unlink(path);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
	struct keyring_key *key = keyring_get("a");
	CU_ASSERT_PTR_EQUAL_FATAL(key, last);
	CU_ASSERT(!keyring_key_removed(key) && keyring_key_refs(key) == 2);
	keyring_put(key);
	keyring_clear();
	CU_ASSERT_PTR_NULL(keyring_next(NULL));
}

#define DATA "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void test_a_key_that_is_not_the_expected_one_is_not_taken(void)
{
	static const char *const texts[] = {SECRET, "DHHC-1:01:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", DATA,
					    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeefe"};
	uint8_t salt[KEYRING_SALT] = {1}, digest[KEYRING_DIGEST], other[KEYRING_DIGEST];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		write_file(texts[i], 0600);
		CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
		CU_ASSERT_EQUAL(keyring_key_digest(keyring_next(NULL), salt, digest), 0);
		salt[0]++;
		CU_ASSERT_EQUAL(keyring_key_digest(keyring_next(NULL), salt, other), 0);
		salt[0]--;
		CU_ASSERT_NOT_EQUAL(memcmp(digest, other, sizeof(digest)), 0);
		keyring_clear();
		CU_ASSERT_EQUAL(keyring_expect("a", salt, digest), 0);
		CU_ASSERT_EQUAL(keyring_expect("a", salt, other), 0); /* the first one counts */
		for (size_t j = 0; j < sizeof(texts) / sizeof(texts[0]); j++) {
			write_file(texts[j], 0600);
			CU_ASSERT_EQUAL(keyring_file_add("a", path, error), i == j ? 0 : -ESTALE);
			CU_ASSERT_EQUAL(keyring_file_add("b", path, error), 0); /* nothing is expected */
			(void)keyring_file_remove("a");
			CU_ASSERT_EQUAL(keyring_file_remove("b"), 0);
		}
		keyring_forget_set_aside();
		CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
		keyring_clear();
	}
	CU_ASSERT_EQUAL(keyring_expect("", salt, digest), -EINVAL);
	CU_ASSERT_PTR_NULL(keyring_next(NULL));
}

static void test_a_key_whose_file_has_changed_is_found(void)
{
	static const struct {
		const char *text, *other;
	} cases[] = {
		{SECRET, "DHHC-1:01:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"},
		{SECRET, "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"},
		{"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
		 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeefe"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		write_file(cases[i].text, 0600);
		CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
		struct keyring_key *key = keyring_next(NULL);
		CU_ASSERT_EQUAL(keyring_key_check_file(key, error), 0);
		write_file(cases[i].other, 0600);
		CU_ASSERT_EQUAL(keyring_key_check_file(key, error), -ESTALE);
		write_file("DHHC-1", 0600);
		CU_ASSERT_EQUAL(keyring_key_check_file(key, error), -EINVAL);
		write_file(cases[i].text, 0644);
		CU_ASSERT_EQUAL(keyring_key_check_file(key, error), -EPERM);
		unlink(path);
		CU_ASSERT_EQUAL(keyring_key_check_file(key, error), -ENOENT);
		keyring_clear();
	}
}

static void test_a_removed_key_stays_with_who_uses_it_and_its_name_is_free(void)
{
	write_file(SECRET, 0400);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
	struct keyring_key *old = keyring_get("a");
	CU_ASSERT_EQUAL(keyring_file_remove("a"), 0);
	CU_ASSERT(keyring_key_removed(old));
	CU_ASSERT_EQUAL(keyring_key_secret(old)->bytes[0], 0x89);
	CU_ASSERT_PTR_EQUAL(keyring_next(NULL), old);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
	struct keyring_key *new = keyring_get("a");
	CU_ASSERT(new != old && !keyring_key_removed(new));
	keyring_put(old);
	keyring_put(new);
	CU_ASSERT_PTR_EQUAL(keyring_next(NULL), new);
	CU_ASSERT_EQUAL(keyring_file_remove("a"), 0);
}

static void test_files_that_others_can_reach_are_refused(void)
{
	static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0777};

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		write_file(SECRET, modes[i]);
		CU_ASSERT_EQUAL(keyring_file_add("a", path, error), -EPERM);
		CU_ASSERT_PTR_NOT_NULL(strstr(error, "mode"));
	}
}

/* Whoever they belong to can read them. Only root can give a file away, and only root reads one of mode 0600 that
 * belongs to another: for anybody else there is nothing to test. */
static void test_files_of_other_users_are_refused(void)
{
	write_file(SECRET, 0600);
	if (geteuid() == 0) {
		CU_ASSERT_EQUAL(chown(path, 1, (gid_t)-1), 0);
		CU_ASSERT_EQUAL(keyring_file_add("a", path, error), -EPERM);
		CU_ASSERT_PTR_NOT_NULL(strstr(error, "belongs to user 1"));
		CU_ASSERT_EQUAL(chown(path, 0, (gid_t)-1), 0);
	}
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), 0);
	CU_ASSERT_EQUAL(keyring_file_remove("a"), 0);
}

static void test_what_is_no_key_file_is_refused(void)
{
	CU_ASSERT_EQUAL(keyring_file_add("a", folder, error), -EINVAL);
	CU_ASSERT_EQUAL(keyring_file_add("a", "/nonexistent/key", error), -ENOENT);
	CU_ASSERT_EQUAL(keyring_file_add("a", "key", error), -EINVAL);
	CU_ASSERT_EQUAL(keyring_file_add("a", "", error), -EINVAL);
	write_file("", 0600);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), -EINVAL);
	write_file("DHHC-1:00:ib6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", 0600);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), -EINVAL);
	CU_ASSERT_PTR_NULL(strstr(error, "ib6z"));
	unlink(path);
	CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
	CU_ASSERT_EQUAL(keyring_file_add("a", path, error), -EINVAL);
	CU_ASSERT_PTR_NULL(keyring_next(NULL));
}

static void test_names(void)
{
	char name[KEYRING_NAME_MAX + 1];

	write_file(SECRET, 0600);
	memset(name, 'k', sizeof(name));
	name[KEYRING_NAME_MAX] = 0;
	CU_ASSERT_EQUAL(keyring_file_add(name, path, error), -EINVAL);
	CU_ASSERT_EQUAL(keyring_file_add("", path, error), -EINVAL);
	CU_ASSERT_EQUAL(keyring_file_add("a b", path, error), -EINVAL);
	name[KEYRING_NAME_MAX - 1] = 0;
	CU_ASSERT_EQUAL(keyring_file_add(name, path, error), 0);
	CU_ASSERT_EQUAL(keyring_file_remove(name), 0);
}

#define PSK "NVMeTLSkey-1:01:Aw4ZJC86RVBbZnF8h5KdqLO+ydTf6vUACxYhLDdCTVhhy7Ks:\n"

static void test_a_key_for_tls_is_of_another_kind(void)
{
	const char *reason = NULL;

	write_file(PSK, 0600);
	CU_ASSERT_EQUAL(keyring_file_add("p", path, error), 0);
	write_file(SECRET, 0600);
	CU_ASSERT_EQUAL(keyring_file_add("s", path, error), 0);
	struct keyring_key *p = keyring_get_kind("p", KEYRING_PSK, &reason);
	struct keyring_key *s = keyring_get_kind("s", KEYRING_DHCHAP, &reason);
	CU_ASSERT_FATAL(p != NULL && s != NULL);
	CU_ASSERT_EQUAL(keyring_key_kind(p), KEYRING_PSK);
	CU_ASSERT_EQUAL(keyring_key_kind(s), KEYRING_DHCHAP);
	CU_ASSERT_EQUAL(keyring_key_psk(p)->len, 32);
	CU_ASSERT_EQUAL(keyring_key_psk(p)->bytes[1], 14);
	CU_ASSERT_PTR_NULL(keyring_get_kind("p", KEYRING_DHCHAP, &reason));
	CU_ASSERT_PTR_NOT_NULL(strstr(reason, "for TLS (NVMeTLSkey-1), not"));
	CU_ASSERT_PTR_NULL(keyring_get_kind("s", KEYRING_PSK, &reason));
	CU_ASSERT_PTR_NOT_NULL(strstr(reason, "for DH-HMAC-CHAP (DHHC-1), not"));
	CU_ASSERT_PTR_NULL(keyring_get_kind("q", KEYRING_PSK, &reason));
	CU_ASSERT_STRING_EQUAL(reason, "the keyring has no such key");
	keyring_put(p);
	keyring_put(s);
	CU_ASSERT_EQUAL(keyring_file_remove("p"), 0);
	CU_ASSERT_EQUAL(keyring_file_remove("s"), 0);
}

#define DATA_KEY "000102030405060708090a0b0c0d0e0fF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF"

static void test_a_key_for_data_is_of_a_third_kind(void)
{
	static const char *const wrong[] = {
		"0001020304050607", DATA_KEY "0", DATA_KEY DATA_KEY DATA_KEY, DATA_KEY " x", DATA_KEY "\n" DATA_KEY,
	};
	const char *reason = NULL;
	size_t bytes;

	write_file("\n " DATA_KEY "\r\n", 0600);
	CU_ASSERT_EQUAL(keyring_file_add("d", path, error), 0);
	struct keyring_key *d = keyring_get_kind("d", KEYRING_DATA, &reason);
	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	CU_ASSERT_EQUAL(keyring_key_data(d, &bytes)[31], 0xff);
	CU_ASSERT_EQUAL(bytes, 32);
	CU_ASSERT_TRUE(secret_owns(keyring_key_data(d, &bytes)));
	CU_ASSERT_PTR_NULL(keyring_get_kind("d", KEYRING_PSK, &reason));
	CU_ASSERT_PTR_NOT_NULL(strstr(reason, "for data (hexadecimal), not for TLS"));
	CU_ASSERT_PTR_NULL(keyring_get_kind("d", KEYRING_DHCHAP, &reason));
	CU_ASSERT_PTR_NOT_NULL(strstr(reason, "for data (hexadecimal), not for DH"));
	keyring_put(d);
	CU_ASSERT_EQUAL(keyring_file_remove("d"), 0);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		write_file(wrong[i], 0600);
		CU_ASSERT_EQUAL(keyring_file_add("d", path, error), -EINVAL);
		CU_ASSERT_PTR_NOT_NULL(strstr(error, "is not a key for data"));
		CU_ASSERT_PTR_NULL(strstr(error, "0001"));
	}
	write_file(DATA_KEY DATA_KEY, 0600);
	CU_ASSERT_EQUAL(keyring_file_add("d", path, error), 0);
	d = keyring_get_kind("d", KEYRING_DATA, &reason);
	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	CU_ASSERT_EQUAL(keyring_key_data(d, &bytes)[33], 1);
	CU_ASSERT_EQUAL(bytes, 64);
	CU_ASSERT_EQUAL(keyring_file_remove("d"), 0);
	keyring_put(d);
}

static void test_a_bad_key_for_tls_is_refused(void)
{
	write_file("NVMeTLSkey-1:01:BBBZJC86RVBbZnF8h5KdqLO+ydTf6vUACxYhLDdCTVhGNCJd:", 0600);
	CU_ASSERT_EQUAL(keyring_file_add("p", path, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "not a TLS key: its checksum"));
	CU_ASSERT_PTR_NULL(strstr(error, "BBBZ"));
	write_file(PSK, 0640);
	CU_ASSERT_EQUAL(keyring_file_add("p", path, error), -EPERM);
	CU_ASSERT_PTR_NULL(keyring_next(NULL));
}

static const struct unit_test tests[] = {
	UNIT(test_a_key_is_read_and_forgotten),
	UNIT(test_all_keys_can_be_removed_at_once),
	UNIT(test_keys_that_were_set_aside_come_back_without_their_files),
	UNIT(test_a_removed_key_in_use_comes_back_too),
	UNIT(test_a_key_that_is_not_the_expected_one_is_not_taken),
	UNIT(test_a_key_whose_file_has_changed_is_found),
	UNIT(test_a_removed_key_stays_with_who_uses_it_and_its_name_is_free),
	UNIT(test_files_that_others_can_reach_are_refused),
	UNIT(test_files_of_other_users_are_refused),
	UNIT(test_what_is_no_key_file_is_refused),
	UNIT(test_a_key_for_tls_is_of_another_kind),
	UNIT(test_a_key_for_data_is_of_a_third_kind),
	UNIT(test_a_bad_key_for_tls_is_refused),
	UNIT(test_names),
	UNIT_END,
};
UNIT_MAIN("keyring", tests, setup, teardown)
