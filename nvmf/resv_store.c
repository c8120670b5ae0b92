/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads and writes the file of a namespace's reservation. A new text replaces the old one only after it is completely
 * on the disk. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "nvmf/internal.h"
#include "thread/worker.h"

/* The folder of a file. */
static void resv_path_folder(const char *path, char folder[PATH_MAX])
{
	char copy[PATH_MAX];

	snprintf(copy, sizeof(copy), "%s", path);
	snprintf(folder, PATH_MAX, "%s", dirname(copy));
}

/* ---- Names ---- */

/* The suffix of the temporary file that a new text is written to, and of the file that carries the lock. */
static const char new_suffix[] = ".new", lock_suffix[] = ".lock";

/* The canonical path of a file, the same for all paths that lead to it through links and dots in its folder. If the
 * folder does not exist: the path as it is given. */
static void resv_path_real(const char *path, char name[PATH_MAX])
{
	const char *base = strrchr(path, '/') + 1;
	char folder[PATH_MAX], real[PATH_MAX];

	resv_path_folder(path, folder);
	const char *in = realpath(folder, real) != NULL ? real : folder;
	int len = snprintf(name, PATH_MAX, "%s/%s", strcmp(in, "/") == 0 ? "" : in, base);
	if (len >= PATH_MAX) { /* no file has such a name */
		snprintf(name, PATH_MAX, "%s", path);
	}
}

/* Whether b is the temporary file of a, or its lock. */
static bool resv_path_is_aid_of(const char *a, const char *b)
{
	size_t len = strlen(a);

	return strncmp(a, b, len) == 0 && (strcmp(b + len, new_suffix) == 0 || strcmp(b + len, lock_suffix) == 0);
}

bool nvmf_resv_files_clash(const char *path, const char *other)
{
	char a[PATH_MAX], b[PATH_MAX];

	resv_path_real(path, a);
	resv_path_real(other, b);
	return strcmp(a, b) == 0 || resv_path_is_aid_of(a, b) || resv_path_is_aid_of(b, a);
}

/* ---- Locks between processes: on a file of its own, because a new text replaces the other one ---- */

struct resv_lock {
	unsigned refs; /* of the namespace, and of each save under way */
	int fd;
	TAILQ_ENTRY(resv_lock) link;
	char path[];
};

static TAILQ_HEAD(, resv_lock) locks = TAILQ_HEAD_INITIALIZER(locks); /* control thread */

static struct resv_lock *resv_lock_find(const char *path)
{
	struct resv_lock *l;

	TAILQ_FOREACH (l, &locks, link) {
		if (strcmp(l->path, path) == 0) {
			break;
		}
	}
	return l;
}

static void resv_lock_path(const char *path, char name[NVMF_RESV_PATH_MAX + sizeof(lock_suffix)])
{
	snprintf(name, NVMF_RESV_PATH_MAX + sizeof(lock_suffix), "%s%s", path, lock_suffix);
}

/* The locked file, or a negative errno; -ESTALE: its last holder has just removed it; -EBUSY: somebody has locked it.
 */
static int resv_lock_open(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct stat st;

	if (fd < 0) {
		return -errno;
	}
	int rc = fcntl(fd, F_OFD_SETLK, &whole) != 0 || fstat(fd, &st) != 0 ? -errno : st.st_nlink == 0 ? -ESTALE : 0;
	rc = rc == -EAGAIN || rc == -EACCES ? -EBUSY : rc;
	if (rc != 0) {
		close(fd);
	}
	return rc != 0 ? rc : fd;
}

static int resv_lock_take(const char *path)
{
	char name[NVMF_RESV_PATH_MAX + sizeof(lock_suffix)];
	int fd;

	resv_lock_path(path, name);
	while ((fd = resv_lock_open(name)) == -ESTALE) {
	}
	if (fd == -EBUSY) {
		log_error("ptpl_file %s is in use by another process, which has locked %s", path, name);
	} else if (fd < 0) {
		log_error("ptpl_file %s: %s cannot be locked: %s; if a process of another user has left it behind, "
			  "remove it",
			  path, name, strerror(-fd));
	}
	return fd;
}

