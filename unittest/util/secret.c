/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for keys: what it is like, and that nothing is left in it. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unittest/unit.h"
#include "util/secret.h"

/* The line VmFlags of the mapping that p lies in. */
static bool flags_of(const void *p, char flags[256])
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512];
	bool in = false, found = false;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		unsigned long begin, end;
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) {
			in = (uintptr_t)p >= begin && (uintptr_t)p < end;
		} else if (in && strncmp(line, "VmFlags:", 8) == 0) {
			snprintf(flags, 256, "%.255s", line);
			found = true;
		}
	}
	if (f != NULL) {
		fclose(f);
	}
	return found;
}

static void test_it_is_left_out_of_dumps_and_of_children(void)
{
	char *p = secret_alloc(100), flags[256];
	int status;

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	strcpy(p, "secret");
	CU_ASSERT_TRUE_FATAL(flags_of(p, flags));
	CU_ASSERT_PTR_NOT_NULL(strstr(flags, " dd")); /* not to be dumped */
	CU_ASSERT_PTR_NOT_NULL(strstr(flags, " wf")); /* wiped on fork */
	pid_t child = fork();
	if (child == 0) {
		_exit(p[0]);
	}
	CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
	CU_ASSERT_EQUAL(WEXITSTATUS(status), 0);
	CU_ASSERT_STRING_EQUAL(p, "secret");
	secret_free(p);
}

static void test_what_was_freed_is_overwritten(void)
{
	char *p = secret_alloc(64);

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	memset(p, 7, 64);
	secret_free(p);
	char *again = secret_alloc(33);
	CU_ASSERT_PTR_EQUAL(again, p); /* the last one freed of its size */
	for (unsigned i = 0; i < 64; i++) {
		CU_ASSERT_EQUAL(again[i], 0);
	}
	secret_free(again);
	secret_free(NULL);
}

static void test_sizes(void)
{
	void *p[9];

	for (unsigned i = 0; i < 9; i++) {
		p[i] = secret_alloc(64u << i);
		CU_ASSERT_PTR_NOT_NULL_FATAL(p[i]);
		CU_ASSERT_EQUAL((uintptr_t)p[i] % 64, 0);
		CU_ASSERT_EQUAL(secret_room(p[i]), 64u << i);
		CU_ASSERT_TRUE(secret_owns(p[i]));
		memset(p[i], 1, 64u << i);
	}
	CU_ASSERT_PTR_NULL(secret_alloc(SECRET_MAX + 1));
	CU_ASSERT_FALSE(secret_owns(&p));
	CU_ASSERT_FALSE(secret_owns(NULL));
	for (unsigned i = 0; i < 9; i++) {
		secret_free(p[i]);
	}
	void *heap = malloc(40);
	CU_ASSERT_FALSE(secret_owns(heap));
	secret_wipe_free(heap);
	secret_wipe_free(NULL);
}

static void *thread_run(void *arg)
{
	uint64_t *mine[50];

	for (unsigned round = 0; round < 200; round++) {
		for (unsigned i = 0; i < 50; i++) {
			mine[i] = secret_alloc(64u << (i % 5));
			if (mine[i] == NULL || *mine[i] != 0) {
				return arg;
			}
			*mine[i] = (uintptr_t)mine + i;
		}
		for (unsigned i = 0; i < 50; i++) {
			if (*mine[i] != (uintptr_t)mine + i) {
				return arg;
			}
			secret_free(mine[i]);
		}
	}
	return NULL;
}

static void test_two_threads_at_once(void)
{
	pthread_t t[2];
	void *failed;

	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL_FATAL(pthread_create(&t[i], NULL, thread_run, &t), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(pthread_join(t[i], &failed), 0);
		CU_ASSERT_PTR_NULL(failed);
	}
}

static void test_hex(void)
{
	static const char hex[] = "0123456789abcdefABCDEF";
	unsigned char out[2];
	char text[5] = "00aa";

	for (unsigned c = 0; c < 256; c++) {
		for (unsigned at = 0; at < 4; at++) {
			strcpy(text, "00aa");
			text[at] = (char)c;
			bool good = c != 0 && strchr(hex, (int)c) != NULL;
			CU_ASSERT_EQUAL(secret_from_hex(text, out, 2), good);
		}
	}
	CU_ASSERT_TRUE(secret_from_hex("0F5a", out, 2));
	CU_ASSERT_EQUAL(out[0], 0x0f);
	CU_ASSERT_EQUAL(out[1], 0x5a);
	CU_ASSERT_TRUE(secret_equal("ab", "ab", 2));
	CU_ASSERT_FALSE(secret_equal("ab", "bb", 2));
	CU_ASSERT_FALSE(secret_equal("ab", "aa", 2));
}

static const struct unit_test tests[] = {
	UNIT(test_it_is_left_out_of_dumps_and_of_children),
	UNIT(test_what_was_freed_is_overwritten),
	UNIT(test_sizes),
	UNIT(test_two_threads_at_once),
	UNIT(test_hex),
	UNIT_END,
};
UNIT_MAIN("util_secret", tests, NULL, NULL)
