/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/takeover.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "appliance/hand_over_keys.h"
#include "appliance/hand_over_resv.h"
#include "appliance/service.h"
#include "appliance/signals.h"
#include "bdev/kept_ram.h"
#include "bdev/kept_stat.h"
#include "rpc/stream.h"
#include "thread/thread.h"
#include "util/secret.h"

#define SLICE_MS   100 /* a signal that comes just before a wait is seen after so long */
#define ANSWER_S   30  /* for what the predecessor answers at once */
#define PARTING_S  5   /* for its last word, which nothing depends on */
#define MAX_TEXT   768
#define RECV_BYTES 65536

static struct takeover {
	int fd; /* -1: none */
	uint64_t end_ns;
	struct rpc_stream_in in;
	int file;          /* of RAM disks, which the predecessor has sent; -1: none */
	bool without_ram;  /* the predecessor cannot hand RAM disks over */
	char *notify_path; /* of the service manager, or NULL */
	uint64_t watchdog_us;
} takeover = {.fd = -1, .file = -1};

/* The process that is taken over from, until it is known that it serves no more. */
static struct predecessor {
	pid_t pid;
	int pidfd;                /* -1: none, or it cannot be watched */
	struct fd_source *source; /* its end */
} predecessor = {.pidfd = -1};

static int __attribute__((format(printf, 3, 4))) takeover_fail(char *error, int rc, const char *fmt, ...)
{
	char text[PART_ERROR_MAX - 64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(error, PART_ERROR_MAX, "nothing was taken over: %s", text);
	return rc;
}

static uint64_t takeover_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void takeover_give_time(uint64_t seconds)
{
	takeover.end_ns = takeover_now_ns() + seconds * 1000000000;
}

/* Waits until the socket is readable or writable. 0, -ECANCELED or -ETIMEDOUT. */
static int takeover_wait(short events)
{
	struct pollfd p = {.fd = takeover.fd, .events = events};

	for (;;) {
		if (signals_stop_requested() != 0) {
			return -ECANCELED;
		}
		if (poll(&p, 1, SLICE_MS) > 0) {
			return 0;
		}
		if (takeover_now_ns() >= takeover.end_ns) {
			return -ETIMEDOUT;
		}
	}
}

/* message is consumed. */
static int takeover_say(json_t *message)
{
	char *text = message != NULL ? json_dumps(message, JSON_COMPACT) : NULL;
	size_t len = text != NULL ? strlen(text) : 0;
	int rc = text != NULL ? 0 : -ENOMEM;

	json_decref(message);
	for (size_t sent = 0; rc == 0 && sent < len;) {
		rc = takeover_wait(POLLOUT);
		ssize_t n = rc == 0 ? send(takeover.fd, text + sent, len - sent, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			rc = -errno;
		}
		sent += n > 0 ? (size_t)n : 0;
	}
	free(text);
	return rc;
}

/* Keeps the last descriptor that has come. */
static void takeover_note_files(struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
			continue;
		}
		for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
			if (takeover.file >= 0) {
				close(takeover.file);
			}
			memcpy(&takeover.file, CMSG_DATA(c) + at, sizeof(int));
		}
	}
}

/* As recv(). */
static ssize_t takeover_recv(char *bytes, size_t size)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = bytes, .iov_len = size};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(takeover.fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n >= 0) {
		takeover_note_files(&msg);
	}
	return n;
}

static int takeover_read(void)
{
	char bytes[RECV_BYTES];
	int rc = takeover_wait(POLLIN);

	if (rc != 0) {
		return rc;
	}
	ssize_t n = takeover_recv(bytes, sizeof(bytes));
	if (n < 0) {
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	}
	rc = n > 0 ? rpc_stream_in_add(&takeover.in, bytes, (size_t)n) : -EPIPE;
	explicit_bzero(bytes, sizeof(bytes)); /* a configuration may have keys */
	return rc;
}

/* The next message, which the caller releases. */
static int takeover_hear(json_t **message)
{
	int rc;

	while ((rc = rpc_stream_in_take(&takeover.in, message)) == -EAGAIN) {
		rc = takeover_read();
		if (rc != 0) {
			return rc;
		}
	}
	return rc;
}

/* Says why nothing was heard of the predecessor. */
static int takeover_fail_to_hear(char *error, int rc)
{
	switch (rc) {
	case -ECANCELED:
		return rc;
	case -EPIPE:
	case -ECONNRESET:
		return takeover_fail(error, rc, "the other process has closed the connection: it has ended, or stops");
	case -ETIMEDOUT:
		return takeover_fail(error, rc, "the other process has not answered in time");
	default:
		return takeover_fail(error, rc, "what the other process says cannot be read: %s", strerror(-rc));
	}
}

