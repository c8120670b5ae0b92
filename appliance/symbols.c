/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
	uintptr_t base, end; /* where the executable is in memory */
	const ElfW(Sym) * symbols;
	size_t n_symbols;
	const char *names;
	size_t names_size;
} table;

static int symbols_find_executable(struct dl_phdr_info *info, size_t size, void *arg)
{
	table.base = info->dlpi_addr;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
		if (info->dlpi_phdr[i].p_type == PT_LOAD && end > table.end) {
			table.end = end;
		}
	}
	return 1; /* the executable comes first */
}

/* Offsets in the file are checked although the file is our own: it may be damaged. */
static bool symbols_is_in_file(uint64_t offset, uint64_t len, size_t size)
{
	return offset <= size && len <= size - offset;
}

static void symbols_find_tables(const uint8_t *file, size_t size)
{
	const ElfW(Ehdr) *header = (const void *)file;

	if (size < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    !symbols_is_in_file(header->e_shoff, (uint64_t)header->e_shnum * sizeof(ElfW(Shdr)), size)) {
		return;
	}
	const ElfW(Shdr) *sections = (const void *)(file + header->e_shoff);
	for (unsigned i = 0; i < header->e_shnum; i++) {
		const ElfW(Shdr) *s = &sections[i];
		if (s->sh_type != SHT_SYMTAB || s->sh_link >= header->e_shnum) {
			continue;
		}
		const ElfW(Shdr) *names = &sections[s->sh_link];
		if (!symbols_is_in_file(s->sh_offset, s->sh_size, size) ||
		    !symbols_is_in_file(names->sh_offset, names->sh_size, size) || names->sh_size == 0 ||
		    file[names->sh_offset + names->sh_size - 1] != '\0') {
			continue;
		}
		table.symbols = (const void *)(file + s->sh_offset);
		table.n_symbols = s->sh_size / sizeof(ElfW(Sym));
		table.names = (const char *)file + names->sh_offset;
		table.names_size = names->sh_size;
	}
}

void symbols_load(void)
{
	struct stat st;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	dl_iterate_phdr(symbols_find_executable, NULL);
	if (fd < 0) {
		return;
	}
	if (fstat(fd, &st) == 0 && st.st_size > 0) {
		void *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (file != MAP_FAILED) {
			symbols_find_tables(file, (size_t)st.st_size);
		}
	}
	close(fd);
}

uint64_t symbols_file_address(const void *address)
{
	uintptr_t a = (uintptr_t)address;

	return a > table.base && a < table.end ? a - table.base : 0;
}

const char *symbols_find(const void *address, uint64_t *offset)
{
	uint64_t at = symbols_file_address(address);

	for (size_t i = 0; at != 0 && i < table.n_symbols; i++) {
		const ElfW(Sym) *s = &table.symbols[i];
		if (ELF64_ST_TYPE(s->st_info) == STT_FUNC && at >= s->st_value && at - s->st_value < s->st_size &&
		    s->st_name < table.names_size) {
			*offset = at - s->st_value;
			return table.names + s->st_name;
		}
	}
	return NULL;
}
