/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults on request, for the sweep (systest/nvmf_faults.py): varve-faults is varve linked once more, with the calls
 * named in wrapped.txt led through functions of ours (ld --wrap). A place from which such a call is made, with its
 * caller, is a site. All sites are counted in a file that the test has mapped as well; there it names the site whose
 * next call is to fail.
 *
 * The file is that of the environment variable VARVE_FAULTS. Its layout is known to systest/faults_lib.py. */
#ifndef SYSTEST_FAULTS_H
#define SYSTEST_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAULT_SITES 8192
#define FAULT_DEPTH 3
#define FAULT_NAME  40

#define FAULT_BY_NAME 2 /* is no site's key: those are odd */

/* What a fault at a change of state does; at all other sites the call fails, but that a command of the driver is not
 * answered if it is FAULT_KILL. */
enum fault_action {
	FAULT_BREAK, /* queue pairs that are not protected go into the error state */
	FAULT_KILL,  /* the process `victim` is killed */
	FAULT_DELAY, /* of rbd.c: the call is made `victim` milliseconds late */
	FAULT_LIE,   /* of rbd.c: it succeeds, with an answer that cannot be: the one with the number `victim` */
};

struct fault_site {
	_Atomic uint64_t key;     /* 0: unused */
	uint64_t pc[FAULT_DEPTH]; /* return addresses, less the address that the program was loaded at */
	uint64_t detail;          /* what else tells sites apart: a state, a kind of I/O */
	_Atomic int64_t hits, faults;
	_Atomic int64_t live; /* what was given here and not given back */
	char name[FAULT_NAME];
	char unused[16];
};

struct fault_area {
	_Atomic uint64_t key; /* the site that is to fail; 0: none; FAULT_BY_NAME: all sites of that name */
	_Atomic int64_t skip; /* after so many calls */
	_Atomic int64_t left; /* so many times */
	_Atomic int64_t fired;
	_Atomic uint32_t action;
	_Atomic int32_t victim;
	_Atomic uint32_t
		generation;        /* queue pairs that are made now belong to it; those of generation 0 are protected */
	_Atomic uint32_t overflow; /* sites that found no room */
	_Atomic int32_t effects;   /* what faults at changes of state have broken or killed */
	char by_name[12];
	struct fault_site sites[FAULT_SITES];
};

extern struct fault_area *fault_area;

/* True: this call is to fail. pc: __builtin_return_address(0) of the wrapper, frame its frame. detail: see struct
 * fault_site. */
bool fault_here(const char *name, void *pc, void *frame, uint64_t detail);
/* The same, for what gives something that can leak; *site is for fault_track(). */
bool fault_gives(const char *name, void *pc, void *frame, struct fault_site **site);
void fault_track(const void *given, struct fault_site *site);
void fault_untrack(const void *given);

#define FAULT_HERE(name, detail) fault_here(name, __builtin_return_address(0), __builtin_frame_address(0), detail)

/* A wrapper that fails by returning `bad` and setting errno. */
#define FAULTY(type, name, bad, error, params, args)                                                                   \
	type __real_##name params;                                                                                     \
	type __wrap_##name params;                                                                                     \
	type __wrap_##name params                                                                                      \
	{                                                                                                              \
		if (FAULT_HERE(#name, 0)) {                                                                            \
			errno = error;                                                                                 \
			return bad;                                                                                    \
		}                                                                                                      \
		return __real_##name args;                                                                             \
	}

/* One that gives a pointer, and the function that takes it back. */
#define FAULTY_GIVES(type, name, error, params, args)                                                                  \
	type __real_##name params;                                                                                     \
	type __wrap_##name params;                                                                                     \
	type __wrap_##name params                                                                                      \
	{                                                                                                              \
		struct fault_site *site_;                                                                              \
		if (fault_gives(#name, __builtin_return_address(0), __builtin_frame_address(0), &site_)) {             \
			errno = error;                                                                                 \
			return NULL;                                                                                   \
		}                                                                                                      \
		type given_ = __real_##name args;                                                                      \
		fault_track(given_, site_);                                                                            \
		return given_;                                                                                         \
	}

/* One that destroys. It is done in any case, so that nothing but the report is wrong. */
#define FAULTY_TAKES(name, error, type, what)                                                                          \
	int __real_##name(type what);                                                                                  \
	int __wrap_##name(type what);                                                                                  \
	int __wrap_##name(type what)                                                                                   \
	{                                                                                                              \
		fault_untrack(what);                                                                                   \
		int rc_ = __real_##name(what);                                                                         \
		if (FAULT_HERE(#name, 0)) {                                                                            \
			errno = error;                                                                                 \
			return error;                                                                                  \
		}                                                                                                      \
		return rc_;                                                                                            \
	}

#endif