static void predecessor_forget(void)
{
	if (predecessor.source != NULL) {
		fd_source_remove(&predecessor.source);
	}
	if (predecessor.pidfd >= 0) {
		close(predecessor.pidfd);
	}
	predecessor = (struct predecessor){.pidfd = -1};
}

/* It is who listens at the socket. */
static void predecessor_note(void)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);

	if (getsockopt(takeover.fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.pid > 0) {
		predecessor.pid = peer.pid;
		predecessor.pidfd = pidfd_open(peer.pid, 0);
	}
}

static void predecessor_ended(void *arg, uint32_t events)
{
	log_notice("process %d, which has been taken over from, has ended", predecessor.pid);
	kept_ram_own(true);
	predecessor_forget();
}

/* It has not said that it serves no more. It may not know that this process serves: if this one ends, it goes on with
 * the RAM disks, so nothing of them is removed as long as it is there. */
static void predecessor_watch(void)
{
	if (predecessor.pidfd >= 0) {
		predecessor.source = fd_source_add(predecessor.pidfd, EPOLLIN, predecessor_ended, NULL, "predecessor");
	}
	if (predecessor.source == NULL) {
		log_warning("the other process cannot be watched: RAM disks that are deleted give no memory back");
	}
}

static int takeover_connect(const char *path, char *error)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(addr.sun_path)) {
		return takeover_fail(error, -ENAMETOOLONG, "the path %s is too long for a socket", path);
	}
	strcpy(addr.sun_path, path);
	takeover.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (takeover.fd < 0 || connect(takeover.fd, (const struct sockaddr *)&addr, sizeof(addr)) != 0) {
		int rc = -errno;
		return takeover_fail(error, rc, "cannot connect to the RPC socket %s of a running varve: %s", path,
				     strerror(-rc));
	}
	predecessor_note();
	return 0;
}

static json_t *takeover_params(const struct appliance_options *o, bool dry_run)
{
	json_t *params = json_pack("{s:i,s:b,s:b,s:i}", "pid", getpid(), "dry_run", dry_run, "force",
				   o->takeover_forced, "timeout_s", (int)o->takeover_s);

	if (params != NULL && !takeover.without_ram) {
		json_object_set_new(params, "ram_disks", json_true());
	}
	return params;
}

/* Calls framework_hand_over; *answer is to be released. */
static int takeover_ask(const struct appliance_options *o, bool dry_run, json_t **answer, char *error)
{
	takeover_give_time(o->takeover_s < ANSWER_S ? o->takeover_s : ANSWER_S);
	int rc = takeover_say(json_pack("{s:s,s:i,s:s,s:o}", "jsonrpc", "2.0", "id", 1, "method", "framework_hand_over",
					"params", takeover_params(o, dry_run)));

	rc = rc == 0 ? takeover_hear(answer) : rc;
	return rc != 0 ? takeover_fail_to_hear(error, rc) : 0;
}

/* NULL: it is not an error. */
static const char *takeover_refusal(const json_t *answer)
{
	const char *why = json_string_value(json_object_get(json_object_get(answer, "error"), "message"));

	if (json_object_get(answer, "result") != NULL) {
		return NULL;
	}
	return why != NULL ? why : "an answer without a result";
}

/* Whether the predecessor is of a version that hands no RAM disks over, and does not know the parameter. */
static bool takeover_knows_no_ram(const json_t *answer)
{
	const char *why = takeover_refusal(answer);

	return why != NULL && !takeover.without_ram && strstr(why, "parameter \"ram_disks\" is unknown") != NULL;
}

/* As takeover_ask(), in words that the predecessor knows; *result is to be released. */
static int takeover_call(const struct appliance_options *o, bool dry_run, json_t **result, char *error)
{
	json_t *answer;
	int rc = takeover_ask(o, dry_run, &answer, error);

	if (rc == 0 && takeover_knows_no_ram(answer)) {
		json_decref(answer);
		takeover.without_ram = true;
		log_warning("the other process is of a version that cannot hand over what is on RAM disks");
		rc = takeover_ask(o, dry_run, &answer, error);
	}
	if (rc != 0) {
		return rc;
	}
	*result = json_incref(json_object_get(answer, "result"));
	if (*result == NULL) {
		rc = takeover_fail(error, -EPERM, "%.*s", MAX_TEXT, takeover_refusal(answer));
	}
	json_decref(answer);
	return rc;
}

/* Parses and checks a configuration: an entry that cannot be loaded is for the other process to keep, even with
 * --json-ignore-init-errors. */
static int takeover_load(const json_t *tree, struct config *config, char *error)
{
	char why[CONFIG_ERROR_MAX];
	char *text = tree != NULL ? json_dumps(tree, JSON_INDENT(1)) : NULL;

	if (text == NULL) {
		return takeover_fail(error, -EBADMSG, "there is no configuration in what the other process says");
	}
	int rc = config_parse("the configuration of the other process", text, strlen(text), config, why);
	secret_wipe_free(text);
	rc = rc == 0 ? config_check(config, false, why) : rc;
	if (rc != 0) {
		config_free(config);
		return takeover_fail(error, rc, "%s", why);
	}
	return 0;
}

