/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/signal_text.h"

#include <signal.h>
#include <stddef.h>

static const struct {
	int number;
	const char *name;
} names[] = {
	{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"},   {SIGILL, "SIGILL"},
	{SIGFPE, "SIGFPE"},   {SIGABRT, "SIGABRT"}, {SIGQUIT, "SIGQUIT"},
};

static const struct {
	int number, code;
	const char *why;
} faults[] = {
	{SIGSEGV, SEGV_MAPERR, "not mapped"},
	{SIGSEGV, SEGV_ACCERR, "the mapping does not allow this access"},
	{SIGSEGV, SI_KERNEL, "a general protection fault, such as an address that is not canonical"},
	{SIGBUS, BUS_ADRALN, "not aligned"},
	{SIGBUS, BUS_ADRERR, "no memory behind it, such as beyond the end of its file"},
	{SIGBUS, BUS_OBJERR, "a hardware error"},
	{SIGBUS, BUS_MCEERR_AR, "the memory has failed"},
	{SIGBUS, BUS_MCEERR_AO, "memory has failed that was not in use"},
	{SIGFPE, FPE_INTDIV, "an integer division"},
	{SIGFPE, FPE_INTOVF, "an integer overflow"},
	{SIGFPE, FPE_FLTDIV, "a floating-point division by zero"},
	{SIGFPE, FPE_FLTOVF, "a floating-point overflow"},
	{SIGFPE, FPE_FLTINV, "an invalid floating-point operation"},
	{SIGILL, ILL_ILLOPC, "an illegal opcode"},
	{SIGILL, ILL_ILLOPN, "an illegal operand"},
	{SIGILL, ILL_PRVOPC, "a privileged opcode"},
};

const char *signal_text_name(int number)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].number == number) {
			return names[i].name;
		}
	}
	return NULL;
}

const char *signal_text_fault(int number, int code)
{
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		if (faults[i].number == number && faults[i].code == code) {
			return faults[i].why;
		}
	}
	return NULL;
}

bool signal_text_is_sent(int code)
{
	return code == SI_USER || code == SI_QUEUE || code == SI_TKILL;
}

bool signal_text_has_address(int number, int code)
{
	return code > 0 && code != SI_KERNEL &&
	       (number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE);
}
