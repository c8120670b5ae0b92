/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/build_id.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static char text[2 * 32 + 1];

static size_t note_align(size_t n)
{
	return (n + 3) & ~(size_t)3;
}

/* One PT_NOTE segment: name and content follow each header, padded to four bytes. */
static int find_in_notes(const uint8_t *p, size_t size)
{
	while (size >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *n = (const ElfW(Nhdr) *)(const void *)p;
		size_t name = sizeof(*n), desc = name + note_align(n->n_namesz), next = desc + note_align(n->n_descsz);
		if (next > size) {
			return 0;
		}
		if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && memcmp(p + name, "GNU", 4) == 0) {
			for (size_t i = 0; i < n->n_descsz && i < (sizeof(text) - 1) / 2; i++) {
				snprintf(&text[2 * i], 3, "%02x", p[desc + i]);
			}
			return 1;
		}
		p += next;
		size -= next;
	}
	return 0;
}

/* The executable comes first; stop after it. */
static int build_id_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		if (h->p_type == PT_NOTE &&
		    find_in_notes((const uint8_t *)(uintptr_t)(info->dlpi_addr + h->p_vaddr), h->p_memsz)) {
			break;
		}
	}
	return 1;
}

__attribute__((constructor)) static void build_id_find(void)
{
	dl_iterate_phdr(build_id_visit, NULL);
}

const char *build_id(void)
{
	return text;
}
