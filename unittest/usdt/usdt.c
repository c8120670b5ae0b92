/* SPDX-License-Identifier: BSD-3-Clause */
/* Probes while nobody listens and while somebody does; and what tracers find in the executable. */
#include <elf.h>
#include <stdbool.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unittest/unit.h"
#include "usdt/reference.h"
#include "usdt/usdt.h"

static int evaluated;

static uint64_t evaluate(void)
{
	return (uint64_t)++evaluated;
}

static void test_probe_without_a_tracer_evaluates_nothing(void)
{
	evaluated = 0;
	CU_ASSERT_FALSE(USDT_ENABLED(test_args));
	USDT(test_args, "x", 1, evaluate(), NULL);
	CU_ASSERT_EQUAL(evaluated, 0);
}

static void test_probe_with_a_tracer_evaluates_once(void)
{
#ifndef VARVE_USDT
	UNIT_SKIP("built without <sys/sdt.h>");
#else
	evaluated = 0;
	varve_test_args_semaphore = 1;
	USDT(test_args, "x", 1, evaluate(), NULL);
	CU_ASSERT_EQUAL(evaluated, 1);
	CU_ASSERT_FALSE(USDT_ENABLED(test_none));
	varve_test_args_semaphore = 0;
#endif
}

#ifdef VARVE_USDT
struct found {
	const char *name;
	unsigned num_args; /* the TSC included */
	unsigned sites;
};

static struct found probes[] = {
#define PLUS_ONE(...)                 +1
#define USDT_PROBE(name_, help_, ...) {#name_, 1 FOR_ARGS(PLUS_ONE, , ##__VA_ARGS__), 0},
#include "usdt/probes.def"
};
enum { NUM_PROBES = sizeof(probes) / sizeof(probes[0]) };

/* An SDT note: three addresses (of the probe, of .stapsdt.base, of the semaphore), then provider, name, arguments. */
static void see_note(const uint8_t *desc)
{
	uint64_t address[3];
	const char *provider = (const char *)desc + sizeof(address);
	const char *name = provider + strlen(provider) + 1;
	const char *args = name + strlen(name) + 1;
	unsigned num_args = args[0] != '\0';

	memcpy(address, desc, sizeof(address));
	CU_ASSERT_STRING_EQUAL(provider, "varve");
	CU_ASSERT_NOT_EQUAL(address[0], 0);
	CU_ASSERT_NOT_EQUAL(address[2], 0); /* without a semaphore it would never fire */
	for (; *args != '\0'; args++) {
		num_args += *args == ' ';
	}
	for (unsigned i = 0; i < NUM_PROBES; i++) {
		if (strcmp(probes[i].name, name) == 0) {
			probes[i].sites++;
			CU_ASSERT_EQUAL(num_args, probes[i].num_args);
		}
	}
}

static void see_section(const uint8_t *p, size_t size)
{
	for (const uint8_t *end = p + size; p < end;) {
		const ElfW(Nhdr) *n = (const void *)p;
		const uint8_t *desc = p + sizeof(*n) + ((n->n_namesz + 3) & ~3u);
		if (n->n_type == 3 && memcmp(p + sizeof(*n), "stapsdt", 8) == 0) {
			see_note(desc);
		}
		p = desc + ((n->n_descsz + 3) & ~3u);
	}
}
#endif

static void test_each_probe_is_one_place_with_a_semaphore_and_its_arguments(void)
{
#ifndef VARVE_USDT
	UNIT_SKIP("built without <sys/sdt.h>");
#else
	struct stat st;
	int fd = open("/proc/self/exe", O_RDONLY);
	CU_ASSERT_FATAL(fd >= 0 && fstat(fd, &st) == 0);
	const uint8_t *elf = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	CU_ASSERT_FATAL(elf != MAP_FAILED);
	const ElfW(Ehdr) *eh = (const void *)elf;
	const ElfW(Shdr) *sh = (const void *)(elf + eh->e_shoff);
	for (unsigned i = 0; i < eh->e_shnum; i++) {
		if (strcmp((const char *)elf + sh[eh->e_shstrndx].sh_offset + sh[i].sh_name, ".note.stapsdt") == 0) {
			see_section(elf + sh[i].sh_offset, sh[i].sh_size);
		}
	}
	for (unsigned i = 0; i < NUM_PROBES; i++) {
		CU_ASSERT_EQUAL(probes[i].sites, 1);
	}
	munmap((void *)(uintptr_t)elf, (size_t)st.st_size);
	close(fd);
#endif
}

static char *read_all(FILE *f, size_t *size)
{
	char *text = calloc(1, 1 << 20);

	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	*size = fread(text, 1, (1 << 20) - 1, f);
	return text;
}

static void test_reference_page_is_up_to_date(void)
{
	glob_t scripts;
	size_t size, expected_size;
	FILE *file = fopen(SOURCE_DIR "/doc/probes.md", "r"), *expected_file = tmpfile();

	CU_ASSERT_PTR_NOT_NULL_FATAL(expected_file);
	if (file == NULL || glob(SOURCE_DIR "/usdt/bt/*.bt", 0, NULL, &scripts) != 0) {
		UNIT_SKIP("the source tree is not here");
	}
	usdt_print_reference(expected_file, scripts.gl_pathv, (int)scripts.gl_pathc);
	rewind(expected_file);
	char *text = read_all(file, &size), *expected = read_all(expected_file, &expected_size);
	bool same = size == expected_size && memcmp(text, expected, size) == 0;
	CU_ASSERT_TRUE(same);
	if (!same) {
		printf("doc/probes.md is out of date: build/usdt/probes-page usdt/bt/*.bt > doc/probes.md\n");
	}
	globfree(&scripts);
	free(text);
	free(expected);
	fclose(file);
	fclose(expected_file);
}

static const struct unit_test tests[] = {
	UNIT(test_probe_without_a_tracer_evaluates_nothing),
	UNIT(test_probe_with_a_tracer_evaluates_once),
	UNIT(test_each_probe_is_one_place_with_a_semaphore_and_its_arguments),
	UNIT(test_reference_page_is_up_to_date),
	UNIT_END,
};
UNIT_MAIN("usdt", tests, NULL, NULL)