int nvmf_resv_lock(const char *path)
{
	struct resv_lock *l = resv_lock_find(path);
	size_t bytes = strlen(path) + 1;

	if (l != NULL) { /* a save for a removed namespace has it */
		l->refs++;
		return 0;
	}
	l = malloc(sizeof(*l) + bytes);
	if (l == NULL) {
		return -ENOMEM;
	}
	memcpy(l->path, path, bytes);
	l->refs = 1;
	l->fd = resv_lock_take(path);
	if (l->fd < 0) {
		int rc = l->fd;
		free(l);
		return rc;
	}
	TAILQ_INSERT_TAIL(&locks, l, link);
	return 0;
}

/* Unless somebody has removed the name meanwhile, and another process has made it anew. */
static void resv_lock_remove_file(const struct resv_lock *l)
{
	char name[NVMF_RESV_PATH_MAX + sizeof(lock_suffix)];
	struct stat ours, there;

	resv_lock_path(l->path, name);
	if (fstat(l->fd, &ours) == 0 && lstat(name, &there) == 0 && ours.st_dev == there.st_dev &&
	    ours.st_ino == there.st_ino) {
		unlink(name);
	}
}

static void resv_lock_put(struct resv_lock *l)
{
	if (l != NULL && --l->refs == 0) {
		TAILQ_REMOVE(&locks, l, link);
		resv_lock_remove_file(l);
		close(l->fd);
		free(l);
	}
}

void nvmf_resv_unlock(const char *path)
{
	resv_lock_put(resv_lock_find(path));
}

/* ---- Reading: once, when the namespace is added ---- */

/* Reads the text, at most NVMF_RESV_FILE_MAX + 1 bytes. Returns how many, or a negative errno. Does not block if the
 * path names something other than a file. */
static ssize_t resv_read_text(const char *path, char *text)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t len = 0, n;

	if (fd < 0) {
		return -errno;
	}
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return -EINVAL;
	}
	while (len <= NVMF_RESV_FILE_MAX && (n = read(fd, text + len, NVMF_RESV_FILE_MAX + 1 - (size_t)len)) != 0) {
		if (n < 0 && errno != EINTR) {
			len = -errno;
			break;
		}
		len += n > 0 ? n : 0;
	}
	close(fd);
	return len;
}

int nvmf_resv_check_path(const char *path)
{
	char folder[PATH_MAX];
	size_t len = strlen(path);

	if (path[0] != '/' || path[len - 1] == '/' || len > NVMF_RESV_PATH_MAX) {
		log_error("ptpl_file \"%.64s\": allowed is the absolute path of a file, of at most %d bytes", path,
			  NVMF_RESV_PATH_MAX);
		return -EINVAL;
	}
	resv_path_folder(path, folder);
	if (access(folder, W_OK | X_OK) != 0) {
		int rc = -errno;
		log_error("ptpl_file %s: files cannot be made in %s: %s", path, folder, strerror(-rc));
		return rc;
	}
	return 0;
}

int nvmf_resv_load(const char *path, const uint8_t uuid[16], struct nvmf_resv *r)
{
	char text[NVMF_RESV_FILE_MAX + 1];
	unsigned line = 0;

	*r = (struct nvmf_resv){0};
	ssize_t len = resv_read_text(path, text);
	if (len == -ENOENT) {
		return 0;
	}
	if (len < 0) {
		log_error("ptpl_file %s cannot be read: %s", path, strerror((int)-len));
		return (int)len;
	}
	int rc = nvmf_resv_file_decode(text, (size_t)len, uuid, r, &line);
	if (rc == -EBADMSG) {
		log_error("ptpl_file %s: line %u is not what a namespace's reservation looks like; mend it, "
			  "or remove the "
			  "file to begin without registrants",
			  path, line);
	} else if (rc != 0) {
		log_error("ptpl_file %s is of another namespace (the uuid differs)", path);
	}
	if (!r->ptpl) { /* persistence was disabled: nothing has been kept */
		*r = (struct nvmf_resv){0};
	}
	return rc;
}