/* Whether the configuration can be loaded, while the predecessor serves. */
static int takeover_try(const struct appliance_options *o, char *error)
{
	struct config config;
	json_t *tree = NULL;
	int rc = takeover_call(o, true, &tree, error);

	rc = rc == 0 ? takeover_load(tree, &config, error) : rc;
	json_decref(tree);
	if (rc == 0) {
		config_free(&config);
	}
	return rc;
}

static void takeover_note_service(const json_t *message)
{
	const char *path = json_string_value(json_object_get(message, "notify_socket"));
	json_int_t us = json_integer_value(json_object_get(message, "watchdog_us"));

	takeover.notify_path = path != NULL ? strdup(path) : NULL;
	takeover.watchdog_us = us > 0 ? (uint64_t)us : 0;
}

/* Statistics are not worth the attempt: the other process serves no more. */
static void takeover_load_statistics(const json_t *all)
{
	unsigned left_out;

	if (kept_stat_import(all, &left_out) != 0) {
		log_warning("no memory for the statistics of the other process: they begin anew");
	} else if (left_out != 0) {
		log_warning("the statistics of %u objects of the other process cannot be read: they begin anew",
			    left_out);
	}
}

static int takeover_load_ram(const json_t *message)
{
	int file = takeover.file;

	takeover.file = -1;
	return kept_ram_import(json_object_get(message, "ram_disks"), file);
}

static int takeover_load_state(const json_t *message, struct config *config, char *error)
{
	int rc = hand_over_resv_import(json_object_get(message, "reservations"));

	rc = rc == 0 ? hand_over_keys_import(json_object_get(message, "keys")) : rc;
	rc = rc == 0 ? takeover_load_ram(message) : rc;
	if (rc != 0) {
		config_free(config);
		return takeover_fail(error, rc,
				     "what the other process says of reservations, keys and RAM disks cannot be kept: "
				     "%s",
				     strerror(-rc));
	}
	takeover_load_statistics(json_object_get(message, "statistics"));
	return 0;
}

/* Waits until the predecessor has given up all. */
static int takeover_receive(const struct appliance_options *o, struct config *config, char *error)
{
	json_t *message;

	takeover_give_time(o->takeover_s);
	int rc = takeover_hear(&message);
	if (rc != 0) {
		return takeover_fail_to_hear(error, rc);
	}
	const char *why = json_string_value(json_object_get(message, "error"));
	if (why != NULL) {
		rc = takeover_fail(error, -EPERM, "%.*s", MAX_TEXT, why);
	} else {
		takeover_note_service(message);
		rc = takeover_load(json_object_get(message, "handed_over"), config, error);
		rc = rc == 0 ? takeover_load_state(message, config, error) : rc;
	}
	json_decref(message);
	return rc;
}

int takeover_begin(const struct appliance_options *o, struct config *config, char *error)
{
	json_t *result = NULL;
	int rc = takeover_connect(o->takeover, error);

	rc = rc == 0 ? takeover_try(o, error) : rc;
	rc = rc == 0 ? takeover_call(o, false, &result, error) : rc;
	json_decref(result);
	rc = rc == 0 ? takeover_receive(o, config, error) : rc;
	if (rc != 0) {
		takeover_stop();
		return rc;
	}
	log_notice("the other process has stopped serving: its configuration is loaded");
	return 0;
}

static void takeover_close(void)
{
	if (takeover.fd >= 0) {
		close(takeover.fd);
	}
	if (takeover.file >= 0) {
		close(takeover.file);
	}
	rpc_stream_in_free(&takeover.in);
	free(takeover.notify_path);
	takeover = (struct takeover){.fd = -1, .file = -1};
}

int takeover_end(char *error)
{
	json_t *message;

	takeover_give_time(PARTING_S);
	int rc = takeover_say(json_pack("{s:b}", "serving", 1));
	rc = rc == 0 ? takeover_hear(&message) : rc;
	if (rc == 0) {
		json_decref(message);
		kept_ram_own(true);
		predecessor_forget();
	} else if (rc == -ECANCELED) {
		return rc;
	} else { /* it has ended, or is stopped: it has given up all, and this process serves it */
		log_warning("all was taken over, but nothing was heard of the other process's end: %s", strerror(-rc));
		predecessor_watch();
	}
	service_adopt(takeover.notify_path, takeover.watchdog_us);
	takeover_close();
	return 0;
}

void takeover_stop(void)
{
	predecessor_forget();
	takeover_close();
}
