/* SPDX-License-Identifier: BSD-3-Clause */
/* One owner for what is stored: a file or block device is opened for one bdev only, in this process and between
 * processes, unless all of its users have said that they share it. What counts is the inode or the device, never the
 * name: hard and symbolic links, relative paths, bind mounts and second device nodes lead to the same claim.
 *
 * A claim is an open-file-description lock (fcntl(2), F_OFD_SETLK): a write lock for a use that excludes all others, a
 * read lock for a shared one. On a file it covers the whole file. On a block device it lies on the node of the whole
 * disk, which partitions share, and covers the bytes of the partition; a use that excludes others also opens the
 * device with O_EXCL, which keeps the kernel's file systems, swap, dm and md away. The kernel releases the lock when
 * the last io_uring request that uses the file has ended, which may be after the process has. Control thread. */
#ifndef BDEV_URING_CLAIM_H
#define BDEV_URING_CLAIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/stat.h>

struct uring_claim {
	int fd;           /* for I/O; -1: closed */
	int lock_fd;      /* the disk's node; -1: fd has the lock, or there is none */
	const char *name; /* of the bdev; lives as long as the claim */
	bool shared;
	bool standby; /* the file is open, and not locked */
	dev_t dev;    /* of the file that has the lock */
	ino_t ino;
	uint64_t first, last; /* bytes that are locked */
	LIST_ENTRY(uring_claim) link;
};

struct uring_claim_opts {
	const char *name;     /* of the bdev */
	const char *filename; /* a regular file or a block device */
	bool readonly;        /* open it read-only, and share it with others that share it */
	bool shared;          /* share it with others that share it, although it is written */
	bool standby;         /* a regular file: open it without a lock; nothing may be read or written */
};

/* Opens and locks the file: c->fd. 0; or a negative errno, and error (BDEV_ERROR_MAX bytes) says why, with the holder
 * as far as it can be known. -EBUSY: somebody else has it. */
int uring_claim_open(struct uring_claim *c, const struct uring_claim_opts *o, char *error);
/* Locks a file that was opened as a standby, for this use alone: as uring_claim_open(). filename: for the error. */
int uring_claim_take(struct uring_claim *c, const char *filename, char *error);
/* Makes it a standby again. */
void uring_claim_give(struct uring_claim *c);
/* Closes what is open. For a claim of zeroes whose fd is -1, too. */
void uring_claim_close(struct uring_claim *c);

/* --- Who has it: holder.c --- */

/* What st is used for by the kernel: "mounted at /srv", "swap", "part of dm-0", "the file behind /dev/loop0". False:
 * nothing is known. st: of a file or block device; with the device, its partitions and its whole disk count. */
bool uring_holder_in_kernel(const struct stat *st, char *use, size_t use_bytes);
/* The whole disk of a block device (itself, if it is not a partition), and the bytes of the disk that it covers. */
dev_t uring_holder_disk(dev_t rdev, uint64_t *first, uint64_t *last);

/* What is behind the loop device `disk`: a file (st_dev and st_ino are set) or a block device (st_rdev is). False: it
 * is no loop device, or has nothing behind it. */
bool uring_holder_loop_file(dev_t disk, struct stat *file);

/* Another process with an open-file-description lock on the file dev, ino that conflicts with c's: its pid, and in
 * command (16 bytes) its name; or 0. Processes of other users cannot be seen without privileges. */
int uring_holder_find_process(const struct uring_claim *c, char *command);
/* The name of the bdev for which process pid has locked what c wants, from the note that uring_holder_note_write() made
 * there. */
bool uring_holder_find_bdev(int pid, const struct uring_claim *c, char *name, size_t name_bytes);
LIST_HEAD(uring_claims, uring_claim);
/* Writes which bdev has which lock where other processes find it: a memory file among this process's descriptors, which
 * disappears with the process. */
void uring_holder_note_write(const struct uring_claims *claims);

/* Whether a and b cannot be held at the same time. */
bool uring_claims_conflict(const struct uring_claim *a, const struct uring_claim *b);

#endif