/* ---- Writing: on a worker thread, because disks are slow ---- */

struct nvmf_resv_save {
	struct worker_job job;
	void (*done)(void *arg, int status);
	void *arg;
	int status;
	struct resv_lock *lock; /* held until the file is written, also if the namespace is removed; or NULL */
	TAILQ_ENTRY(nvmf_resv_save) link;
	size_t len;
	char path[NVMF_RESV_PATH_MAX + 1];
	char text[NVMF_RESV_FILE_MAX];
};

static TAILQ_HEAD(, nvmf_resv_save) saves = TAILQ_HEAD_INITIALIZER(saves); /* under way; control thread */

bool nvmf_resv_is_being_saved(const char *path)
{
	const struct nvmf_resv_save *s;

	TAILQ_FOREACH (s, &saves, link) {
		if (nvmf_resv_files_clash(s->path, path)) {
			return true;
		}
	}
	return false;
}

static int resv_write_all(int fd, const char *text, size_t len)
{
	while (len != 0) {
		ssize_t n = write(fd, text, len);
		if (n < 0 && errno != EINTR) {
			return -errno;
		}
		text += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* Makes the temporary file anew. An old one, left over from a crash or made by another program, is removed and never
 * written to, because that program could go on writing to it. */
static int resv_write_new(const char *path, const char *text, size_t len)
{
	unlink(path);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0) {
		return -errno;
	}
	int rc = resv_write_all(fd, text, len);
	if (rc == 0 && fsync(fd) != 0) {
		rc = -errno;
	}
	if (close(fd) != 0 && rc == 0) {
		rc = -errno;
	}
	return rc;
}

/* The new name is on the disk once the folder is synced. */
static int resv_sync_folder(const char *path)
{
	char folder[PATH_MAX];

	resv_path_folder(path, folder);
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		return -errno;
	}
	int rc = fsync(fd) != 0 ? -errno : 0;
	close(fd);
	return rc;
}

static int resv_replace_file(const struct nvmf_resv_save *save)
{
	char new[NVMF_RESV_PATH_MAX + sizeof(new_suffix)];

	snprintf(new, sizeof(new), "%s%s", save->path, new_suffix);
	int rc = resv_write_new(new, save->text, save->len);
	if (rc == 0 && rename(new, save->path) != 0) {
		rc = -errno;
	}
	if (rc != 0) {
		unlink(new);
		return rc;
	}
	return resv_sync_folder(save->path);
}

static void resv_save_on_worker(struct worker_job *job)
{
	struct nvmf_resv_save *s = container_of(job, struct nvmf_resv_save, job);

	s->status = resv_replace_file(s);
}

static void resv_save_done(struct worker_job *job)
{
	struct nvmf_resv_save *s = container_of(job, struct nvmf_resv_save, job);
	int status = job->error != 0 ? job->error : s->status;

	if (status != 0) {
		log_limited(LOG_LEVEL_ERROR, "ptpl_file %s cannot be written: %s", s->path, strerror(-status));
	}
	TAILQ_REMOVE(&saves, s, link);
	s->done(s->arg, status);
	resv_lock_put(s->lock);
	free(s);
}

int nvmf_resv_save(const char *path, const uint8_t uuid[16], const struct nvmf_resv *r,
		   void (*done)(void *arg, int status), void *arg)
{
	struct nvmf_resv_save *s = malloc(sizeof(*s));

	if (s == NULL) {
		return -ENOMEM;
	}
	s->job = (struct worker_job){.work = resv_save_on_worker, .done = resv_save_done};
	s->done = done;
	s->arg = arg;
	s->lock = resv_lock_find(path);
	if (s->lock != NULL) {
		s->lock->refs++;
	}
	snprintf(s->path, sizeof(s->path), "%s", path);
	s->len = nvmf_resv_file_encode(r, uuid, s->text);
	TAILQ_INSERT_TAIL(&saves, s, link);
	worker_run(NULL, &s->job);
	return 0;
}
